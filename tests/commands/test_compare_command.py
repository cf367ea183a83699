"""`attncal align compare`: the table, and what is wrong with files."""

import pytest
from english_german import generate_split, write_pairs

from hf_attncal.data.pharaoh import format_links

TEXT = ["--source", "text.en", "--target", "text.de"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = generate_split(200, 0, 0, seed=3).train
    write_pairs(pairs, tmp_path / "text.en", tmp_path / "text.de")
    links = {"right": [pair.links for pair in pairs], "diagonal": [[(0, 0)] for _ in pairs]}
    for name, lines in links.items():
        (tmp_path / name).write_text("".join(f"{format_links(line)}\n" for line in lines), encoding="utf-8")
    return tmp_path


def test_the_table(attncal, here):
    code, out, err = attncal("align", "compare", "right", "diagonal", *TEXT)
    assert (code, err) == (0, "")
    header, right, diagonal, *_ = out.splitlines()
    assert header.split()[:2] == ["hypothesis", "links"]
    assert right.split()[4] == "100.0"
    assert diagonal.split()[1] == "200"
    assert float(diagonal.split()[4]) < 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["right"], "two files of links, got only right"),
        (["right", "right"], "different files, got right right"),
        (["right", "short"], "text.en has 200 lines and short has 1"),
        (["right", "outside"], "outside: line 1: link 99-0 lies outside"),
    ],
)
def test_errors_name_the_bad_value(attncal, here, arguments, message):
    (here / "short").write_text("0-0\n")
    (here / "outside").write_text("99-0\n" + "0-0\n" * 199)
    before = (here / "text.en").read_bytes()
    code, out, err = attncal("align", "compare", *arguments, *TEXT)
    assert code != 0
    assert out == ""
    assert message in err
    assert (here / "text.en").read_bytes() == before
