"""Whatever bytes come in: one line out for each line in, or an error that names the line."""

import contextlib
import io
import json
import re
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rules import BOM, LONGEST_LINKS, links_of_file, links_of_lines, readable_lines, scores

import hf_attncal.inference.answers as answers
import hf_attncal.inference.generation as generation
from hf_attncal.alignment import WordAlignment
from hf_attncal.alignment.streaming import LinkStyle, align_windows
from hf_attncal.commands import main
from hf_attncal.data.pharaoh import parse_alignments, parse_hypotheses
from hf_attncal.data.texts import joined_pairs
from hf_attncal.io.errors import CommandError, until_failure
from hf_attncal.io.streams import parallel_lines, read_windows, write_lines

# Letters of one to four bytes, white space of all kinds, what ends lines elsewhere, bytes that are no UTF-8.
PIECES = [b"a", b"bad ", b"\xc3\xa9", "東".encode(), "😀".encode(), b" ", b"\t", "\u3000\u2028\x85".encode(), b"\r"]
PIECES += [b"\x0c", b"\x00", b" ||| ", b"|||", BOM, b"0-0 ", b"x" * 20]
lines = st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join)
broken = st.one_of(lines, st.binary(max_size=6).map(lambda data: data.replace(b"\n", b"")))
any_line = st.one_of(lines, lines, lines, broken)


@st.composite
def files(draw, line=any_line):
    """Bytes of a file: mostly lines that can be read, with and without a mark and a last line end."""
    rows = draw(st.lists(line, max_size=9))
    return BOM * draw(st.booleans()) + b"\n".join(rows) + b"\n" * draw(st.booleans())


def collected(windows, window: int) -> tuple[list, int | None]:
    """Return the items of all groups, and the line number in the error."""
    items, error = [], None
    for group, problem in windows:
        assert error is None, "nothing may follow an error"
        assert len(group) <= window
        assert len(items) % window == 0, "all groups but the last are full"
        items += group
        error = problem
    return items, None if error is None else int(re.match(r"line (\d+) of x ", str(error))[1])


# ---- reading ----


@given(data=files(), window=st.integers(1, 4), longest=st.integers(1, 30))
def test_lines_are_read_or_named(data, window, longest):
    found = collected(read_windows(io.BytesIO(data), window, "x", longest), window)
    assert found == readable_lines(data, longest)


@given(data=files(), window=st.integers(1, 4), longest=st.integers(1, 30))
def test_every_truncated_line_is_kept(data, window, longest):
    cut = []
    texts, wrong = collected(read_windows(io.BytesIO(data), window, "x", longest, cut.append), window)
    whole, bad = readable_lines(data, 10**9)
    # What is no UTF-8 is named, unless it lies in what is cut off.
    assert wrong is None or wrong >= bad
    count = len(data.removeprefix(BOM).removesuffix(b"\n").split(b"\n")) if data.removeprefix(BOM) else 0
    assert len(texts) == (count if wrong is None else wrong - 1)
    for text, line in zip(texts, whole, strict=False):
        assert line.startswith(text)
        assert text == line or longest - 6 <= len(text.encode()) <= longest
    told = [number for number in cut if number <= min(len(texts), len(whole))]
    assert told == [n for n, (text, line) in enumerate(zip(texts, whole, strict=False), start=1) if text != line]


@given(data=files(), window=st.integers(1, 4))
def test_pairs_of_one_file_are_read_or_named(data, window):
    pairs, wrong = collected(joined_pairs(io.BytesIO(data), window, "x", 30), window)
    texts, bad = readable_lines(data, 30)
    for number, text in enumerate(texts, start=1):
        if text.split() and text.split().count("|||") != 1:
            texts, bad = texts[: number - 1], number
            break
    assert wrong == bad
    assert len(pairs) == len(texts)
    for (source, target), text in zip(pairs, texts, strict=True):
        assert [*source.split(), "|||", *target.split()] == (text.split() or ["|||"])


