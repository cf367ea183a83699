"""`attncal align run`: one line of links for each pair, in files and in pipes."""

import gzip
import io
import json
import os
import re
import sys
import tracemalloc
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from helpers import TINY, scatter, tiny_stock_model
from picture_helpers import HOSTILE, SOURCE, TARGET, pictures_of

from hf_attncal.alignment import Seq2SeqAttention, WordAligner, WordAlignment
from hf_attncal.alignment.aligner_settings import READABLE, open_to_align
from hf_attncal.alignment.mask_align import MaskAlignSource
from hf_attncal.alignment.streaming import LINK_FORMATS, LinkStyle, align_windows
from hf_attncal.commands import main
from hf_attncal.commands.kinds import LinkFormat, Merging, WordLimits
from hf_attncal.data.texts import joined_pairs
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.data.words import SEPARATORS
from hf_attncal.inference.running import Running
from hf_attncal.io.streams import write_lines
from hf_attncal.models.configuration_mask_align import MaskAlignConfig
from hf_attncal.models.limits import SYMMETRIZATIONS
from hf_attncal.models.modeling_mask_align import MaskAlignModel

SOURCES = ["the old house", "", "a house", "the the the old old", "   ", "old house is a house", ""]
TARGETS = ["das alte Haus", "", "ein Haus", "das das", "das Haus", "altes Haus ist ein Haus", "\t"]
LINES = [f"{source} ||| {target}" for source, target in zip(SOURCES, TARGETS, strict=True)]


