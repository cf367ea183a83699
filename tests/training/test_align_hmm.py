"""Jobs with the statistical aligner: by itself, as the size "hmm", and as the guide of a network.

This file is both the test and, run as a script by `torch.distributed.run`, each of two processes.
"""

import json
import warnings
from itertools import pairwise

import pytest
from datasets import Dataset
from helpers import assert_layouts_know
from runs import write_corpus

from hf_attncal import train_aligner
from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.aligner_job import MIN_PAIRS_TO_LEARN, AlignerConfig, AlignerJob, AlignerTrainer
from hf_attncal.alignment.gold import calibrate_links, score_aligner
from hf_attncal.alignment.probabilities import saved_probabilities
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel
from hf_attncal.training.text import held_out_rows, hold_out

# What is trained for a few steps is bad, and is said to be.
pytestmark = pytest.mark.filterwarnings("ignore:The aligner is probably bad")

TINY_MODEL = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 2, "ffn_dim": 16}
TINY_RUN = {"max_steps": 4, "tokens_per_batch": 300, "warmup_steps": 2, "bf16": False, "logging_steps": 2}
TINY_RUN |= {"eval_steps": 2, "save_steps": 2, "agreement_warmup_steps": 2}

ENDS = ("en", "de", "align")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), 400)


def values(corpus, output, guide=False, **sections) -> dict:
    """Settings of a run as plain data; a guided one of a tiny network unless `sections` say otherwise."""

    def gold(name):
        return {"source": f"{name}.en", "target": f"{name}.de", "gold": f"{name}.align"}

    train = {"source": "train.en", "target": "train.de"} | ({"guide": "train.align"} if guide else {})
    data = {"root": str(corpus), "lowercase": True, "train": train, "dev": gold("dev"), "test": gold("test")}
    plain = {"data": data | {"held_out_pairs": 40}, "tokenizer": {"vocab_size": 500}, "model": TINY_MODEL}
    plain["training"] = TINY_RUN
    plain |= sections
    plain["training"] = {"output_dir": str(output), "disable_tqdm": True, "use_cpu": True} | plain["training"]
    return plain


def counting_alone(corpus, output, **sections) -> AlignerConfig:
    return AlignerConfig.make(values(corpus, output, **{"model": {"size": "hmm"}, "training": {}} | sections))


def guided(corpus, output, guide=False, **sections) -> AlignerConfig:
    return AlignerConfig.make(values(corpus, output, guide, **sections))


# ---- counts alone ----


@pytest.mark.parametrize(("pairs", "too_few"), [(3, True), (MIN_PAIRS_TO_LEARN, False)])
def test_a_text_that_is_too_small_gets_a_warning(pairs, too_few, tmp_path):
    files = [tmp_path / "text.en", tmp_path / "text.de"]
    for file, words in zip(files, (("old", "house"), ("alt", "Haus")), strict=True):
        file.write_text("".join(f"{words[n % 2]} {n}\n" for n in range(pairs)), encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train_aligner(source=files[0], target=files[1], output=tmp_path / "aligner", config="hmm")
    assert any(f"{pairs} sentence pairs" in str(warning.message) for warning in caught) == too_few


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """The folder of a finished run, and what it returned."""
    folder = tmp_path_factory.mktemp("hmm") / "run"
    return folder, AlignerJob.train(counting_alone(corpus, folder))


def test_results_have_settings_text_scores_and_every_iteration(finished, corpus):
    folder, results = finished
    saved = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(results))
    assert saved["config"]["model"] == {"size": "hmm"}
    assert saved["config"]["counts"]["without_jumps"] == 3
    assert (saved["sentence_pairs"]["train"]["kept"], saved["sentence_pairs"]["held_out"]["kept"]) == (360, 40)
    assert set(saved["data_sha256"]) == {
        f"{name}.{suffix}" for name in ("train", "dev", "test") for suffix in ("en", "de", "align")
    } - {"train.align"}
    assert [entry["iteration"] for entry in saved["log_history"]] == list(range(1, saved["steps"] + 1))
    for direction in ("forward", "backward"):
        likelihoods = [entry[f"{direction}_log_likelihood"] for entry in saved["log_history"]]
        assert likelihoods[-1] > likelihoods[0]
    assert str(corpus) not in json.dumps(saved)
    assert not list(folder.glob("checkpoint-*"))
    assert json.loads((folder / "run.json").read_text())["finished"] is True


def test_the_folder_aligns_with_the_reported_scores(finished, corpus):
    folder, results = finished
    aligner = WordAligner.from_pretrained(folder, device="cpu")
    assert isinstance(aligner.model, HMMAlignModel)
    config = aligner.model.config
    assert (config.lowercase, config.entries) == (True, results["entries"])
    assert (config.symmetrization, config.alignment_threshold) == (
        results["dev"]["symmetrization"],
        results["dev"]["threshold"],
    )
    for name in ("dev", "test"):
        gold = Gold.read(*(corpus / f"{name}.{end}" for end in ("en", "de", "align")))
        assert score_aligner(aligner, gold).aer == pytest.approx(results[name]["aer"])
    assert results["test"]["aer"] < 0.2