@given(source=files(), target=files(), window=st.integers(1, 4))
def test_pairs_of_two_files_are_read_or_named(source, target, window):
    sides = io.BytesIO(source), io.BytesIO(target)
    found = list(parallel_lines(sides, window, ("x", "x"), 30))
    pairs = [pair for group, _ in found for pair in group]
    (source_lines, source_bad), (target_lines, target_bad) = (readable_lines(data, 30) for data in (source, target))
    assert pairs == list(zip(source_lines, target_lines, strict=False))
    errors = [error for _, error in found if error is not None]
    equal = source_bad is target_bad is None and len(source_lines) == len(target_lines)
    assert len(errors) == (not equal)
    for error in errors:
        named = re.match(r"line (\d+) of x|x has (\d+) lines, x has (\d+); ", str(error))
        assert named
        wrong = [bad for bad in (source_bad, target_bad) if bad is not None]
        if wrong:
            assert named[1] == str(min(wrong))
        else:
            assert list(map(int, named.groups()[1:])) == [len(source_lines), len(target_lines)]


# ---- align run, translate ----


class FakeAligner:
    """Links as many words as both sides have; fails on the word "bad"."""

    source = SimpleNamespace(symmetrizations=(), tokenize="none")  # of one direction

    def align(self, pairs, **_):
        if any("bad" in source.split() for source, _ in pairs):
            raise RuntimeError("bad word")
        lengths = [min(len(source.split()), len(target.split())) for source, target in pairs]
        return [WordAlignment((), (), ((n, n),), (0.5,), (0.1,), (0.1,), 0.5, "harmonic", 0.2) for n in lengths]


@given(data=files(), window=st.integers(1, 4))
def test_aligning_gives_a_line_for_each_line_or_names_one(data, window):
    target = io.BytesIO()
    pairs, bad = collected(joined_pairs(io.BytesIO(data), window, "x", 30), window)
    failing = next((n for n, (source, _) in enumerate(pairs, start=1) if "bad" in source.split()), bad)
    wrong = None
    try:
        windows = joined_pairs(io.BytesIO(data), window, "x", 30)
        for group in align_windows(FakeAligner(), windows, progress=False, batch_size=2):
            write_lines(target, [LinkStyle().line(1, alignment) for alignment in group])
    except CommandError as error:
        wrong = int(re.match(r"line (\d+) ", str(error))[1])
    assert wrong == failing
    numbers = [min(len(source.split()), len(target.split())) for source, target in pairs]
    assert target.getvalue().decode() == "".join(f"{n}-{n}\n" for n in numbers[: None if wrong is None else wrong - 1])


def fake_translate(model, tokenizer, lines, *, too_long, **_):
    """Lines in capitals; fails on "bad", and on more than 8 words."""
    for index, line in enumerate(lines):
        if "bad" in line:
            raise IndexError("bad word")
        if len(line.split()) > 8 and too_long == "error":
            raise generation.LineTooLongError(index, len(line.split()), 8)
    return [generation.Generated(line.upper()) for line in lines]


class NoLinksOfTabs(FakeAligner):
    """Encoder that also fails on a tab, in translated lines."""

    def align(self, pairs, **_):
        if any("\t" in source for source, _ in pairs):
            raise RuntimeError("a tab")
        return super().align(pairs)


@pytest.mark.filterwarnings("ignore:.* lines of .* were truncated")
@given(data=files(), size=st.sampled_from(["error", "truncate"]), aligned=st.booleans())
def test_translating_gives_a_line_for_each_line_or_names_one(data, size, aligned):
    found, wrong = [], None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "translate_lines", fake_translate)
        patch.setattr(answers, "source_limit", lambda *_: 8)
        aligner = NoLinksOfTabs() if aligned else None
        work = answers.translating(None, None, batch_size=2, aligner=aligner, too_long=size)
        reading = {"too_long": size, "longest_line": 30}
        try:
            for rows in answers.answer_windows(None, None, (io.BytesIO(data), 3, "x"), work, "translated", **reading):
                found += rows
        except CommandError as error:
            wrong = int(re.match(r"line (\d+) of x ", str(error))[1])
    texts, bad = collected(read_windows(io.BytesIO(data), 9, "x", 30, {"truncate": set().add}.get(size)), 9)
    for number, text in enumerate(texts, start=1):
        if "bad" in text or (len(text.split()) > 8 and size == "error") or (aligned and "\t" in text):
            bad = number
            break
    assert wrong == bad
    good = texts[: None if bad is None else bad - 1]
    assert [(row.source, row.text) for row in found] == [(text, text.upper()) for text in good]
    numbers = [len(text.split()) for text in good]
    assert [row.alignment and row.alignment.pharaoh() for row in found] == [
        f"{n}-{n}" if aligned else None for n in numbers
    ]


