"""Text as users have it: without spaces between words, with shifted lines, with lines that are too long."""

import random
import string

import pytest

from hf_attncal import align, align_quick
from hf_attncal.alignment.statistical import quick_aligner
from hf_attncal.alignment.streaming import shift_warning
from hf_attncal.commands import main
from hf_attncal.data.segmentation import characters, fold, is_unspaced, segment
from hf_attncal.data.texts import PairText
from hf_attncal.data.words import MOST_CELLS

CHINESE = ["我爱北京的秋天。", "他在2008年去了北京。", "我爱北京", "北京的秋天很美。", "我去了北京的公园"] * 6
ENGLISH = [
    "I love autumn in Beijing .",
    "he went to Beijing in 2008 .",
    "I love Beijing",
    "autumn in Beijing is lovely .",
    "I went to a park in Beijing",
] * 6
THAI = ["ฉันชอบกินแอปเปิ้ลทุกวันครับ"] * 3


# ---- scripts without spaces ----


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (CHINESE, True),
        (["これはペンです", "東京タワーに行きました"], True),
        (THAI, True),
        (["我 爱 北京 的 秋天 。", "コミュニケーション と は"], False),
        (["ฉัน ชอบ กิน แอปเปิ้ล ทุก วัน"], False),
        (ENGLISH, False),
        (["한국어를 배웁니다."], False),
        (["see 中华人民共和国 in the long English sentence that follows"], False),
        ([], False),
    ],
)
def test_a_text_without_spaces_is_known(lines, expected):
    assert is_unspaced(lines) is expected


def test_a_run_without_spaces_is_cut_into_white_space_words():
    found = segment("他在2008年，去了 Beijing's park。", cut=lambda run: [run[:2], run[2:]] if len(run) > 2 else [run])
    assert found.words == ("他在", "2008", "年", "，", "去了", "Beijing", "'s", "park", "。")
    assert found.raw == ("他在", "2008", "年", "，", "去了", "Beijing's", "park。")
    owners = [None if owner is None else found.raw[owner] for owner in found.owners]
    assert owners == [*found.raw[:5], "Beijing's", "Beijing's", "park。", None]
    assert [found.text[slice(*span)] for span in found.spans] == list(found.words)
    assert segment("他在", cut=characters).words == ("他", "在")
    assert segment("no run", cut=characters) == segment("no run")


def test_links_of_a_text_without_spaces_count_the_words_that_are_written(tmp_path, capsys):
    for name, lines in (("zh", CHINESE), ("en", ENGLISH)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    links = tmp_path / "links"
    command = ["align", "quick", "--source", str(tmp_path / "zh"), "--target", str(tmp_path / "en"), "--output"]
    assert main([*command, str(links)]) == 0
    error = capsys.readouterr().err
    assert "The source has no spaces between its words. It is cut into characters" in error
    assert f"{links}.source and {links}.target" in error
    words = [(tmp_path / f"links.{side}").read_text(encoding="utf-8").splitlines() for side in ("source", "target")]
    assert ["".join(line.split()) for line in words[0]] == CHINESE
    assert words[1] == ENGLISH
    with pytest.warns(UserWarning, match="The source has no spaces"):
        found = align_quick(list(zip(CHINESE, ENGLISH, strict=True)))
    assert links.read_text().splitlines() == [one.pharaoh() for one in found]
    assert [" ".join(one.source) for one in found] == words[0]
    year = found[1].source.index("2008"), found[1].target.index("2008")
    assert year in found[1].links
    assert main([*command, str(tmp_path / "spans"), "--offsets"]) == 0
    assert not (tmp_path / "spans.source").exists()
    start = CHINESE[1].index("2008")
    assert f"{start}:{start + 4}-22:26" in (tmp_path / "spans").read_text().splitlines()[1]


def test_text_with_spaces_is_as_before(recwarn):
    spaced = [(" ".join(characters(source)), target) for source, target in zip(CHINESE, ENGLISH, strict=True)]
    assert not any(quick_aligner(spaced).source.cuts)
    assert not [warning for warning in recwarn if "no spaces" in str(warning.message)]


# ---- shifted lines ----


def numbered(lines: int) -> list[str]:
    generator = random.Random(4)
    return ["the " + "".join(generator.choices(string.ascii_lowercase, k=7)) + f" {n}" for n in range(lines)]


@pytest.mark.parametrize("shift", [1, -2])
def test_shifted_lines_are_reported(shift):
    lines = numbered(60)
    first, second = (lines[max(0, -shift) :], lines[max(0, shift) :])
    pairs = list(zip(second, first, strict=False))
    problem = shift_warning(pairs, 60)
    assert f"the target line {abs(shift)} {'below' if shift > 0 else 'above'}" in problem
    assert shift_warning(list(zip(lines, lines, strict=True)), 60) is None
    assert shift_warning([("the house", "das Haus")] * 60, 60) is None
    assert shift_warning([], 0) is None
    with pytest.warns(UserWarning, match="the lines are shifted: near line"):
        align_quick(pairs)


# ---- lines that are too long ----


def test_a_line_that_is_too_long_is_empty_and_counted(tmp_path, capsys):
    (tmp_path / "pairs").write_text(f"a b ||| c d\n{'x' * 500} ||| y\na b ||| c d\n", encoding="utf-8")
    command = ["align", "quick", "--source", str(tmp_path / "pairs"), "--longest-line=100"]
    assert main(command) == 1
    assert "more than 100 bytes" in capsys.readouterr().err
    assert main([*command, "--too-long=empty"]) == 0
    out, error = capsys.readouterr()
    assert [bool(line) for line in out.splitlines()] == [True, False, True]
    assert "1 lines were too long and are empty in the output (the first is line 2)" in error


def test_a_pair_with_too_many_words_is_refused_before_it_is_counted_or_empty():
    many = " ".join("ab" for _ in range(int(MOST_CELLS**0.5) + 1))
    with pytest.raises(ValueError, match=r"^line 2: 5,478 times 5,478 words"):
        quick_aligner([("a", "b"), (many, many)])
    text = PairText([("a", "b"), (many, many), ("c", "d")], too_long="empty")
    assert text.pairs() == [("a", "b"), ("", ""), ("c", "d")]
    assert text.emptied == {2}
    files = PairText(["short", "x" * 50], ["short", "short"], longest=20)
    assert files.pairs()[1][0] == "x" * 50  # lists have no limit


def test_a_huge_word_is_looked_up_by_its_beginning():
    assert fold("Ab" * 5000) == "ab" * 100
    huge = "ab" * 4500
    found = align_quick([(f"the {huge}", f"das {huge}")] * 3)
    assert (1, 1) in found[0].links
    assert align("deen", [(f"das {huge} Haus", f"the {huge} house")])[0].source[1] == huge