def test_scores_of_links_are_probabilities_that_were_learned_on_dev(finished, corpus):
    folder, results = finished
    saved = saved_probabilities(folder)
    learned = calibrate_links(WordAligner.from_pretrained(folder), Gold.read(*(corpus / f"dev.{end}" for end in ENDS)))
    assert saved == learned.probabilities
    for when in ("before", "after"):
        assert results["dev"]["probabilities"][when]["ece"] == pytest.approx(getattr(learned, when).ece)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "## Link probabilities" in card
    assert f"{100 * learned.after.ece:.1f} |" in card


def test_dev_links_that_cannot_calibrate_leave_scores_unchanged(tmp_path):
    write_corpus(tmp_path, 200)
    words = [(tmp_path / f"dev.{side}").read_text().splitlines() for side in ENDS[:2]]
    everything = (
        " ".join(f"{i}p{j}" for i in range(len(s.split())) for j in range(len(t.split())))
        for s, t in zip(*words, strict=True)
    )
    (tmp_path / "dev.align").write_text("".join(f"{line}\n" for line in everything))
    config = counting_alone(tmp_path, tmp_path / "run", counts={"without_jumps": 1, "with_jumps": 0})
    with pytest.warns(UserWarning, match="Link probabilities cannot be learned"):
        results = AlignerJob.train(config)
    assert "probabilities" not in results["dev"]
    assert saved_probabilities(tmp_path / "run") is None
    assert "## Link probabilities" not in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_a_given_symmetrization_and_the_prior_are_kept(corpus, tmp_path):
    model = {"size": "hmm", "symmetrization": "union", "lexical_prior": 0.01, "max_jump": 5}
    config = counting_alone(corpus, tmp_path, model=model, counts={"without_jumps": 1, "with_jumps": 1})
    results = AlignerJob.train(config)
    assert results["dev"]["symmetrization"] == "union"
    assert results["steps"] == 2
    saved = HMMAlignModel.from_pretrained(tmp_path)
    assert (saved.config.lexical_prior, saved.config.max_jump, len(saved.forward_jumps)) == (0.01, 5, 11)


def test_without_gold_there_is_no_score(corpus, tmp_path):
    config = counting_alone(corpus, tmp_path / "run", counts={"without_jumps": 1, "with_jumps": 0})
    config.data.dev = config.data.test = None
    results = AlignerJob.train(config)
    assert not {"dev", "test"} & results.keys()
    assert results["sentence_pairs"]["train"]["kept"] == 360
    assert WordAligner.from_pretrained(tmp_path / "run", device="cpu").align([("the man", "der mann")])


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"counts": {"iterations": 3}}, "unknown key `counts.iterations`"),
        ({"counts": {"without_jumps": 0}}, "`counts.without_jumps` must be .*, got 0"),
        ({"counts": {"with_jumps": -1}}, "`counts.with_jumps` must be .*, got -1"),
        ({"counts": {"guide": "yes"}}, "`counts.guide` must be .*, got 'yes'"),
        ({"counts": {"link_above": 1.5}}, r"`counts.link_above` must be in \[0, 1\], got 1.5"),
        ({"counts": {"link_above": float("nan")}}, "`counts.link_above` must be a number, got nan"),
        ({"model": {"size": "hmm", "d_model": 16}}, "unknown key `model.d_model`"),
        ({"model": {"size": "hmm", "max_jump": 0}}, "`model.max_jump` must be >= 1, got 0"),
        ({"model": {"size": "hmm", "lexical_prior": -1.0}}, "`model.lexical_prior` must be > 0 .*, got -1.0"),
        ({"model": {"lexical_prior": 0.1}}, "unknown key `model.lexical_prior`"),
    ],
)
def test_bad_settings_are_named(corpus, tmp_path, sections, message):
    with pytest.raises(ValueError, match=message):
        AlignerConfig.make(values(corpus, tmp_path, **sections))


@pytest.mark.parametrize("key", ["model.init_from", "data.train.guide"])
def test_settings_that_counting_ignores_are_refused(corpus, tmp_path, key):
    """A model to go on from, and given links."""
    HMMAlignConfig().save_pretrained(tmp_path)
    model = {"init_from": str(tmp_path)} if key == "model.init_from" else {}
    with pytest.raises(ValueError, match=f"`{key}`.*network.*got"):
        AlignerConfig.make(values(corpus, tmp_path, guide=not model, model={"size": "hmm"} | model, training={}))


# ---- counts as a guide ----