# ---- score ----

LINKS = ["0-0", "1-0", "0-1", "1-1", "12-3", "2p1", "0?1", "0-0:0.5", "1-1:-1e-3", "007-1", "3-2:.5", "1-2:1."]
NO_LINKS = [
    "0-",
    "-1-0",
    "0_0",
    "a",
    "0-0:",
    "0-0:.",
    "0-0:1e",
    "٣-0",
    "0-²",
    "0-0:٣",
    "1234567890-0",
    "0p0:1",
    "\ufeff",
]
link_lines = st.lists(st.sampled_from(LINKS), max_size=5).map(lambda tokens: " ".join(tokens).encode())
odd_lines = st.lists(st.sampled_from(LINKS + NO_LINKS), max_size=3).map(lambda tokens: "\t".join(tokens).encode())
link_files = files(st.one_of(link_lines, link_lines, link_lines, odd_lines, broken))
plain_links = st.lists(st.sampled_from([link for link in LINKS if "p" not in link and "?" not in link]), max_size=5)
proposed_files = st.one_of(link_files, files(plain_links.map(lambda tokens: " ".join(tokens).encode())))


@given(data=link_files, gold=st.booleans())
def test_links_are_read_or_the_line_is_named(data, gold):
    texts, _ = readable_lines(data, LONGEST_LINKS)
    expected = links_of_lines(texts, gold)
    parse = parse_alignments if gold else parse_hypotheses
    if isinstance(expected, int):
        with pytest.raises(ValueError, match=rf"^line {expected}: "):
            parse(texts)
        return
    found = [(pair.sure, pair.possible) if gold else (pair, pair) for pair in parse(texts)]
    assert found == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(gold=link_files, proposed=proposed_files)
def test_scores_are_those_of_an_independent_scorer_or_the_line_is_named(gold, proposed, tmp_path):
    paths = tmp_path / "gold", tmp_path / "proposed"
    for path, data in zip(paths, (gold, proposed), strict=True):
        path.write_bytes(data)
    arguments = [*map(str, paths), "--format", "json", "--bootstrap", "0"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["score", *arguments])
    expected = [links_of_file(gold, True), links_of_file(proposed, False)]
    wrong = [(side, path) for side, path in zip(expected, paths, strict=True) if side is None or isinstance(side, int)]
    if wrong:
        assert (status, out.getvalue()) == (1, "")
        assert any(
            str(path) in err.getvalue()
            and re.search("is empty" if side is None else rf"line {side}\b", err.getvalue())
            for side, path in wrong
        )
        return
    sides = expected
    if len(sides[0]) != len(sides[1]):
        assert (status, out.getvalue()) == (1, "")
        assert f"has {len(sides[0])} lines and {paths[1]} has {len(sides[1])}" in err.getvalue()
        return
    assert status == 0, err.getvalue()
    (row,) = json.loads(out.getvalue())["scores"]
    for name, value in scores(*sides).items():
        assert row[name] == pytest.approx(value), name


def test_a_bug_is_no_error_of_a_line():
    """A failed batch is tried in halves, which would hide a bug that only batches meet."""

    def work(items):
        if len(items) > 1:
            raise AttributeError("no such method")
        return items

    with pytest.raises(AttributeError, match="no such method"):
        until_failure(work, [1, 2])
