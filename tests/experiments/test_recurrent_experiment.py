"""The measurements of recurrent models, on tiny random ones, and their tables from made-up results."""

import copy
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, randomized, sized, text_model
from transformers import DataCollatorForSeq2Seq

from hf_attncal import LuongConfig, LuongForConditionalGeneration, WordAligner
from hf_attncal.alignment import Seq2SeqAttention
from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import GoldAlignment, format_links
from hf_attncal.data.synthetic.planted import copied_words
from hf_attncal.data.tokenizer import null_token_id
from hf_attncal.inference.word_attention import SourceRows

SIZES = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "label_smoothing": 0.1}


@pytest.fixture(scope="module")
def recurrent(experiment):
    return experiment("recurrent_models")


def luong(tokenizer=None, **settings) -> LuongForConditionalGeneration:
    tokens = {name: value for name, value in sized(bpe_tokenizer()).items() if name.endswith("token_id")}
    torch.manual_seed(3)
    config = LuongConfig(vocab_size=len(tokenizer or bpe_tokenizer()), **SIZES, **tokens, **settings)
    return randomized(LuongForConditionalGeneration(config)).eval()


def with_uam(**settings):
    """A model with the alignment module, and its tokenizer."""
    tokenizer = copy.deepcopy(bpe_tokenizer())
    return luong(tokenizer, uam=True, null_token_id=null_token_id(tokenizer), **settings), tokenizer


def write(path: Path, lines) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """Folders of two trainings of a recurrent model, one of it without attention and one of Marian; the texts."""
    root = tmp_path_factory.mktemp("recurrent")
    models = {
        "luong_global": (luong(), 1),
        "luong_global2": (luong(), 2),
        "luong_none": (luong(attention_window=None, input_feeding=False), 1),
        "baseline": (text_model("marian", "stock"), 1),
        "seass_uam": (with_uam()[0], 1),
    }
    for name, (model, seed) in models.items():
        model.save_pretrained(root / name)
        (with_uam()[1] if name == "seass_uam" else bpe_tokenizer()).save_pretrained(root / name)
        config = {
            "training": {"seed": seed},
            "model": {"label_smoothing": 0.1},
            "evaluation": {"bleu_tokenize": "13a"},
        }
        log = [{"loss": 3.0, "step": 5}, *({"eval_loss": 1 / n + seed, "step": 10 * n} for n in (1, 2))]
        run = {"config": config, "steps": 20, "test": {"bleu": 10.0 + seed}, "log_history": log}
        (root / name / "results.json").write_text(json.dumps(run))
        write(root / name / "test.hypotheses.txt", TARGETS if seed == 1 else reversed(TARGETS))
    for stem, lines in (("en", SOURCES), ("de", TARGETS)):
        for split in ("val", "test_2016_flickr"):
            write(root / f"{split}.{stem}", lines)
    (root / "wpt03-enfr").mkdir()
    for split in ("dev", "test"):
        for suffix, lines in (("en", SOURCES), ("fr", TARGETS), ("align", (format_links(p.links) for p in PAIRS))):
            write(root / "wpt03-enfr" / f"{split}.{suffix}", lines)
    copied = [" ".join([*source.split()[:2], "unheard"]) for source in SOURCES]
    write(root / "test.src", SOURCES)
    write(root / "test.tgt", copied)
    texts = {"reference": copied, "generated": TARGETS}
    pairs = {text: list(zip(SOURCES, targets, strict=True)) for text, targets in texts.items()}
    return SimpleNamespace(root=root, pairs=pairs)


def run(recurrent, monkeypatch, desk, output: Path, *arguments: str) -> None:
    names = [arguments[n] for n in range(1, len(arguments))]
    models = [text for name in names for text in ("--model", f"{name.rstrip('2')}={desk.root / name}")]
    command = ["recurrent_models.py", arguments[0], "--data", str(desk.root), "--output", str(output), *models]
    if arguments[0] == "multi30k":
        command += ["--pictures", str(output / "pictures")]
    monkeypatch.setattr(sys, "argv", command)
    recurrent.main()


