"""The job for summaries, from text to a scored model that truncates what it was trained to truncate."""

import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_attncal.data.corpora import load_parallel, tokenize_pairs
from hf_attncal.data.tokenizer import SPECIAL_TOKENS, CopyTokenizer, train_bpe_tokenizer, train_word_tokenizer
from hf_attncal.inference.generation import longer_than, source_limit
from hf_attncal.inference.summarization import summarize_texts
from hf_attncal.inference.translation import translate_lines, translate_texts
from hf_attncal.metrics.rouge import rouge

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))
import train as script

SIDES = {"source": "src", "target": "tgt"}
NOUNS, VERBS = ("oil", "gold", "grain", "steel"), ("rises", "falls", "trades")
PAIRS = [
    (f"{noun} {verb} # pct on the {place} market today , traders said .", f"{noun} {verb} # pct")
    for noun in NOUNS
    for verb in VERBS
    for place in ("london", "paris")
]
LONG = ("steel falls # pct " + "and so on " * 20, "steel falls")
SIZES = {
    "luong": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "bidirectional": True},
    "marian": {
        **{f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")},
        **{"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 32},
    },
}
SIZES |= {"bart": SIZES["marian"], "discrete_transformer": SIZES["marian"]}


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Two files of training text, one with a source that is too long; dev, and a test with another such source."""
    folder = tmp_path / "data"
    folder.mkdir()
    texts = {"one": PAIRS, "two": [*PAIRS[:5], LONG], "dev": PAIRS[:4], "test": [*PAIRS[3:8], LONG]}
    for name, pairs in texts.items():
        for side, lines in zip(SIDES.values(), zip(*pairs, strict=True), strict=True):
            (folder / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def arguments(corpus: Path, tmp_path: Path, backbone: str = "luong", *overrides: str, **model) -> list[str]:
    """The command line of a run of four optimiser steps."""
    data = {name: {"source": f"{name}.src", "target": f"{name}.tgt"} for name in ("dev", "test")}
    data["train"] = {side: [f"{name}.{end}" for name in ("one", "two")] for side, end in SIDES.items()}
    values = {
        "data": {**data, "max_source_length": 24, "max_length": 12},
        "tokenizer": {"vocab_size": 90},
        "model": {"backbone": backbone, **SIZES[backbone], **model},
        "training": {
            "output_dir": str(tmp_path / "run"),
            "max_steps": 4,
            "tokens_per_batch": 256,
            "learning_rate": 1e-2,
            "logging_steps": 1,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_strategy": "no",
            "disable_tqdm": True,
        },
        "evaluation": {"rouge_tokenize": "none", "dev_lines": 3, "num_beams": 2, "max_new_tokens": 8},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"job": "summarization"} | values), encoding="utf-8")
    return ["--config", str(file), "--data", str(corpus), *overrides]


@pytest.mark.processor
@pytest.mark.half("backbone", "switches")
@pytest.mark.parametrize(
    ("backbone", "switches"),
    [*((backbone, {}) for backbone in SIZES), ("luong", {"selective_gate": True, "uam": True})],
)
def test_text_to_scored_model(backbone, switches, corpus, tmp_path, capsys):
    with pytest.warns(UserWarning, match=r"truncated to 24.*1"):
        results = script.main(arguments(corpus, tmp_path, backbone, **switches))
    run, printed = tmp_path / "run", capsys.readouterr().out
    assert results == json.loads((run / "results.json").read_text(encoding="utf-8"))
    train = {"max_length": 12, "max_source_length": 24, "kept": 30, "too_long": 0, "truncated": 1}
    assert results["pairs"]["train"].items() >= train.items()
    assert results["pairs"]["dev"]["truncated"] == 0
    assert (results["dev"]["truncated"], results["test"]["truncated"]) == (0, 1)
    assert "train: Kept 30 of 30 pairs. Sources truncated to 24 tokens: 1 (raise" in printed
    assert f"ROUGE-Lsum {results['test']['rougeLsum']:.2f}  ROUGE|score:F1|tok:none|stem:no" in printed
    assert "; 1 of 6 sources cut to 24 tokens" in printed
    logged = [entry for entry in results["log_history"] if "eval_rouge2" in entry]
    assert [entry["step"] for entry in logged if "eval_signature" in entry] == [2, 4]

    # Whoever loads the model truncates as the training did.
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(run), AutoTokenizer.from_pretrained(run)
    assert source_limit(model, tokenizer) == 24
    assert len(tokenizer(LONG[0], truncation=True)["input_ids"]) == 24
    lines, references = ((corpus / f"test.{end}").read_text().splitlines() for end in SIDES.values())
    with pytest.raises(ValueError, match=r"line 6 .*at most 24"):
        translate_texts(model, tokenizer, lines)
    again = translate_texts(model, tokenizer, lines, num_beams=2, max_new_tokens=8, too_long="truncate")
    assert again == (run / "test.hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert again == summarize_texts(model, tokenizer, lines)  # as the saved model says
    score = rouge(again, references, "none")
    assert (results["test"]["rouge1"], results["test"]["signature"]) == (score.rouge1, score.signature)
    longer = [f"{LONG[0]} steel rises"]
    assert again[-1:] == translate_texts(model, tokenizer, longer, num_beams=2, max_new_tokens=8, too_long="truncate")

    card = ModelCard.load(run / "README.md")
    assert card.data.pipeline_tag == "summarization"
    assert "`one.src`, `two.src`, `one.tgt`, `two.tgt`: 30 pairs" in card.text
    assert "| ROUGE-2 on test | " in card.text
    assert "truncation=True" in card.text
    assert ("`uam`: `True`" in card.text) == ("Kiyono et al." in card.text) == ("uam" in switches)


@pytest.mark.slow
def test_it_learns(corpus, tmp_path):
    """Which words a headline takes from its text."""
    overrides = ("training.max_steps=200", "training.eval_strategy=no", "model.dropout=0.0", "training.bf16=false")
    overrides += ("training.tokens_per_batch=1024", "training.logging_steps=20", "model.d_model=64")
    with pytest.warns(UserWarning, match="Sources truncated"):
        results = script.main(arguments(corpus, tmp_path, "luong", *overrides, selective_gate=True))
    assert results["test"]["rouge2"] > 80


def test_a_summary_that_is_too_long_is_left_out_and_its_source_not_counted(corpus):
    tokenizer = train_bpe_tokenizer([line for pair in PAIRS for line in pair], 90)
    (corpus / "long.src").write_text(f"{LONG[0]}\n{LONG[0]}\noil\n\n", encoding="utf-8")
    (corpus / "long.tgt").write_text(f"{LONG[0]}\n{LONG[1]}\noil\noil\n", encoding="utf-8")
    pairs = load_parallel({"source": corpus / "long.src", "target": corpus / "long.tgt"})
    with (
        pytest.warns(UserWarning, match="Sources truncated to 24"),
        pytest.warns(UserWarning, match="more than 12 tokens"),
    ):
        tokenized, report = tokenize_pairs(pairs, tokenizer, 12, 24)
    assert (report.kept, report.too_long, report.empty, report.truncated) == (2, 1, 1, 1)
    whole = tokenizer(LONG[0])["input_ids"]
    assert tokenized["input_ids"][0] == [*whole[:23], tokenizer.eos_token_id]
    assert tokenized["length"][0] == 24
    assert longer_than(24, tokenizer, pairs["source"]) == {0: len(whole), 1: len(whole)}


@pytest.mark.parametrize(
    ("backbone", "switches"),
    [
        ("marian", {"calibration": "gated"}),
        pytest.param("bart", {}, marks=pytest.mark.slow),
        pytest.param("luong", {"uam": True}, marks=pytest.mark.slow),
    ],
)
def test_words_without_an_embedding_are_copied(backbone, switches, corpus, tmp_path):
    """From text to a model that writes words that it has no number for; trained on one batch, so that it is exact."""
    names = ("Zora", "Yoda", "Xenia", "Wanda")
    for split in ("one", "two", "dev", "test"):
        pairs = [(f"{name} {verb} gold , traders said .", f"{name} {verb}") for verb in VERBS for name in names]
        for side, lines in zip(SIDES.values(), zip(*pairs, strict=True), strict=True):
            (corpus / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    values = {"copy": True, "max_copied_tokens": 2, **switches, "dropout": 0.0, "d_model": 32}
    overrides = ["tokenizer.kind=words", "tokenizer.vocab_size=11", "training.max_steps=120", "training.bf16=false"]
    overrides += ["training.tokens_per_batch=1024", "training.eval_strategy=no", "training.logging_steps=20"]
    results = script.main(arguments(corpus, tmp_path, backbone, *overrides, **values))
    run = tmp_path / "run"
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert not tokenizer.get_vocab().keys() & set(names)
    model = AutoModelForSeq2SeqLM.from_pretrained(run)
    assert (model.config.max_copied_tokens, model.config.unk_token_id) == (2, tokenizer.unk_token_id)
    assert len(tokenizer) == model.config.vocab_size
    assert results["test"]["rouge1"] > 99
    assert (run / "test.hypotheses.txt").read_text(encoding="utf-8").splitlines()[:2] == ["Zora rises", "Yoda rises"]
    (first,) = translate_lines(model, tokenizer, ["Zelda falls gold , traders said ."], scores=True)
    assert first.text == "Zelda falls"
    assert first.tokens == ("Zelda", "falls", "</s>")
    assert all(score > -1 for score in first.token_scores)


def test_words_after_the_truncation_have_no_slot(corpus):
    """A label in a slot of a word that is not read could not be predicted."""
    tokenizer = train_word_tokenizer(["the dog sees a cat"], 8, special_tokens=SPECIAL_TOKENS)
    copies = CopyTokenizer(tokenizer, SimpleNamespace(vocab_size=len(tokenizer), max_copied_tokens=2))
    (corpus / "long.src").write_text("Rex sees the dog Rexa\nOtto Otto Anna Emil\n", encoding="utf-8")
    (corpus / "long.tgt").write_text("Rexa sees Rex\nEmil Anna Otto\n", encoding="utf-8")
    pairs = load_parallel({"source": corpus / "long.src", "target": corpus / "long.tgt"})
    with (
        pytest.warns(UserWarning, match=r"truncated to 5.*1"),
        pytest.warns(UserWarning, match=r"without a slot: 1 \(raise"),
    ):
        found, report = tokenize_pairs(pairs, tokenizer, 12, 5, copies)
    first, unknown, sees = len(tokenizer), tokenizer.unk_token_id, tokenizer.convert_tokens_to_ids("sees")
    assert report.truncated == 1
    assert found["extended_input_ids"][0][:2] == [first, sees]
    assert found["labels"] == [[unknown, sees, first, 0], [unknown, first + 1, first, 0]]
    assert [ids[0] for ids in found["input_ids"]] == [unknown, unknown]
    with warnings.catch_warnings():  # a next text has a count of its own
        warnings.simplefilter("error")
        tokenize_pairs(pairs.select([0]), tokenizer, 12, 6, copies)


def test_a_model_has_positions_for_the_sources(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"`data.max_source_length`.*\(32\).*got 33"):
        script.main(arguments(corpus, tmp_path, "marian", "data.max_source_length=33"))
    assert not (tmp_path / "run").exists()