def guided_losses(results) -> list[float]:
    return [entry["guided_loss"] for entry in results["log_history"] if "guided_loss" in entry]


def test_the_counts_guide_the_network_and_are_saved_with_it(corpus, tmp_path):
    run = tmp_path / "run"
    results = AlignerJob.train(guided(corpus, run))
    assert len(guided_losses(results)) == 2
    assert all(loss > 0 for loss in guided_losses(results))
    counts = WordAligner.from_pretrained(run / "hmm", device="cpu")
    assert isinstance(counts.model, HMMAlignModel)
    assert counts.model.config.lowercase
    assert len(json.loads((run / "hmm" / "results.json").read_text())["log_history"]) == 9
    gold = Gold.read(corpus / "test.en", corpus / "test.de", corpus / "test.align")
    assert score_aligner(counts, gold).aer < 0.2
    assert WordAligner.from_pretrained(run, device="cpu").model.config.model_type == "mask_align"
    assert_layouts_know(run)


def links_given_to_the_network(config, monkeypatch) -> list[list[int]] | None:
    """Return the links that the Trainer gets, without training."""

    class HandedError(Exception):
        pass

    def hand(self, *args, train_dataset, **kwargs):
        raise HandedError(train_dataset["links"][:] if "links" in train_dataset.column_names else None)

    monkeypatch.setattr(AlignerTrainer, "__init__", hand)
    with pytest.raises(HandedError) as caught:
        AlignerJob.train(config)
    return caught.value.args[0]


def test_links_are_where_both_directions_agree(corpus, tmp_path, monkeypatch):
    few, many = (
        links_given_to_the_network(guided(corpus, tmp_path / str(tau), counts={"link_above": tau}), monkeypatch)
        for tau in (0.9, 0.1)
    )
    assert len(few) == len(many) == 360
    pairs = [[set(zip(row[::2], row[1::2], strict=True)) for row in rows] for rows in (few, many)]
    assert all(fewer <= more for fewer, more in zip(*pairs, strict=True))
    assert 360 < sum(map(len, pairs[0])) < sum(map(len, pairs[1]))


def test_links_that_are_given_come_before_the_counts(corpus, tmp_path):
    results = AlignerJob.train(guided(corpus, tmp_path, guide=True))
    assert len(guided_losses(results)) == 2
    assert not (tmp_path / "hmm").exists()


# ---- least_steps ----


def test_a_network_that_starts_from_an_encoder_reads_a_short_text_less_often():
    made = AlignerConfig.make({"preset": "small", "counts": {"encoder": "e5"}})
    assert (made.training["least_steps"], made.model["guide_weight"]) == (700, 4.0)
    assert AlignerConfig.make({"preset": "small"}).training["least_steps"] == 3000
    given = AlignerConfig.make({"preset": "small", "counts": {"encoder": "e5"}, "training": {"num_train_epochs": 5}})
    assert "least_steps" not in given.training


# ---- held-out pairs ----


def numbered(size: int) -> dict[str, Dataset]:
    return {"train": Dataset.from_dict({"source": [str(n) for n in range(size)]})}


@pytest.mark.parametrize(("size", "asked", "count"), [(1000, 40, 40), (1000, 500, 100), (95, 40, 9), (9, 5, 0)])
def test_held_out_pairs_are_spread_evenly(size, asked, count):
    rows = sorted(held_out_rows(numbered(size), asked))
    assert len(rows) == count
    if not count:
        return
    found = hold_out(numbered(size), rows)
    gaps = {later - earlier for earlier, later in pairwise(rows)}
    assert max(gaps) - min(gaps) <= 1
    assert rows[0] <= max(gaps) / 2
    assert size - 1 - rows[-1] <= max(gaps) / 2
    assert [int(n) for n in found["dev"]["source"]] == rows
    assert sorted([*map(int, found["train"]["source"]), *rows]) == list(range(size))


def test_nothing_is_held_out_where_there_is_a_dev():
    text = numbered(100) | {"dev": numbered(5)["train"]}
    assert held_out_rows(text, 10) == frozenset()


def test_given_links_stay_with_their_pairs_when_some_are_held_out(corpus, tmp_path, monkeypatch):
    """Each remaining pair has the links of its own line, all between its own tokens."""
    given = links_given_to_the_network(guided(corpus, tmp_path, guide=True), monkeypatch)
    lines = (corpus / "train.align").read_text().splitlines()
    rows = held_out_rows(numbered(len(lines)), 40)
    left = [line for row, line in enumerate(lines) if row not in rows]
    assert len(given) == len(left) == 360
    # A word has one token or more, so there are at least as many links of tokens as of words.
    assert all(len(row) // 2 >= len(line.split()) for row, line in zip(given, left, strict=True))
    assert any(len(row) // 2 != len(given[0]) // 2 for row in given)


# ---- two processes ----