@pytest.mark.slow
def test_by_length_and_while_they_learn(recurrent, monkeypatch, desk, tmp_path):
    run(recurrent, monkeypatch, desk, tmp_path, "multi30k", "luong_global", "luong_global2", "luong_none", "baseline")
    result = json.loads((tmp_path / "multi30k.json").read_text())
    assert list(result)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    assert {"luong_global_seed2/model.safetensors", "baseline_seed1/test.hypotheses.txt", "val.en"} <= set(
        result["data_sha256"]
    )
    first, second = result["variants"]["luong_global"]
    assert (first["seed"], second["seed"], first["test_bleu"], second["test_bleu"]) == (1, 2, 11, 12)
    assert first["curve"] == [
        {"step": 10, "perplexity": pytest.approx(math.exp(2))},
        {"step": 20, "perplexity": pytest.approx(math.exp(1.5))},
    ]
    assert sum(group["sentences"] for group in first["by_length"]) == len(SOURCES)
    assert all(group["bleu"] == pytest.approx(100) for group in first["by_length"])
    assert all(group["bleu"] < 100 for group in second["by_length"])
    for name in ("perplexity", "lengths"):
        assert (tmp_path / "pictures" / f"recurrent_{name}.png").read_bytes().startswith(b"\x89PNG")


