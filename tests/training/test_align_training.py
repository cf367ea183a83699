"""Training of the word aligner: data, batches, validation, resuming, and that it learns to align."""

import dataclasses
import json
from itertools import pairwise, product

import pytest
import torch
from datasets import Dataset
from runs import write_corpus

from hf_attncal import MaskAlignConfig, MaskAlignModel
from hf_attncal.alignment import WordAligner, aligner_job
from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob, learn_jumps
from hf_attncal.alignment.gold import score_aligner, tune_links
from hf_attncal.data.collators import AlignmentCollator
from hf_attncal.data.corpora import corpus_token_counts, lowercased, tokenize_for_alignment
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.models.functional_jumps import initial_jumps

LINES = ["the old house is small .", "a house", "old"]
OTHER = ["das alte haus ist klein .", "ein haus", "alt"]
TINY_MODEL = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 2, "ffn_dim": 64}


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe_tokenizer((LINES + OTHER) * 3, vocab_size=60)


def pairs(source=LINES, target=OTHER) -> Dataset:
    return Dataset.from_dict({"source": source, "target": target})


# ---- data ----


def test_tokens_without_end_of_sentence_and_links_between_all_tokens_of_two_words(tokenizer):
    links = [[(0, 0), (1, 1), (2, 2)], [(1, 1)], []]
    with pytest.warns(UserWarning, match="fewer than two tokens"):
        data, report = tokenize_for_alignment(pairs(LINES, [*OTHER[:2], "x"]), tokenizer, 100, links)
    assert (report.kept, report.too_short, report.too_long) == (2, 1, 0)
    for row, (source, target) in enumerate(zip(LINES[:2], OTHER[:2], strict=True)):
        assert data[row]["input_ids"] == tokenizer(source, add_special_tokens=False)["input_ids"]
        assert data[row]["target_input_ids"] == tokenizer(target, add_special_tokens=False)["input_ids"]
        assert data[row]["length"] == max(len(data[row]["input_ids"]), len(data[row]["target_input_ids"]))
        # An independent reading of the words: every piece that begins a word carries the mark of a space.
        words = [
            [sum(piece.startswith("▁") or piece == "." for piece in pieces[: k + 1]) - 1 for k in range(len(pieces))]
            for pieces in (tokenizer.tokenize(source), tokenizer.tokenize(target))
        ]
        expected = {
            (s, t)
            for s, source_word in enumerate(words[0])
            for t, target_word in enumerate(words[1])
            if (source_word, target_word) in links[row]
        }
        flat = data[row]["links"]
        assert set(zip(flat[::2], flat[1::2], strict=True)) == expected
        assert expected


def test_pairs_with_an_empty_side_are_counted(tokenizer):
    sides = [*LINES[:1], "", " \t", None, "old"], [*OTHER[:1], "alt", "alt", "alt", None]
    with pytest.warns(UserWarning, match="Kept 1 of 5.*4 with no text, or an empty side"):
        data, report = tokenize_for_alignment(pairs(*sides), tokenizer, 100, [[(0, 0)], [(0, 0)], [], [], []])
    assert (len(data), report.empty, report.dropped) == (1, 4, 4)


def test_pairs_that_are_too_long_are_counted(tokenizer):
    with pytest.warns(UserWarning, match="more than 3 tokens"):
        _, report = tokenize_for_alignment(pairs(["old house", *LINES[:1]], ["alt haus", OTHER[0]]), tokenizer, 3)
    assert (report.kept, report.too_long) == (1, 1)
    assert "Kept 1 of 2" in str(report)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([[(0, 0)]], "1 lines for 3 pairs"),
        ([[], [(2, 0)], []], "line 2: link 2-0 lies outside a pair of 2 source and 2 target words"),
    ],
)
def test_links_that_do_not_fit_are_refused(tokenizer, links, message):
    with pytest.raises(ValueError, match=message):
        tokenize_for_alignment(pairs(), tokenizer, 100, links)


