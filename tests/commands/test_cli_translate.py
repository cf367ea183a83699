"""`attncal translate`: files, scores, JSON, and links equal to those of `attncal align run`."""

import copy
import gzip
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import scatter
from seq2seq_helpers import SOURCES, bpe_tokenizer, text_model

from hf_attncal.alignment import Seq2SeqAttention
from hf_attncal.data.words import WordTokens
from hf_attncal.inference import reading
from hf_attncal.inference.translation import translate_lines
from hf_attncal.models.configuration_mask_align import MaskAlignConfig
from hf_attncal.models.modeling_mask_align import MaskAlignModel

LINES = [*SOURCES[:4], "", "  ", "geht nach München", *SOURCES[4:]]
TEXT = "".join(f"{line}\n" for line in LINES)
SEARCH = ("--device", "cpu", "--beams", "2", "max_new_tokens=12", "--batch-size", "3")


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A random calibrated model in float64, of whose translations some end and some are cut off."""
    folder, tokenizer = tmp_path_factory.mktemp("translator"), bpe_tokenizer()
    model = copy.deepcopy(text_model("bart", "ours")).eval()
    model.final_logits_bias[0, tokenizer.eos_token_id] = 4
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    options = {"num_beams": 2, "max_new_tokens": 12}
    found = translate_lines(model, tokenizer, LINES, scores=True, **options)
    assert len({line.text for line in found}) > 5
    return SimpleNamespace(folder=str(folder), found=found, texts=[line.text for line in found])


@pytest.fixture(scope="module")
def word_aligner(tmp_path_factory):
    """A random Mask-Align model of fewer positions than some lines have tokens."""
    folder, tokenizer = tmp_path_factory.mktemp("word_aligner"), bpe_tokenizer()
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 2, "ffn_dim": 16}
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 10}
    sizes |= {"alignment_threshold": 0.01}
    torch.manual_seed(2)
    model = MaskAlignModel(MaskAlignConfig(**sizes)).double()
    scatter(model, 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def chosen_attention(translator):
    """Settings that `attncal align select` saved with the translator; they differ from the default."""
    path = Seq2SeqAttention(2, (1,), shift=False).save(translator.folder)
    yield path
    path.unlink()


def text_of(lines) -> str:
    return "".join(f"{line}\n" for line in lines)


# ---- files ----


def test_from_a_file_to_a_file(attncal, translator, tmp_path):
    source, output = tmp_path / "source.gz", tmp_path / "translations"
    source.write_bytes(gzip.compress(TEXT.encode()))
    assert attncal("translate", translator.folder, *SEARCH, text=TEXT) == (0, text_of(translator.texts), "")
    files = ("--source", str(source), "--output", str(output))
    assert attncal("translate", translator.folder, *SEARCH, *files) == (0, "", "")
    assert output.read_text() == text_of(translator.texts)
    assert {path.name for path in tmp_path.iterdir()} == {source.name, output.name}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--alignments .", "--alignments . is a folder"),
        (
            "--alignments -",
            "--format text has no place for links. Give them a file with --alignments FILE, or choose --format json.",
        ),
        ("--source {0} --output {0}", "would overwrite {0}, the same file"),
        ("--source {0} --alignments {0}", "--alignments {0} would overwrite {0}, the same file"),
        ("--output {1} --alignments {1}", "--alignments {1} would overwrite the file of --output"),
        ("--output {1} --alignments {1}.partial", "would overwrite the file of --output"),
        ("--output {1} --alignments {1}/config.json", "{1}/config.json would overwrite a file of --output {1}"),
        ("--alignments {1} --too-long truncate", "With --too-long truncate, links need a word aligner"),
    ],
)
def test_impossible_options_are_refused_before_the_model_is_loaded(attncal, tmp_path, arguments, message):
    source, new = tmp_path / "source", tmp_path / "new"
    source.write_text("a\n")
    status, out, err = attncal("translate", "no/such/model", *arguments.format(source, new).split())
    assert (status, out) == (1, "")
    assert message.format(source, new) in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [source]


# ---- scores, JSON ----


def test_scores_stand_before_the_translation(attncal, translator):
    status, out, err = attncal("translate", translator.folder, *SEARCH, "--scores", text=TEXT)
    assert (status, err) == (0, "")
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert [text for _, text in rows] == translator.texts
    for (score, _), expected in zip(rows, translator.found, strict=True):
        assert score == ("" if expected.score is None else f"{expected.score:.4f}")
    assert rows[LINES.index("")] == ["", ""]


@pytest.mark.parametrize("penalty", ["1", "-0.5"])
def test_json_is_one_object_a_line(attncal, translator, penalty):
    options = ("--format", "json", f"length_penalty={penalty}")
    status, out, err = attncal("translate", translator.folder, *SEARCH, *options, text=TEXT)
    assert (status, err) == (0, "")
    assert '"source": "geht nach München"' in out  # readable, as it is
    rows = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [row["source"] for row in rows] == LINES
    assert all(list(row) == ["source", "translation", "score", "tokens", "token_scores"] for row in rows)
    for row, expected in zip(rows, translator.found, strict=True):
        if row["score"] is None:
            assert row == {"source": row["source"], "translation": "", "score": None, "tokens": [], "token_scores": []}
            continue
        assert row["score"] == pytest.approx(sum(row["token_scores"]) / len(row["tokens"]) ** float(penalty), rel=1e-5)
        if penalty == "1":
            assert (row["translation"], row["tokens"]) == (expected.text, list(expected.tokens))
            assert row["token_scores"] == pytest.approx(expected.token_scores, abs=1e-6)


# ---- links ----


@pytest.fixture
def aligned(attncal, translator, tmp_path):
    """`attncal align run` on the lines and their translations: (model, options) -> standard output."""

    def run(model: str, *options: str) -> str:
        for name, lines in (("source", LINES), ("target", translator.texts)):
            (tmp_path / name).write_text(text_of(lines))
        sides = ("--source", str(tmp_path / "source"), "--target", str(tmp_path / "target"))
        status, out, err = attncal("align", "run", model, "--device", "cpu", *sides, *options)
        assert (status, err) == (0, "")
        return out

    return run


@pytest.mark.parametrize("by", ["model", pytest.param("aligner", marks=pytest.mark.slow)])
def test_links_are_those_of_align_run(attncal, translator, word_aligner, chosen_attention, aligned, tmp_path, by):
    model, options = (translator.folder, ()) if by == "model" else (word_aligner, ("--aligner", word_aligner))
    links = tmp_path / "links"
    command = ("translate", translator.folder, *SEARCH, *options)
    assert attncal(*command, "--alignments", str(links), text=TEXT) == (0, text_of(translator.texts), "")
    expected = aligned(model)
    assert links.read_text() == expected
    rows = expected.split("\n")[:-1]
    pairs = zip(LINES, translator.texts, strict=True)
    assert [bool(row) for row in rows] == [bool(source.split() and target.split()) for source, target in pairs]
    assert len(set(rows)) > 5

    expected = [json.loads(line) for line in aligned(model, "--format", "json").split("\n")[:-1]]
    for place in (("--alignments", "-"), ("--alignments", str(links)), () if options else ("--alignments", "-")):
        links.unlink(missing_ok=True)
        status, out, err = attncal(*command, "--format", "json", *place, text=TEXT)
        assert (status, err) == (0, "")
        for line, alignment in zip(out.split("\n")[:-1], expected, strict=True):
            assert json.loads(line)["alignment"] == alignment
        if str(links) in place:
            assert links.read_text().split("\n")[:-1] == rows


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_translation_of_more_tokens_than_positions_has_no_links_and_the_next_has(
    attncal, translator, aligned, tmp_path, monkeypatch, form
):
    """A text that the model wrote may be split into more tokens than it wrote: the line is told, and nothing lost."""
    with_text = [n for n, text in enumerate(translator.texts) if text and LINES[n].strip()]
    long = {translator.texts[n] for n in (with_text[1], with_text[-1])}
    missing = [n for n in with_text if translator.texts[n] in long]
    expected = aligned(translator.folder).split("\n")[:-1]
    tokenize = reading.tokenize_words

    def tokenize_to_more(tokenizer, texts, *, target=False, **options):
        found = tokenize(tokenizer, texts, target=target, **options)
        much = WordTokens(*np.zeros((2, 5000), dtype=np.int64), 1)
        return [much if target and text in long else tokens for text, tokens in zip(texts, found, strict=True)]

    monkeypatch.setattr(reading, "tokenize_words", tokenize_to_more)
    links = tmp_path / "links"
    options = (*SEARCH, "--format", form, "--alignments", str(links))
    status, out, err = attncal("translate", translator.folder, *options, text=TEXT)
    assert (status, out.count("\n")) == (0, len(LINES))
    assert links.read_text() == text_of("" if n in missing else row for n, row in enumerate(expected))
    assert f"{len(missing)} of {len(LINES)} lines of the input: they have no links" in err
    assert f"(lines {', '.join(str(n + 1) for n in missing)})" in err
    if form == "json":
        assert [n for n, row in enumerate(out.splitlines()) if json.loads(row)["alignment"] is None] == missing


# ---- options that commands share ----


@pytest.mark.parametrize("command", ["translate", "align run", "align select"])
def test_threads_and_dtype_reach_the_model(attncal, translator, tmp_path, monkeypatch, command):
    types = []
    torch.set_num_threads(2)
    model = type(text_model("bart", "ours").base_model)
    forward = model.forward

    def watched(self, *arguments, **options):
        types.append((self.dtype, torch.get_num_threads()))
        return forward(self, *arguments, **options)

    (tmp_path / "text").write_text("a\n")
    (tmp_path / "gold").write_text("0-0\n")
    sides = ["--source", str(tmp_path / "text"), "--target", str(tmp_path / "text")]
    more = {"align select": [*sides, "--gold", str(tmp_path / "gold"), "--output", str(tmp_path)], "align run": sides}
    monkeypatch.setattr(model, "forward", watched)
    try:
        options = ["--device", "cpu", "--threads", "1", "--dtype", "bfloat16"]
        status, _, err = attncal(*command.split(), translator.folder, *options, *more.get(command, []), text="a\n")
    finally:
        torch.set_num_threads(1)  # as in every test
    assert status == 0, err
    assert set(types) == {(torch.bfloat16, 1)}