def test_perplexity_is_without_smoothing(recurrent, desk):
    tokenizer, model = bpe_tokenizer(), luong(dropout=0.0)
    model.config.label_smoothing = 0.0
    nats = tokens = 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        example = {"input_ids": tokenizer(source)["input_ids"], "labels": tokenizer(target)["input_ids"]}
        batch = DataCollatorForSeq2Seq(tokenizer, model)([example])
        with torch.no_grad():
            nats += model(**batch).loss.item() * len(example["labels"])
        tokens += len(example["labels"])
    frozen = recurrent.Frozen("luong_global", desk.root / "luong_global", 1)
    found = recurrent.dev_perplexity(frozen, desk.root, batch_size=4)
    assert found["tokens"] == tokens
    assert found["perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-5)


def test_groups_of_lengths(recurrent):
    lengths = [3, 3, 3, 3, 5, 6, 7, 8, 9]
    groups = recurrent.length_groups(lengths, 3)
    assert groups == [(3, 3), (4, 7), (8, 9)]
    assert recurrent.length_groups([4] * 5, 3) == [(4, 4)]
    many = list(range(1, 101)) * 3
    assert [sum(a <= n <= b for n in many) for a, b in recurrent.length_groups(many, 5)] == pytest.approx(
        [60] * 5, abs=3
    )


@pytest.mark.slow
def test_error_rates_of_attention_by_choices_of_dev(recurrent, monkeypatch, desk, tmp_path):
    run(recurrent, monkeypatch, desk, tmp_path, "aer", "luong_global", "baseline")
    for name in ("luong_global", "baseline"):
        result = json.loads((tmp_path / "aer" / f"wpt03-enfr_{name}_seed1.json").read_text())
        assert result["steps"] == 20
        best, by_rule = (result["attention"][key] for key in ("attention", "attention, threshold"))
        assert by_rule["settings"] == best["settings"]
        assert by_rule["dev"]["aer"] <= best["dev"]["aer"]
        assert by_rule["test"]["aer"] == by_rule["dev"]["aer"]  # the same pairs here
        assert by_rule["test"]["interval"] is not None
        if name == "luong_global":  # one head is its own mean
            assert set(result["attention"]) == {"attention", "attention, threshold"}
    assert result["config"]["model"]["model_type"] == "marian"


@pytest.mark.slow
def test_error_rates_of_the_alignment_module(recurrent, monkeypatch, desk, tmp_path):
    run(recurrent, monkeypatch, desk, tmp_path, "aer", "seass_uam")
    result = json.loads((tmp_path / "aer" / "wpt03-enfr_seass_uam_seed1.json").read_text())
    rows = result["attention"]
    names = {f"{kind}{rule}" for kind in ("attention", "uam") for rule in ("", ", threshold")}
    assert names <= set(rows) <= names | {"uam, threshold, nulls"}
    for name in names:
        assert rows[name]["settings"]["weights"] == name.partition(",")[0]
    gold, settings = recurrent.read_gold(desk.root, "wpt03-enfr")[0]["test"], rows["uam, threshold"]["settings"]
    aligner = WordAligner(*with_uam(), Seq2SeqAttention.from_dict(settings))
    links = [set(found.links) for found in aligner.align(gold.pairs, threshold=rows["uam, threshold"]["threshold"])]
    hits = sum(
        len(found & pair.sure) + len(found & pair.possible) for found, pair in zip(links, gold.links, strict=True)
    )
    claimed = sum(len(found) + len(pair.sure) for found, pair in zip(links, gold.links, strict=True))
    assert rows["uam, threshold"]["test"]["aer"] == pytest.approx(1 - hits / claimed)
    difference = rows["uam, threshold"]["test"]["aer"] - rows["attention, threshold"]["test"]["aer"]
    assert result["uam_minus_attention"]["all"]["aer"] == pytest.approx(difference)
    for text in result["uam_minus_attention"].values():
        assert text["interval"][0] <= text["aer"] <= text["interval"][1]


def test_links_of_words_that_are_no_copies(recurrent):
    """A link of two words that are spelled alike counts nowhere."""
    known = GoldAlignment(frozenset({(0, 0), (1, 2)}), frozenset({(0, 0), (1, 2), (2, 1)}))
    gold = Gold([("Paris is big", "Paris big est")], [known])
    (left,), found = recurrent.of_other_words(gold, [{(0, 0), (0, 1), (2, 1)}])
    assert (left.sure, left.possible, found) == ({(1, 2)}, {(1, 2)}, [{(0, 1)}])
    every, others = recurrent.score_links(gold, [{(0, 0), (1, 2), (2, 1)}])
    assert (every["proposed"], every["aer"]) == (3, 0.0)
    assert (others["proposed"], others["sure"], others["aer"]) == (1, 1, 0.0)


@pytest.mark.parametrize(
    ("threshold", "expected"), [(None, [{(0, 0)}, {(0, 0), (1, 1)}]), (0.3, [{(0, 0)}, {(0, 0)}])]
)
def test_source_words_that_null_steps_have(recurrent, monkeypatch, threshold, expected):
    """Of the first pair the second source word is left out: its `<null>` step has most of it."""
    weights = torch.tensor([[0.9, 0.0], [0.3, 0.4], [0.1, 0.5]])
    short = torch.tensor([[0.9, 0.0], [0.1, 0.2]])
    rows = [SourceRows(("x", "y", "<null>"), weights), SourceRows(("x", "y"), short)]
    monkeypatch.setattr(recurrent, "source_rows", lambda *_: rows)
    gold = Gold([("a b", "x y"), ("a b", "x y")], [])
    assert recurrent.links_beside_nulls(None, None, gold, threshold) == expected


def accuracy(model, tokenizer, settings: Seq2SeqAttention, pairs) -> float:
    """Of the links of each pair alone."""
    aligner, copies, right = WordAligner(model, tokenizer, settings), 0, 0
    for pair in pairs:
        links = aligner.align([pair])[0].links
        found = copied_words(*pair)
        copies, right = copies + len(found), right + sum(link in links for link in found)
    return right / copies


def test_copies_by_attention(recurrent, monkeypatch, desk, tmp_path):
    run(recurrent, monkeypatch, desk, tmp_path, "copies", "luong_global")
    result = json.loads((tmp_path / "copies" / "luong_global_seed1.json").read_text())
    assert set(result["alignment"]) == {"reference", "generated"}
    for text, pairs in desk.pairs.items():
        measured = result["alignment"][text]
        assert set(measured) == {"attention", "attention_after"}
        for name, shift in (("attention", False), ("attention_after", True)):
            expected = accuracy(luong(), bpe_tokenizer(), Seq2SeqAttention(0, shift=shift), pairs)
            assert measured[name]["accuracy"] == expected
            assert measured[name]["copies"] == sum(len(copied_words(*pair)) for pair in pairs)


def test_copies_by_the_alignment_module(recurrent, monkeypatch, desk, tmp_path):
    run(recurrent, monkeypatch, desk, tmp_path, "copies", "seass_uam")
    result = json.loads((tmp_path / "copies" / "seass_uam_seed1.json").read_text())
    assert result["config"]["model"]["uam"] is True
    model, tokenizer = with_uam()
    for text, pairs in desk.pairs.items():
        measured = result["alignment"][text]
        assert set(measured) == {"attention", "attention_after", "uam", "uam_minus_attention"}
        expected = accuracy(model, tokenizer, Seq2SeqAttention(0, shift=False, weights="uam"), pairs)
        assert measured["uam"]["accuracy"] == expected
        difference = measured["uam_minus_attention"]
        assert difference["accuracy"] == pytest.approx(expected - measured["attention"]["accuracy"])
        assert difference["interval"][0] <= difference["accuracy"] <= difference["interval"][1]