@pytest.fixture(scope="module")
def tokenizer():
    text = ["the old house is a house", "das alte Haus ist ein Haus", "altes ein ein das"]
    return train_bpe_tokenizer(text * 3, vocab_size=80)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tokenizer):
    """A folder with a tiny random Mask-Align model, and its aligner."""
    folder = tmp_path_factory.mktemp("mask_align")
    torch.manual_seed(2)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "attention_heads": 2, "ffn_dim": 16}
    config = MaskAlignConfig(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, max_position_embeddings=40, **sizes
    )
    model = MaskAlignModel(config).eval()
    scatter(model, 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return SimpleNamespace(folder=str(folder), aligner=WordAligner(model, tokenizer))


@pytest.fixture(scope="module")
def seq2seq(tmp_path_factory, tokenizer):
    """A folder with a tiny random stock Marian model."""
    folder = tmp_path_factory.mktemp("seq2seq")
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    special |= {"decoder_start_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.eos_token_id}
    tiny_stock_model("marian", torch.float32, vocab_size=len(tokenizer), **special).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def run(monkeypatch, capfdbinary):
    """`attncal align run` on the CPU in this process: (arguments, standard input) -> (status, output, errors)."""

    def run(*arguments, text: str = "", raw: bytes | None = None):
        data = text.encode() if raw is None else raw
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        status = main(["align", "run", *map(str, arguments), "--device", "cpu"])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


def expected(checkpoint, **options) -> list[WordAlignment]:
    return checkpoint.aligner.align(list(zip(SOURCES, TARGETS, strict=True)), **options)


def text_of(lines) -> str:
    return "".join(f"{line}\n" for line in lines)


# ---- output ----


def test_a_text_that_scores_low_is_warned_of(run, checkpoint, seq2seq):
    """The model is random, so it knows no text."""
    line = text_of(["the old house ||| das alte Haus"])
    status, out, err = run(checkpoint.folder, text=line * 100)
    assert (status, out.count("\n")) == (0, 100)
    assert "attncal: warning: the links are probably bad: the mean score of a pair is 0." in err
    for arguments, lines in ((checkpoint.folder, 99), (seq2seq, 100)):  # too few to judge; a model without such scores
        status, _, err = run(arguments, text=line * lines)
        assert (status, err) == (0, "")


def test_one_line_out_for_each_line_in(run, checkpoint):
    status, out, err = run(checkpoint.folder, text=text_of(LINES))
    assert status == 0, err
    alignments = expected(checkpoint)
    assert out == text_of(alignment.pharaoh() for alignment in alignments)
    assert sum(len(alignment.links) for alignment in alignments) > 3
    assert [bool(line) for line in out.split("\n")[:-1]] == [bool(alignment.links) for alignment in alignments]


def test_scores(run, checkpoint):
    _, out, _ = run(checkpoint.folder, "--threshold", "0.1", "--scores", text=text_of(LINES))
    assert out == text_of(alignment.pharaoh(scores=True) for alignment in expected(checkpoint, threshold=0.1))


def test_json_is_one_object_a_line(run, checkpoint):
    _, out, _ = run(checkpoint.folder, "--format", "json", text=text_of(LINES))
    for line, alignment in zip(out.split("\n")[:-1], expected(checkpoint), strict=True):
        found = json.loads(line)
        assert found.keys() == alignment.to_dict().keys()
        assert found["links"] == [list(link) for link in alignment.links]
        for name in ("scores", "source_null", "target_null"):
            assert found[name] == pytest.approx(getattr(alignment, name), abs=1e-6)
        assert (found["score"] is None) == (alignment.score is None)
        assert (found["symmetrization"], found["threshold"]) == ("harmonic", 0.2)


def test_the_words_of_each_link(run, checkpoint):
    """A greppable line: links are parted by blanks, words by the first `=` that no backslash escapes."""
    odd = [r"a=b ||| \ c\=d", r"\= ||| =", "a:b ||| c:d"]
    _, out, _ = run(checkpoint.folder, "--format", "words", "--threshold", "0", text=text_of(odd + LINES))
    lines = out.split("\n")[:-1]
    _, scored, _ = run(
        checkpoint.folder, "--format", "words", "--scores", "--threshold", "0", text=text_of(odd + LINES)
    )
    pairs = [tuple(side.split() for side in line.split("|||")) for line in odd + LINES]
    found = checkpoint.aligner.align(pairs, threshold=0)
    for line, with_scores, (source, target), alignment in zip(lines, scored.split("\n"), pairs, found, strict=False):
        links = [re.fullmatch(r"((?:[^\\=]|\\.)*)=((?:[^\\=]|\\.)*)", link).groups() for link in line.split()]
        words = [tuple(re.sub(r"\\(.)", r"\1", word) for word in link) for link in links]
        assert words == [(source[i], target[j]) for i, j in alignment.links]
        ends = [f":{score:.4f}" for score in alignment.scores]
        assert with_scores.split() == [link + end for link, end in zip(line.split(), ends, strict=True)]
    assert lines[0] == r"a\=b=\\ a\=b=c\\\=d"
    assert len(lines) == len(odd + LINES)


def test_html_is_one_page_of_all_pairs(run, checkpoint, tmp_path):
    hostile = f"{' '.join(HOSTILE)} ||| {' '.join(reversed(HOSTILE))}"
    output = tmp_path / "<b>.html"
    status, out, err = run(checkpoint.folder, "--format", "html", "--output", output, text=text_of([*LINES, hostile]))
    assert (status, out) == (0, ""), err
    page = output.read_text(encoding="utf-8")
    pictures = pictures_of(page)
    found = [*expected(checkpoint), *checkpoint.aligner.align([hostile.split(" ||| ")])]
    assert [tuple(picture.links) for picture in pictures] == [alignment.links for alignment in found]
    assert [picture.groups[SOURCE] for picture in pictures] == [list(alignment.source) for alignment in found]
    assert [picture.groups[TARGET] for picture in pictures] == [list(alignment.target) for alignment in found]
    assert [f'id="pair{number}"' in page for number in range(10)] == [False, *[True] * 8, False]
    assert "<script" not in page
    _, same, _ = run(checkpoint.folder, "--format", "html", text=text_of([*LINES, hostile]))
    assert same == page


def test_options_reach_the_aligner(run, checkpoint):
    for method in ("union", "grow-diag-final-and"):
        _, out, _ = run(checkpoint.folder, "--symmetrize", method, "--threshold", "0.3", text=text_of(LINES))
        assert out == text_of(a.pharaoh() for a in expected(checkpoint, symmetrize=method, threshold=0.3))
    _, union, _ = run(checkpoint.folder, "--symmetrize", "union", text=text_of(LINES))
    _, intersection, _ = run(checkpoint.folder, "--symmetrize", "intersection", text=text_of(LINES))
    assert union != intersection


def test_windows_and_batches_do_not_change_the_result(run, checkpoint):
    text = text_of(LINES * 6)
    _, alone, _ = run(checkpoint.folder, "--batch-size", "1", text=text)  # windows of 16 lines
    _, together, _ = run(checkpoint.folder, text=text)
    assert alone == together == text_of(a.pharaoh() for a in expected(checkpoint) * 6)


# ---- files ----


def write(path: Path, lines) -> Path:
    data = text_of(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_two_files_in_and_one_out(run, checkpoint, tmp_path, suffix):
    source, target = write(tmp_path / f"s{suffix}", SOURCES), write(tmp_path / f"t{suffix}", TARGETS)
    output = tmp_path / "links"
    status, out, err = run(checkpoint.folder, "--source", source, "--target", target, "--output", output)
    assert (status, out) == (0, ""), err
    assert output.read_text() == text_of(alignment.pharaoh() for alignment in expected(checkpoint))
    assert {path.name for path in tmp_path.iterdir()} == {source.name, target.name, "links"}


def test_pairs_from_a_file(run, checkpoint, tmp_path):
    _, out, _ = run(checkpoint.folder, "--source", write(tmp_path / "pairs", LINES))
    assert out == text_of(alignment.pharaoh() for alignment in expected(checkpoint))


def test_the_separator_is_a_word_in_two_files(run, checkpoint, tmp_path):
    source, target = write(tmp_path / "s", ["a ||| house"]), write(tmp_path / "t", ["ein ||| Haus"])
    _, out, _ = run(checkpoint.folder, "--source", source, "--target", target, "--threshold", "0")
    assert "2-2" in out


@pytest.mark.parametrize(("more", "less"), [(40, 7), (40, 32), (33, 32), (7, 0)])
@pytest.mark.parametrize("longer", ["source", "target"])
def test_files_of_different_lengths_are_an_error_after_the_common_part(run, checkpoint, tmp_path, more, less, longer):
    lengths = {"source": more, "target": less} if longer == "source" else {"source": less, "target": more}
    files = {side: write(tmp_path / side, ["a"] * lines) for side, lines in lengths.items()}
    arguments = [checkpoint.folder, "--source", files["source"], "--target", files["target"], "--batch-size", "1"]
    status, out, err = run(*arguments)
    assert status == 1
    assert out.count("\n") == less
    assert f"source has {lengths['source']} lines, {tmp_path}" in err
    assert f"target has {lengths['target']};" in err
    assert "Traceback" not in err


def test_an_output_file_is_whole_or_not_there(run, checkpoint, tmp_path):
    output = tmp_path / "links"
    output.write_text("of an earlier run")
    status, out, err = run(checkpoint.folder, "--output", output, text="a ||| ein\nold\n")
    assert (status, out) == (1, "")
    assert output.read_text() == "of an earlier run"
    assert (tmp_path / "links.partial").read_text().count("\n") == 1
    assert f"What was written before is in {output}.partial" in err
    assert run(checkpoint.folder, "--output", output, text="a ||| ein\n")[0] == 0
    assert output.read_text().count("\n") == 1
    assert not (tmp_path / "links.partial").exists()


def test_special_files_are_not_replaced(run, checkpoint, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(checkpoint.folder, "--output", pipe, "--threshold", "0", text="a ||| ein\n")[0] == 0
        assert os.read(reader, 100) == b"0-0\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


# ---- input that cannot be aligned ----


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"old house", "line 20 of the input has the separator ` ||| ` not at all"),
        (b"old|||house", "line 20 of the input has the separator ` ||| ` not at all"),
        (b"a ||| b ||| c", "line 20 of the input has the separator ` ||| ` 2 times"),
        (b"a ||| \xff", "line 20 of the input is not UTF-8 (byte 7)"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_before_it_is_lost(run, checkpoint, line, message):
    raw = b"a ||| ein\n" * 19 + line + b"\nold ||| alt\n"
    status, out, err = run(checkpoint.folder, "--batch-size", "1", "--threshold", "0", raw=raw)
    assert status == 1
    assert message in err
    assert "Traceback" not in err
    assert out == "0-0\n" * 19


def test_a_damaged_file_is_named_and_nothing_before_it_is_lost(run, checkpoint, tmp_path):
    lines = [f"{'a ' * (n % 7)}||| ein {n}" for n in range(2000)]
    data = gzip.compress(text_of(lines).encode())
    path = tmp_path / "pairs.gz"
    path.write_bytes(data[: len(data) // 2])
    status, out, err = run(checkpoint.folder, "--source", path)
    assert status == 1
    assert f"{path} cannot be read after line" in err
    assert "Traceback" not in err
    assert 0 < out.count("\n") < 2000
    assert f"after line {out.count(chr(10))}:" in err
    path.write_bytes(b"plain text ||| no archive\n")
    assert "cannot be read after line 0" in run(checkpoint.folder, "--source", path)[2]


def test_a_line_too_long_for_an_encoder_decoder_is_named_and_nothing_before_it_is_lost(run, seq2seq):
    text = "a ||| ein\n" * 20 + "a " * 60 + "||| ein\n" + "old ||| alt\n"
    status, out, err = run(seq2seq, "--batch-size", "1", text=text)
    assert status == 1
    assert "line 21 cannot be aligned" in err
    assert f"at most {TINY['max_position_embeddings']}" in err
    assert out == "0-0\n" * 20


@pytest.mark.half("word", "files")
@pytest.mark.parametrize("word", [b"a" * 10_000_000, b"a " * 200_000], ids=["a word", "words"])
@pytest.mark.parametrize("files", ["joined", "parallel", "compressed"])
def test_a_line_without_end_is_named_in_bounded_memory_and_nothing_before_it_is_lost(
    run, checkpoint, tmp_path, files, word
):
    """Two words of ten million letters, or 200,000 words a side: without a limit the command does not end."""
    arguments = []
    for option in ["--source"] if files == "joined" else ["--source", "--target"]:
        path = tmp_path / (option[2:] + ".gz" * (files == "compressed"))
        good, bad = (b"a ||| ein\n", word + b" ||| " + word) if files == "joined" else (b"a\n", word)
        data = good * 20 + bad + b"\n" + good
        path.write_bytes(gzip.compress(data, 1) if files == "compressed" else data)
        arguments += [option, path]
    tracemalloc.start()
    status, out, err = run(checkpoint.folder, "--threshold", "0", "--batch-size", "1", *arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (status, out) == (1, "0-0\n" * 20)
    assert f"line 21 of {arguments[1]} has more than 10000 bytes. Split it, or raise --longest-line." in err
    assert peak < 5_000_000


def test_the_limit_of_a_line_is_in_bytes_and_can_be_set(run, checkpoint, tmp_path):
    fits, over = "a ||| " + "e" * 94, "a ||| " + "é" * 4998
    assert "line 2 of the input has more than 10000 bytes" in run(checkpoint.folder, text=f"{fits}\n{over}\n")[2]
    assert run(checkpoint.folder, "--longest-line", "100", text=fits + "\r\n")[0] == 0
    assert run(checkpoint.folder, "--longest-line", "99", text=fits + "\r\n")[0] == 1
    source, target = write(tmp_path / "s", ["a", "a b"]), write(tmp_path / "t", ["ein", "ein b"])
    status, out, err = run(checkpoint.folder, "--longest-line", "3", "--source", source, "--target", target)
    assert (status, out.count("\n")) == (1, 1)
    assert f"line 2 of {target} has more than 3 bytes" in err


def test_a_batch_too_large_for_the_memory_is_aligned_in_parts(run, checkpoint, monkeypatch):
    weights = MaskAlignSource.weights

    def failing(self, pairs, *arguments):
        if len(pairs) > 5 or any(len(source) > 50 for source, _ in pairs):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return weights(self, pairs, *arguments)

    monkeypatch.setattr(MaskAlignSource, "weights", failing)
    text = "a ||| ein\n" * 20
    assert run(checkpoint.folder, "--threshold", "0", text=text)[:2] == (0, "0-0\n" * 20)
    status, out, err = run(checkpoint.folder, "--threshold", "0", text=text + "a " * 51 + "||| ein\n" + text)
    assert (status, out) == (1, "0-0\n" * 20)
    assert "line 21 cannot be aligned: there is not enough memory (CUDA out of memory.)" in err


def test_several_processes_are_refused_with_the_option_for_parts(run, monkeypatch, tmp_path):
    """Otherwise each process would write every line."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    pairs = write(tmp_path / "pairs", LINES)
    for arguments in ([], ["--source", pairs, "--output", tmp_path / "links"]):
        status, out, err = run("no/such/model", *arguments)
        assert (status, out) == (1, "")
        assert "processes cannot write one output" in err
    with_part = run("no/such/model", "--source", pairs, "--output", tmp_path / "parts", "--shard", "1/2")
    assert "processes" not in with_part[2]


# ---- models ----


def test_the_attention_of_an_encoder_decoder_is_chosen(run, seq2seq):
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    results = set()
    for arguments, settings in (
        (["--read", "layer=1", "heads=1", "shift=false"], Seq2SeqAttention(1, (1,), shift=False)),
        (["--read", "layer=1", "heads=1,0", "shift=true"], Seq2SeqAttention(1, (1, 0), shift=True)),
        (["--read", "layer=-1", "source_prefix=old "], Seq2SeqAttention(-1, source_prefix="old ")),
        ([], None),
    ):
        status, out, err = run(seq2seq, *arguments, "--scores", text=text_of(LINES))
        assert status == 0, err
        aligner = WordAligner.from_pretrained(seq2seq, device="cpu", settings=settings)
        assert out == text_of(alignment.pharaoh(scores=True) for alignment in aligner.align(pairs))
        results.add(out)
    assert len(results) == 4


def test_options_change_saved_settings_one_by_one(run, seq2seq, tmp_path, monkeypatch):
    saved = Seq2SeqAttention(1, (0,), shift=True).save(tmp_path)
    monkeypatch.setattr("hf_attncal.alignment.seq2seq.file_beside", lambda *_: saved)
    aligner = open_to_align(seq2seq, Running(device="cpu"), read=["heads=1"])
    assert aligner.settings == Seq2SeqAttention(1, (1,), shift=True)
    assert open_to_align(aligner, Running(), read={"shift": False}).settings == Seq2SeqAttention(1, (1,), shift=False)
    assert aligner.settings == Seq2SeqAttention(1, (1,), shift=True)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("checkpoint", ["--read", "layer=1"], "`layer`"),
        ("seq2seq", ["--symmetrize", "union"], "`symmetrize` must be 'forward'"),
    ],
)
def test_options_that_do_not_suit_the_model(run, checkpoint, seq2seq, kind, arguments, message):
    folder = checkpoint.folder if kind == "checkpoint" else seq2seq
    status, out, err = run(folder, *arguments, text="a ||| b\n")
    assert (status, out) == (1, "")
    assert message in err
    assert "line 1" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--threshold 1.5", "--threshold must be from 0 to 1, got 1.5."),
        ("--least-probability nan", "--least-probability must be from 0 to 1, got nan."),
        ("--read heads=a", "--read heads must be numbers from 0, such as 0,3, got 'a'."),
        ("--read layer=", "--read layer must be a number, got ''."),
        ("--read shift=maybe", "--read shift must be true or false, got 'maybe'."),
        ("--read depth=1", "--read must be one of layer, heads, shift, mutual, weights, source_prefix, got 'depth'"),
        ("--read states", "source_prefix, got 'states'"),
        ("--shard 3/2 --output x", "--shard must be I/N"),
    ],
)
def test_values_out_of_range_are_refused_at_once(run, arguments, message):
    status, out, err = run("no/such/model", *arguments.split())
    assert (status, out) == (1, "")
    assert message in err


def test_the_options_of_read_are_the_fields_of_the_settings():
    names = {field.name for field in fields(Seq2SeqAttention)}
    assert names - {"threshold", "beside"} == READABLE.keys()  # these have an option, or lie in the folder


def test_choices_are_those_of_the_models():
    assert get_args(Merging) == SYMMETRIZATIONS
    assert get_args(LinkFormat) == LINK_FORMATS
    assert get_args(WordLimits) == SEPARATORS


# ---- streams ----


class FakeAligner:
    """One link for every pair, at once."""

    source = SimpleNamespace(symmetrizations=(), tokenize=False, cuts=())  # of one direction

    def align(self, pairs, **_):
        return [WordAlignment(("a",), ("b",), ((0, 0),), (0.5,), (0.1,), (0.1,), 0.5, "harmonic", 0.2) for _ in pairs]


def aligned(aligner, windows, written) -> None:
    """Write the links of all windows."""
    for group in align_windows(aligner, windows, progress=False, batch_size=2):
        write_lines(written, [LinkStyle().line(1, alignment) for alignment in group])


class Lines:
    """A file of these lines."""

    def __init__(self, lines):
        self._lines = iter(lines)

    def readline(self, size):
        return next(self._lines, b"")


def test_the_links_of_a_window_are_written_before_the_next_but_one_is_read():
    read, written = [], io.BytesIO()
    seen = []

    def source():
        for number in range(12):
            seen.append((number, written.getvalue().count(b"\n")))
            read.append(number)
            yield b"a ||| b\n"

    aligned(FakeAligner(), joined_pairs(Lines(source()), 3, "x"), written)
    assert all(lines >= number - 2 * 3 + 1 for number, lines in seen)
    assert written.getvalue() == b"0-0\n" * 12


def test_pairs_with_many_links_are_written_before_more_are_aligned():
    class Sizes(FakeAligner):
        seen = []

        def align(self, pairs, **_):
            self.seen.append(len(pairs))
            return super().align(pairs)

    long, short = f"{'a ' * 2400}||| {'a ' * 2400}\n".encode(), b"a ||| b\n"
    data = io.BytesIO(short * 100 + long * 5 + short * 100)
    written = io.BytesIO()
    aligned(Sizes(), joined_pairs(data, 1000, "x"), written)
    assert written.getvalue() == b"0-0\n" * 205
    assert Sizes.seen == [102, 2, 101]


def test_memory_does_not_grow_with_the_input():
    def peak(lines: int) -> int:
        source = (b"the old house ||| das alte Haus\n" for _ in range(lines))
        tracemalloc.start()
        with open(os.devnull, "wb") as target:
            aligned(FakeAligner(), joined_pairs(Lines(source), 500, "x"), target)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(1000)
    assert peak(20_000) < 1.2 * peak(2000)


class Pieces(io.RawIOBase):
    """Remembers every piece that is written at once."""

    def __init__(self):
        self.pieces = []

    def writable(self):
        return True

    def write(self, data):
        self.pieces.append(bytes(data))
        return len(data)


def test_lines_go_out_in_whole_pieces_that_a_pipe_takes_at_once():
    raw = Pieces()
    lines = ["é" * (n % 90) for n in range(500)] + ["x" * 5000, "y"]
    write_lines(io.BufferedWriter(raw), lines)
    assert b"".join(raw.pieces).decode() == text_of(lines)
    for piece in raw.pieces:
        assert piece.endswith(b"\n") or len(piece) > 4096 or b"x" in piece
        assert len(piece) <= 4096 or piece.count(b"\n") <= 1
    assert len(raw.pieces) < 30
