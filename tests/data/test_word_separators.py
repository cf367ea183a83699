"""The word separator of links is given or detected; otherwise the user must give it."""

import shutil
from pathlib import Path

import pytest

import hf_attncal
from hf_attncal.alignment import WordAlignment, count_links, project_labels
from hf_attncal.commands import main
from hf_attncal.data.linked_pairs import gold_links, separators_differ

SPACES = ["\u00a0", "\u2028", "\x1c"]
SOURCE = ["the price is 10{}000 euros today", "a man runs"]
TARGET = ["der preis ist heute 10{}000 euro", "ein mann rennt"]
TAGS = ["DET N V NUM N ADV", "DET N V"]
LINKS = {
    "spaces": ["0-0 1-1 2-2 3-4 4-5 5-3", "0-0 1-1 2-2"],
    "white-space": ["0-0 1-1 2-2 3-4 4-5 5-6 6-3", "0-0 1-1 2-2"],
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Text with a no-break space, links that count at spaces, and tags."""
    monkeypatch.chdir(tmp_path)
    write("\u00a0")
    return tmp_path


def write(space: str, links: str = "spaces") -> None:
    for name, lines in {"s": SOURCE, "t": TARGET, "tags": TAGS, "links": LINKS[links]}.items():
        Path(name).write_text("".join(f"{line.format(space)}\n" for line in lines), encoding="utf-8")


def run(line: str, capsys) -> tuple[int, list[str], str]:
    status = main(line.split())
    out, err = capsys.readouterr()
    return status, out.split("\n")[:-1], err


FILES = "--source s --target t"
ASKED = r"line 1\b.*fit 7 and 7 words separated by any white space, and 6 and 6 words separated by spaces only.*"


@pytest.mark.parametrize("space", SPACES)
def test_ambiguous_links_are_refused_until_the_separator_is_given(space, here, capsys):
    write(space)
    for command in ("align lexicon --links links", "align project --markup --links links", "score links links"):
        status, out, err = run(f"{command} {FILES}", capsys)
        assert (status, [line for line in out if "euros" in line]) == (1, []), command
        assert "separated by spaces only" in err
        assert "Set `words` to white-space or spaces" in err
    status, out, _ = run(f"align lexicon --links links {FILES} --words spaces", capsys)
    assert status == 0
    assert "today\theute\t1\t1.000000\t1.000000" in out
    assert run(f"score links links {FILES} --words spaces", capsys)[0] == 0


def test_tags_decide_the_separator(here, capsys):
    status, out, err = run(f"align project {FILES} --links links --tags tags", capsys)
    assert (status, out, err) == (0, ["DET N V ADV NUM N", "DET N V"], "")


def test_links_beyond_the_words_of_one_separator_decide_it(here, capsys):
    write("\u00a0", "white-space")
    status, out, _ = run(f"align lexicon {FILES} --links links", capsys)
    assert status == 0
    assert "today\theute\t1\t1.000000\t1.000000" in out
    assert [f"{word}\t{word}\t1\t1.000000\t1.000000" in out for word in ("10", "000")] == [True, True]
    # A later line tells it for all.
    write("\u00a0")
    for name, line in {"s": "a b\u00a0c", "t": "d e", "links": "2-1"}.items():
        with Path(name).open("a") as file:
            file.write(f"{line}\n")
    assert run(f"align lexicon {FILES} --links links", capsys)[0] == 0
    assert run(f"align lexicon {FILES} --links links --words spaces", capsys)[0] == 1


@pytest.mark.parametrize("words", LINKS)
@pytest.mark.parametrize("name", ["links", "links.gz"])
def test_our_outputs_are_read_with_their_separator(words, name, here, capsys):
    assert run(f"align quick {FILES} --output {name} --words {words}", capsys)[0] == 0
    status, out, _ = run(f"align lexicon {FILES} --links {name} --words {words}", capsys)
    assert status == 0
    found = {word for line in out[1:] for word in line.split("\t")[:2]}
    assert ("10\u00a0000" in found) == (words == "spaces")
    assert run(f"score {name} {name} {FILES} --words {words}", capsys)[0] == 0
    shutil.copy(name, f"same{name}")
    assert run(f"align compare {name} same{name} {FILES} --words {words}", capsys)[0] == 0


def test_links_of_two_kinds_are_not_compared(here, capsys):
    write("\u00a0", "white-space")
    Path("more").write_text("0-0\n0-0\n")
    status, out, err = run(f"align compare links more {FILES}", capsys)
    assert (status, out) == (1, [])
    assert "separated by spaces only" in err


def test_alignments_and_lists_from_python(here):
    sides = [[line.format("\u00a0") for line in side] for side in (SOURCE, TARGET)]
    for words in LINKS:
        alignments = hf_attncal.align_quick(source=sides[0], target=sides[1], words=words)
        entries = hf_attncal.lexicon(*sides, links=alignments)
        assert ("10\u00a0000" in {entry.source for entry in entries}) == (words == "spaces")
    with pytest.raises(ValueError, match="Set `words`"):
        hf_attncal.lexicon(*sides, links=LINKS["spaces"])
    assert hf_attncal.lexicon(*sides, links=LINKS["spaces"], words="spaces")[0].source == "10\u00a0000"
    with pytest.raises(ValueError, match="Set `words`"):
        list(count_links(zip(*sides, strict=True), LINKS["spaces"]))
    pairs = zip(*sides, strict=True)
    (first, _) = project_labels(pairs, LINKS["spaces"], tags=TAGS)
    assert first.text == "DET N V ADV NUM N"
    assert all(isinstance(alignment, WordAlignment) for alignment in alignments)


def test_gold_links_count_words_of_white_space(here):
    pairs = [tuple(side.format("\u00a0") for side in pair) for pair in zip(SOURCE, TARGET, strict=True)]
    with pytest.raises(ValueError, match=rf"links: {ASKED}replace these spaces in the text"):
        gold_links("links", pairs)
    write("\u00a0", "white-space")
    first, _ = gold_links("links", pairs)
    assert first.sure == {(0, 0), (1, 1), (2, 2), (3, 4), (4, 5), (5, 6), (6, 3)}


def test_ambiguous_lines_are_found():
    assert not separators_differ("a b", "a\tb\fc", None)
    assert not separators_differ("\u00a0a", "b\u200bc")  # the same words, with more around them; no white space
    assert separators_differ("a\u00a0b")
    assert separators_differ("a \u3000 b")
