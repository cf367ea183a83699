"""Tuning an encoder: the objective against loops over tokens, and the job from text to a checkpoint that aligns."""

import json
import re
import shutil

import pytest
import reference_encoder as slow
import torch
from helpers import assert_close, assert_functions_agree, assert_results_agree, files_that_name, write_linked_pairs
from peft import get_peft_model
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, text_model
from transformers import AutoModel, AutoModelForSeq2SeqLM, BertConfig, BertModel, GPT2Config, TrainerCallback

from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.alignment import EncoderStates, Seq2SeqAttention, WordAligner
from hf_attncal.alignment.encoder import EncoderReader
from hf_attncal.alignment.encoder_job import (
    EncoderJob,
    EncoderTrainer,
    EncoderTrainingArguments,
    TunedEncoderConfig,
    TuningConfig,
    consistency,
    guided_likelihood,
)
from hf_attncal.alignment.gold import score_aligner
from hf_attncal.commands import main
from hf_attncal.commands.align_select import select
from hf_attncal.data.annotated_pairs import Gold
from hf_attncal.data.collators import AlignmentCollator
from hf_attncal.data.corpora import load_parallel
from hf_attncal.data.synthetic.english_german import generate_split
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.data.words import tokenize_words
from hf_attncal.layouts import Fate, fate_of

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SIZE |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 64}
RUN = {"max_steps": 4, "tokens_per_batch": 300, "warmup_steps": 1, "save_steps": 2, "logging_steps": 2, "bf16": False}
RUN |= {"learning_rate": 2e-3, "disable_tqdm": True}


# ---- the objective ----


def random_links(rows, columns, seed=3):
    links = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) > 0.7
    links[0] = False  # a token without a partner
    return links


def test_the_likelihood_of_links_and_its_gradients_are_those_of_the_loops():
    links = random_links(4, 5)
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_functions_agree(
        lambda scores: guided_likelihood(scores[None], links[None]),
        lambda scores: slow.likelihood([row.exp() / row.exp().sum() for row in scores], links.tolist()),
        {"scores": scores},
    )
    assert float(guided_likelihood(scores[None], torch.zeros_like(links)[None])) == 0


def test_a_partner_that_is_no_more_likely_than_rounding_still_has_a_gradient():
    scores = torch.tensor([[[0.0, 500.0]]], requires_grad=True)
    loss = guided_likelihood(scores, torch.tensor([[[True, False]]]))
    assert float(loss) == 500
    (gradient,) = torch.autograd.grad(loss, scores)
    assert gradient.flatten().tolist() == [-1, 1]


def test_the_disagreement_and_its_gradients_are_those_of_the_loops():
    generator = torch.Generator().manual_seed(2)
    forward, backward = (torch.rand(shape, generator=generator, dtype=torch.float64) for shape in ((4, 3), (3, 4)))
    real = torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 4, dtype=torch.bool)
    assert_functions_agree(
        lambda forward, backward: consistency(forward[None], backward[None], *real),
        slow.disagreement,
        {"forward": forward, "backward": backward},
    )
    certain = torch.eye(3)[None]
    assert float(consistency(certain, certain, real[0], real[0])) == 0