def test_no_pair_left_is_refused(tokenizer):
    with pytest.raises(ValueError, match="No sentence pair is left"):
        tokenize_for_alignment(pairs([""], [""]), tokenizer, 100)


def test_lowercased():
    assert lowercased(pairs(["The House"], ["DAS Haus"]))[0] == {"source": "the house", "target": "das haus"}
    assert lowercased(pairs([None], ["DAS Haus"]))[0] == {"source": None, "target": "das haus"}


def test_token_counts(tokenizer):
    data, _ = tokenize_for_alignment(pairs(LINES[:2], OTHER[:2]), tokenizer, 100)
    source, target = corpus_token_counts(data, len(tokenizer))
    for counts, lines in ((source, LINES[:2]), (target, OTHER[:2])):
        ids = [i for line in lines for i in tokenizer(line, add_special_tokens=False)["input_ids"]]
        assert counts.tolist() == [ids.count(i) for i in range(len(tokenizer))]


def test_collator_pads_and_places_links():
    examples = [
        {"input_ids": [5, 6, 7], "target_input_ids": [8], "links": [2, 0, 0, 0]},
        {"input_ids": [5], "target_input_ids": [8, 9], "links": []},
    ]
    batch = AlignmentCollator(2)(examples)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [5, 2, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["target_input_ids"].tolist() == [[8, 2], [8, 9]]
    assert batch["target_attention_mask"].tolist() == [[1, 0], [1, 1]]
    assert batch["links"].tolist() == [[[1, 0, 1], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]
    assert batch["return_loss"] is True


# ---- settings ----


def test_the_length_of_training_is_given_in_steps_or_epochs():
    assert "num_train_epochs" not in AlignerConfig.make({"training": {"max_steps": 5}}).training
    epochs = AlignerConfig.make({"model": {"size": "small"}, "training": {"num_train_epochs": 2}}).training
    assert "max_steps" not in epochs


def test_only_a_mixture_has_jumps_by_default():
    assert AlignerConfig.make({"model": {"size": "small"}}).model["max_jump"] == 40
    assert "max_jump" not in AlignerConfig.make({"model": {"prediction": "attention"}}).model
    with pytest.raises(ValueError, match=r"`model.max_jump`.*`prediction`.*'mixture'.*got 'attention'"):
        AlignerConfig.make({"model": {"prediction": "attention", "max_jump": 3}})


def test_the_size_follows_the_text_by_default(tmp_path, monkeypatch):
    """Below `MIN_PAIRS_FOR_NETWORK` only counts."""
    paths = [tmp_path / side for side in ("source", "target")]
    for path in paths:
        path.write_text("a b\n" * 9)
    train = dict(zip(("source", "target"), map(str, paths), strict=True))

    def size(**values) -> str:
        return AlignerConfig.make({"data": {"train": train}} | values).model["size"]

    assert size() == size(training={"output_dir": "x", "seed": 2}) == size(model={"null_probability": 0.2}) == "hmm"
    assert size(preset="small") == size(model={"size": "small"}) == "small"
    for asked in ({"minutes": 5}, {"training": {"max_steps": 3}}, {"model": {"d_model": 16}}, {"average_last": 2}):
        assert size(**asked) == "small", asked
    assert size(data={"train": train | {"guide": train["source"]}}) == "small"
    monkeypatch.setattr(aligner_job, "MIN_PAIRS_FOR_NETWORK", 9)
    assert size() == "small"
    assert size(data={"train": train, "train_pairs": 8}) == "hmm"


# ---- training ----


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with a synthetic language: text, gold links, and links of the training text."""
    return write_corpus(tmp_path_factory.mktemp("corpus"), 400, 10, 20)


@pytest.fixture(scope="module")
def learnable(tmp_path_factory):
    """Return enough text of the same language to learn it."""
    return write_corpus(tmp_path_factory.mktemp("learnable"))


def settings(corpus, output, guide=False, **training):
    def gold(name):
        return {"source": f"{name}.en", "target": f"{name}.de", "gold": f"{name}.align"}

    train = {"source": "train.en", "target": "train.de"} | ({"guide": "train.align"} if guide else {})
    defaults = {"max_steps": 8, "tokens_per_batch": 300, "warmup_steps": 2, "bf16": False, "disable_tqdm": True}
    defaults |= {"logging_steps": 4, "eval_steps": 4, "save_steps": 4, "agreement_warmup_steps": 2}
    return AlignerConfig.make(
        {
            "data": {
                "root": str(corpus),
                "lowercase": True,
                "train": train,
                "dev": gold("dev"),
                "test": gold("test"),
                "held_out_pairs": 40,
            },
            "tokenizer": {"vocab_size": 500},
            "model": TINY_MODEL,
            "training": {"output_dir": str(output), **defaults, **training},
        }
    )


def test_everything_is_logged_and_saved(corpus, tmp_path):
    results = AlignerJob.train(settings(corpus, tmp_path / "run", guide=True))
    log = results["log_history"]
    training = [entry for entry in log if "tokens_per_second" in entry]
    assert len(training) == 2
    for name in ("prediction_loss", "agreement_loss", "entropy_loss", "guided_loss", "null_weight", "loss"):
        assert all(entry[name] > 0 for entry in training)
    evaluations = [entry for entry in log if "eval_aer" in entry]
    assert len(evaluations) == 2
    assert all(0 <= entry["eval_prediction_accuracy"] <= 1 for entry in evaluations)
    assert results["sentence_pairs"]["held_out"]["kept"] == 40
    assert results["sentence_pairs"]["train"]["kept"] == 360
    assert set(results["data_sha256"]) == {
        f"{name}.{suffix}" for name in ("train", "dev", "test") for suffix in ("en", "de", "align")
    }
    saved = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert saved["test"]["aer"] == results["test"]["aer"]
    assert str(corpus) not in json.dumps(saved)

    aligner = WordAligner.from_pretrained(tmp_path / "run", device="cpu")
    assert aligner.model.config.lowercase
    assert aligner.model.config.alignment_threshold == results["dev"]["threshold"]
    gold = Gold.read(corpus / "test.en", corpus / "test.de", corpus / "test.align")
    assert score_aligner(aligner, gold).aer == pytest.approx(results["test"]["aer"])


def test_symmetrization_and_threshold_are_the_best_of_those_tried(learnable, tmp_path):
    config = settings(learnable, tmp_path / "run", max_steps=60, learning_rate=6e-3, agreement_warmup_steps=60)
    results = AlignerJob.train(config)
    aligner = WordAligner.from_pretrained(tmp_path / "run", device="cpu")
    gold = Gold.read(learnable / "dev.en", learnable / "dev.de", learnable / "dev.align")
    assert score_aligner(aligner, gold).aer == results["dev"]["aer"]
    assert aligner.model.config.symmetrization == results["dev"]["symmetrization"]

    aligner.model.train()
    tried = list(product(("harmonic", "union"), (0.1, 0.3, 0.9)))
    name, threshold, score = tune_links(aligner.model, aligner.tokenizer, gold, ("harmonic", "union"), (0.1, 0.3, 0.9))
    assert aligner.model.training
    aligner.model.eval()
    scores = {(name, tau): score_aligner(aligner, gold, tau, name).aer for name, tau in tried}
    assert scores[name, threshold] == min(scores.values()) == score.aer
    assert len(set(scores.values())) > 1


@pytest.mark.slow
def test_going_on_from_an_aligner_keeps_its_fields_but_those_given(corpus, tmp_path):
    quiet = {"max_steps": 2, "eval_strategy": "no", "save_strategy": "no"}
    AlignerJob.train(settings(corpus, tmp_path / "first", **quiet))
    config = settings(corpus, tmp_path / "second", **quiet)
    values = {"init_from": str(tmp_path / "first"), "agreement_weight": 3.0}
    config = AlignerConfig.make(
        {"data": dataclasses.asdict(config.data), "model": values, "training": config.training}
    )
    AlignerJob.train(config)
    first, second = (MaskAlignModel.from_pretrained(tmp_path / name).config for name in ("first", "second"))
    assert (second.agreement_weight, first.agreement_weight) == (3.0, 20.0)
    assert (second.d_model, second.prediction) == (first.d_model, first.prediction) == (64, "mixture")


def jump_tables(model):
    return [direction.prediction.jumps for direction in (model.forward_direction, model.backward_direction)]


def test_learned_jumps_are_those_of_the_text(tokenizer):
    """A model that has learned nothing but which token is which: a text in the same order, and one in reverse."""
    size = len(tokenizer)
    fields = {"vocab_size": size, "d_model": 2 * -(-size // 2), "attention_heads": 1, "prediction": "mixture"}
    fields |= {"emission": "embeddings", "encoder_layers": 1, "decoder_layers": 1, "ffn_dim": 4, "max_jump": 5}
    model = MaskAlignModel(MaskAlignConfig(**fields))
    eye = 4 * torch.eye(size, fields["d_model"])
    for direction in (model.forward_direction, model.backward_direction):
        direction.prediction.emission.weight.data.copy_(torch.eye(fields["d_model"]))
    for table in (model.source_embeddings, model.target_embeddings):
        table.weight.data.copy_(eye)
    generator = torch.Generator().manual_seed(2)
    texts = [torch.randint(5, 12, (length,), generator=generator).tolist() for length in range(4, 24)]
    for step in (1, -1):
        rows = {"input_ids": texts, "target_input_ids": [text[::step] for text in texts]}
        data = Dataset.from_dict(rows | {"length": [len(text) for text in texts]})
        for jumps in jump_tables(model):
            jumps.copy_(initial_jumps(5))
        rising = learn_jumps(model.train(), data, AlignmentCollator(0))
        assert model.training
        assert all(later > earlier for earlier, later in pairwise(rising))
        for jumps in jump_tables(model):
            assert int(jumps.argmax()) - 5 == step
            assert float(jumps.sort().values[-2]) < 0.3


@pytest.mark.parametrize("guide", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_learns_to_align(learnable, tmp_path, guide):
    schedule = {"max_steps": 150, "learning_rate": 6e-3, "warmup_steps": 30, "agreement_warmup_steps": 100}
    config = settings(learnable, tmp_path / "run", guide, eval_strategy="no", save_strategy="no", **schedule)
    assert AlignerJob.train(config)["test"]["aer"] < 0.2


@pytest.mark.slow
def test_a_model_that_aligns_nothing_is_named(learnable, tmp_path):
    schedule = {"max_steps": 60, "learning_rate": 6e-3, "agreement_warmup_steps": 0}
    config = settings(learnable, tmp_path / "run", eval_strategy="no", save_strategy="no", **schedule)
    config.counts.guide = False
    with pytest.warns(UserWarning, match=r"NULL.*`training.agreement_warmup_steps`"):
        AlignerJob.train(config)


def test_bad_input_is_refused_before_anything_is_written(corpus, tmp_path):
    config = settings(corpus, tmp_path / "run")
    config.data.train = None
    with pytest.raises(ValueError, match="name the text"):
        AlignerJob.train(config)
    config = settings(corpus, tmp_path / "run")
    config.data.train = {"source": "train.en", "target": "dev.de"}
    with pytest.raises(ValueError, match="same number of lines"):
        AlignerJob.train(config)
    config = settings(corpus, tmp_path / "run")
    config.data.dev = {**config.data.dev, "gold": "test.align"}
    with pytest.raises(ValueError, match=r"20 lines.*10 sentence"):
        AlignerJob.train(config)
    outside = (corpus / "dev.align").read_text(encoding="utf-8").replace("0-0", "90-90")
    (corpus / "outside.align").write_text(outside, encoding="utf-8")
    config.data.dev = {**config.data.dev, "gold": "outside.align"}
    with pytest.raises(ValueError, match="link 90-90"):
        AlignerJob.train(config)
    assert not (tmp_path / "run").exists()