@pytest.mark.parametrize("links", [pytest.param("given", marks=pytest.mark.slow), "self"])
def test_the_loss_of_a_batch_and_all_gradients_are_those_of_the_loops(links, tmp_path):
    """Two pairs of different lengths: what is padding has no part in it."""
    tokenizer = bpe_tokenizer()
    torch.manual_seed(1)
    model = BertModel(BertConfig(**SIZE, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id))
    model = model.double().eval()
    settings = EncoderStates(1, threshold=0.02)
    sides = [tokenize_words(tokenizer, texts[:2], special_tokens=False) for texts in (SOURCES, TARGETS)]
    pairs = list(zip(*sides, strict=True))
    guides = [random_links(len(target.ids), len(source.ids)) for source, target in pairs]
    examples = [{"input_ids": source.ids, "target_input_ids": target.ids} for source, target in pairs]
    if links == "given":
        for example, guide in zip(examples, guides, strict=True):
            example["links"] = guide.nonzero().flip(1).flatten()
    trainer = EncoderTrainer(
        model=model,
        args=EncoderTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none"),
        reader=EncoderReader(model, tokenizer, settings),
        settings=settings,
        tuning=TuningConfig(consistency=0.5),
    )
    loss = trainer.compute_loss(model, AlignmentCollator(tokenizer.pad_token_id)(examples))
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)

    forward_terms, backward_terms, apart = [], [], []
    for (source, target), guide in zip(pairs, guides, strict=True):
        states = []
        for side in (source, target):
            ids = torch.tensor([[*side.ids.tolist(), tokenizer.eos_token_id]])
            states.append(model(input_ids=ids, output_hidden_states=True).hidden_states[1][0, :-1])
        forward, backward = slow.probabilities(*states)
        size = range(len(forward)), range(len(backward))
        if links == "self":
            guide = [[min(forward[t][s], backward[s][t]) > 0.02 for s in size[1]] for t in size[0]]
        linked = [[bool(guide[t][s]) for s in size[1]] for t in size[0]]
        for t in size[0]:
            if any(linked[t]):
                forward_terms.append(slow.likelihood([forward[t]], [linked[t]]))
        for s in size[1]:
            if any(row[s] for row in linked):
                backward_terms.append(slow.likelihood([backward[s]], [[row[s] for row in linked]]))
        apart.append(slow.disagreement(forward, backward))
    expected = (sum(forward_terms) / len(forward_terms) + sum(backward_terms) / len(backward_terms)) / 2
    expected = expected + 0.5 * sum(apart) / len(apart)
    assert_close(loss, expected, 1e-9)
    by_loops = torch.autograd.grad(expected, parameters, allow_unused=True)
    assert any(gradient is not None and gradient.abs().max() > 1e-6 for gradient in by_loops)
    for name, one, other in zip(names, found, by_loops, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            assert_close(one, other, 1e-9, name)


# ---- the job ----


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A synthetic language with gold links, and a random encoder for it."""
    folder = tmp_path_factory.mktemp("corpus")
    split = generate_split(1200, 20, 60, seed=3)
    write_linked_pairs(folder, train=split.train, dev=split.valid, test=split.test)
    lines = [line for side in ("en", "de") for line in (folder / f"train.{side}").read_text().splitlines()]
    tokenizer = train_bpe_tokenizer(lines, vocab_size=300)
    torch.manual_seed(1)
    model = BertModel(BertConfig(**SIZE, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id))
    for part in (model, tokenizer):
        part.save_pretrained(folder / "encoder")
    return folder


def made(corpus, output, model="encoder", dev=True, **sections):
    splits = {
        name: {"source": f"{name}.en", "target": f"{name}.de", "gold": f"{name}.align"} for name in ("dev", "test")
    }
    data = {"root": str(corpus), "train": {"source": "train.en", "target": "train.de"}, "test": splits["test"]}
    data |= {"dev": splits["dev"]} if dev else {}
    data["train"] |= sections.pop("train", {})
    training = RUN | {"output_dir": str(output)} | sections.pop("training", {})
    values = {"data": data, "model": {"checkpoint": str(corpus / model)}, "training": training}
    return TunedEncoderConfig.make(values | sections)


def test_an_encoder_learns_to_align_from_counts(corpus, tmp_path):
    results = EncoderJob.train(made(corpus, tmp_path, training={"max_steps": 60}, states={"layer": 2}))
    before, after = (results[when]["test"]["aer"] for when in ("before", "after"))
    assert after < 0.4 < before
    model = AutoModel.from_pretrained(tmp_path)
    assert type(model) is BertModel
    settings = EncoderStates.load(tmp_path)
    assert (settings.layer, settings.to_dict()) == (2, results["after"]["states"])
    text = load_parallel({"source": str(corpus / "test.en"), "target": str(corpus / "test.de")})
    pairs = list(zip(text["source"], text["target"], strict=True))
    gold = Gold.load({"source": str(corpus / "test.en"), "target": str(corpus / "test.de")}, corpus / "test.align")
    assert [*gold.pairs] == pairs
    assert score_aligner(WordAligner.from_pretrained(tmp_path, device="cpu"), gold).aer == pytest.approx(after)
    assert all(fate_of(path.name) is not Fate.REFUSED for path in tmp_path.iterdir())
    card = (tmp_path / "README.md").read_text()
    assert f"| AER on test | {100 * after:.1f} |" in card
    assert "attncal align run" in card
    assert json.loads((tmp_path / "results.json").read_text())["after"]["test"]["aer"] == after


class Stop(Exception):
    pass


class Stopping(TrainerCallback):
    """A run that ends after its first checkpoint."""

    def on_save(self, args, state, control, **kwargs):
        raise Stop


@pytest.mark.slow
def test_a_run_that_is_gone_on_with_ends_with_the_same_weights(corpus, tmp_path):
    own = {"links": "self"}
    whole = EncoderJob.train(made(corpus, tmp_path / "whole", tuning=own))
    with pytest.raises(Stop):
        EncoderJob.train(made(corpus, tmp_path / "parts", tuning=own), callbacks=[Stopping()])
    assert not (tmp_path / "parts" / "results.json").exists()
    assert_results_agree(EncoderJob.train(made(corpus, tmp_path / "parts", tuning=own), resume=True), whole)
    assert files_that_name(tmp_path, tmp_path / "whole") == set()
    one, other = (AutoModel.from_pretrained(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_without_gold_it_is_chosen_by_agreement_and_links_may_be_its_own_or_given(corpus, tmp_path):
    config = made(corpus, tmp_path / "self", dev=False, tuning={"links": "self", "consistency": 1.0})
    results = EncoderJob.train(config)
    assert set(results["after"]) == {"states", "test"}
    assert "counts" not in results
    logged = [entry for entry in results["log_history"] if "link_loss" in entry]
    assert all({"links", "consistency_loss"} <= set(entry) for entry in logged)
    guided = EncoderJob.train(made(corpus, tmp_path / "guided", train={"guide": "train.align"}))
    assert "counts" not in guided
    # Pairs are held out for the threshold, which dev has been given for here.
    assert (results["sentence_pairs"]["train"]["kept"], guided["sentence_pairs"]["train"]["kept"]) == (1080, 1200)
    assert guided["data_sha256"].keys() >= {"train.align"}


@pytest.mark.slow
def test_lower_casing_is_of_annotated_text_too(corpus, tmp_path):
    titles = shutil.copytree(corpus, tmp_path / "titles")
    for split in ("train", "dev", "test"):
        for side in ("en", "de"):
            (titles / f"{split}.{side}").write_text((corpus / f"{split}.{side}").read_text().title())
    found = []
    for root in (corpus, titles):
        config = made(corpus, tmp_path / f"of_{root.name}", tuning={"links": "self"})
        config.data.root, config.data.lowercase = str(root), True
        found.append(EncoderJob.train(config))
    one, other = ({when: results[when] for when in ("before", "after")} for results in found)
    assert one == other


def test_of_an_encoder_decoder_the_encoder_alone_learns(corpus, tmp_path):
    folder = tmp_path / "marian"
    text_model("marian", "stock").save_pretrained(folder)
    bpe_tokenizer().save_pretrained(folder)
    EncoderJob.train(made(corpus, tmp_path / "tuned", model=folder, states={"layer": 2}, tuning={"links": "self"}))
    before, after = (
        AutoModelForSeq2SeqLM.from_pretrained(name, dtype="float32").state_dict()
        for name in (folder, tmp_path / "tuned")
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("encoder" in name or "shared" in name for name in changed)
    assert any("encoder.layers" in name for name in changed)
    aligner = WordAligner.from_pretrained(tmp_path / "tuned", device="cpu")
    assert isinstance(aligner.settings, EncoderStates)


def test_what_cannot_be_tuned_is_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"`model.checkpoint`.*begin with"):
        EncoderJob.train(TunedEncoderConfig.make({"training": {"output_dir": str(tmp_path / "none")}}))
    GPT2Config(vocab_size=10, bos_token_id=1, eos_token_id=2).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ValueError, match=r"'gpt2'.*left to right"):
        EncoderJob.train(made(corpus, tmp_path / "new", model=tmp_path / "gpt2"))
    with pytest.raises(ValueError, match=r"`states.layer`.*-3.*2"):
        EncoderJob.train(made(corpus, tmp_path / "new", states={"layer": 7}))
    for part in (text_model("marian", "stock"), bpe_tokenizer()):
        part.save_pretrained(tmp_path / "marian")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "marian")
    get_peft_model(model, AttentionCalibrationConfig(guided=True)).save_pretrained(tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"`model.checkpoint`.*whole.*adapter"):
        EncoderJob.train(made(corpus, tmp_path / "new", model=tmp_path / "adapter"))


# ---- the commands ----


@pytest.mark.slow
def test_the_commands_select_tune_and_run(corpus, tmp_path, capsys):
    encoder, tuned = str(corpus / "encoder"), tmp_path / "tuned"
    text = [f"--source={corpus / 'train.en'}", f"--target={corpus / 'train.de'}"]
    test = [f"--{name}={corpus / f'test.{suffix}'}" for name, suffix in (("source", "en"), ("target", "de"))]
    assert main(["align", "select", encoder, *text, "--output", str(tmp_path)]) == 0
    rows, warned = (stream.splitlines() for stream in capsys.readouterr())
    *rows, sure = rows
    assert len(rows) == 10
    assert re.fullmatch(r"Layer \d+ stays ahead in \d+% of the samples of these pairs\.", sure)
    assert json.loads(rows[0].split(maxsplit=1)[1]) == EncoderStates.load(tmp_path).to_dict()
    assert "of the words beyond chance, which is next to nothing" in warned[-1]  # it has learned nothing yet

    suffixes = ("en", "de", "align")
    gold = [
        word for split in ("dev", "test") for word in (f"--{split}", *(str(corpus / f"{split}.{s}") for s in suffixes))
    ]
    settings = [f"training.{key}={value}" for key, value in RUN.items() if key != "max_steps"]
    assert (
        main(
            [
                "align",
                "tune",
                encoder,
                *text,
                *gold,
                f"--output={tuned}",
                "states.layer=1",
                "training.max_steps=4",
                *settings,
            ]
        )
        == 0
    )
    told = capsys.readouterr().out
    assert "test, before: AER" in told
    assert "test, after: AER" in told

    links = tmp_path / "links"
    assert main(["align", "run", str(tuned), *test, f"--output={links}", "--device=cpu"]) == 0
    saved = links.read_text()
    assert len(saved.splitlines()) == 60
    threshold = EncoderStates.load(tuned).threshold
    given = ["--read", "weights=states", "layer=1", f"--threshold={threshold}"]
    assert main(["align", "run", str(tuned), *test, f"--output={links}", "--device=cpu", *given]) == 0
    assert links.read_text() == saved
    for options, message in (
        (["--read", "layer=9"], "`layer` must be from -3 to 2"),
        (["--read", "heads=0"], "`heads` is for cross-attention"),
        (["--read", "source_language=en"], "`source_language` is for tokenizers with language codes"),
        (["--symmetrize=union"], "`symmetrize` must be 'intersection'"),
        (["--null"], "`null` needs a model with NULL"),
    ):
        assert main(["align", "run", str(tuned), *test, *options]) == 1
        assert message in capsys.readouterr().err


def test_select_says_what_it_needs(corpus, tmp_path, capsys):
    folder = tmp_path / "marian"
    text_model("marian", "stock").save_pretrained(folder)
    bpe_tokenizer().save_pretrained(folder)
    text = [f"--source={corpus / 'dev.en'}", f"--target={corpus / 'dev.de'}"]
    assert main(["align", "select", str(folder), *text]) == 1
    assert "give them with --gold, or --read weights=states" in capsys.readouterr().err
    assert main(["align", "select", str(folder), *text, "--read", "weights=states"]) == 0
    assert EncoderStates.load(folder)
    gold = f"--gold={corpus / 'dev.align'}"
    assert main(["align", "select", str(folder), *text, gold]) == 0
    ranked = select(str(folder), corpus / "dev.en", corpus / "dev.de", gold=corpus / "dev.align")
    assert {type(reading) for reading, _ in ranked} == {Seq2SeqAttention, EncoderStates}
    assert main(["align", "select", str(corpus / "encoder"), *text, gold, "--read", "weights=attention"]) == 1
    assert "is an encoder: it has states and no attention" in capsys.readouterr().err


def test_a_dry_run_tells_what_would_be_done_and_leaves_nothing(corpus, tmp_path, capsys):
    found = EncoderJob.train(made(corpus, tmp_path / "none"), dry_run=True)
    assert found["steps"] == 4
    assert found["trained_parameters"] == found["parameters"]
    assert not (tmp_path / "none").exists()
    assert "counts: iteration" not in capsys.readouterr().out
