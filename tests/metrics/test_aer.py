"""Pharaoh files and AER."""

import random
import warnings

import pytest

from hf_attncal import __version__
from hf_attncal.data.pharaoh import (
    GoldAlignment,
    check_index_base,
    check_inside_sentences,
    detect_index_base,
    displaced_pairs,
    displacement_warning,
    format_links,
    parse_alignments,
    parse_hypotheses,
    parse_scored,
)
from hf_attncal.metrics.aer import alignment_error_rate, find_index_mismatch, is_punctuation

# ---- reading and writing ----


@pytest.mark.parametrize(
    ("parse", "line", "message"),
    [
        (parse_alignments, "0-1 3_4", "'3_4' is not a link"),
        (parse_alignments, "0-1 -1-2", "'-1-2' is not a link"),
        (parse_hypotheses, "0-1 1-2:x", "'1-2:x'"),
        (parse_hypotheses, "0-1 -1-2", "'-1-2'"),
        (parse_hypotheses, "0-0:0.5 0-0:0.9", "'0-0:0.9'"),
        (parse_hypotheses, "1-1 0-0 0-0:0.9", "'0-0:0.9'"),
        (parse_hypotheses, "0-0 1?2", "'1?2' is a possible link"),
        (parse_hypotheses, "0-0 1p2:0.5", "'1p2:0.5' is a possible link"),
    ],
)
def test_a_token_that_is_no_link_is_named_with_its_line(parse, line, message):
    with pytest.raises(ValueError, match=r"^line 2: ") as raised:
        parse(["0-0", line])
    assert message in str(raised.value)


def test_base_one_counts_from_zero():
    assert parse_alignments(["1-2 2p1"], base=1)[0].possible == {(0, 1), (1, 0)}
    with pytest.raises(ValueError, match=r"line 1: .*'0-2'.*base 1"):
        parse_alignments(["0-2"], base=1)

    with pytest.raises(ValueError, match=r"`base`.*0.*1.*got 2"):
        parse_alignments(["2-2"], base=2)


def test_the_target_index_may_come_first():
    (pair,) = parse_alignments(["0-1 2p3"], reverse=True)
    assert (pair.sure, pair.possible) == ({(1, 0)}, {(1, 0), (3, 2)})
    assert parse_hypotheses(["1-2 3-1:0.5"], base=1, reverse=True) == [{(1, 0), (0, 2)}]


def test_links_are_written_as_they_are_read():
    links = {(10, 2), (2, 10), (0, 0)}
    assert format_links(links) == "0-0 2-10 10-2"
    assert parse_hypotheses([format_links(links)]) == [links]
    assert format_links([(1, 0), (0, 2)], [0.25, 1 / 3]) == "0-2:0.3333 1-0:0.2500"
    assert format_links([]) == format_links([], []) == ""
    with pytest.raises(ValueError, match="shorter"):
        format_links([(0, 0)], [])


def test_scores_of_links_are_read_where_every_link_has_one():
    assert parse_scored("2-1:.5 0-0:2e-1 0-0:0.2") == (((0, 0), (2, 1)), (0.2, 0.5))
    assert parse_scored("2-1 0-0:0.2") == (((0, 0), (2, 1)), None)
    assert parse_scored("") == ((), ())
    for twice in ("0-0:0.1 2-1 0-0:0.2", "0-0 0-0:0.2"):
        with pytest.raises(ValueError, match=r"link 0-0.*'0-0:0.2'"):
            parse_scored(twice)
    for wrong in ("0-0:1.5", "0-0:-0.1"):
        with pytest.raises(ValueError, match=rf"{wrong}.*outside 0 to 1"):
            parse_scored(wrong)
    with pytest.raises(ValueError, match="'0p0' is a possible link"):
        parse_scored("0p0")


# ---- index base ----


def test_a_one_based_file_is_recognised():
    gold = parse_alignments(["1-1 2-2"] * 10)
    with pytest.raises(ValueError, match=r"1-based.*base=1"):
        check_index_base(gold)
    with pytest.raises(ValueError, match=r"1-based.*base=1"):
        alignment_error_rate(gold, [set()] * 10)
    check_index_base(parse_alignments(["1-1 2-2"] * 10, base=1))


def test_a_link_outside_its_sentence_is_named():
    gold = parse_alignments(["0-0", "0-1 2p1"])
    check_index_base(gold, [(1, 1), (3, 2)])
    with pytest.raises(ValueError, match=r"line 2: link 2-1.*2 source.*2 target") as raised:
        check_index_base(gold, [(1, 1), (2, 2)])
    assert "1-based" not in str(raised.value)  # there is an index 0
    with pytest.raises(ValueError, match=r"2 lines.*1 sentence"):
        check_index_base(gold, [(1, 1)])


def test_the_base_is_detected_in_ten_pairs_with_links_and_not_in_nine():
    assert detect_index_base([{(1, 1)}] * 10) == 1
    assert detect_index_base([{(1, 1)}] * 9 + [set()] * 5) is None
    assert detect_index_base([{(1, 1)}] * 9 + [{(1, 0)}]) == 0
    assert detect_index_base([{(0, 3)}]) == 0
    assert detect_index_base(parse_alignments(["1-1"] * 9 + ["1-1 0p1"])) == 0
    assert detect_index_base([]) is None


def test_hypotheses_are_checked_like_gold():
    with pytest.raises(ValueError, match=r"1-based.*count from 0"):
        check_index_base([{(1, 1)}] * 10, remedy="count from 0")
    with pytest.raises(ValueError, match=r"line 1: link 1-2.*2 .*2 .*1-based"):
        check_inside_sentences([{(1, 1), (1, 2)}], [(2, 2)])
    check_inside_sentences([{(1, 1), (0, 1)}], [(2, 2)])


def slipped(pairs: int, of: int) -> tuple[list[set], list[tuple[list[str], list[str]]]]:
    """Sentence pairs of which the first `pairs` have links that slip by a token after the number."""
    words = ["on", "3", "may", "."], ["am", "3", "Mai", "."]
    right, wrong = {(0, 0), (1, 1), (2, 2), (3, 3)}, {(0, 0), (1, 1), (2, 1), (3, 2)}
    return [wrong] * pairs + [right] * (of - pairs), [words] * of


def test_links_that_slipped_inside_their_sentences_are_found():
    links, sentences = slipped(4, of=20)
    check_index_base(links, [(4, 4)] * 20)  # nothing else sees them
    assert displaced_pairs(links, sentences) == ([0, 1, 2, 3], 20)
    assert displaced_pairs(gold_of(links), sentences) == ([0, 1, 2, 3], 20)
    assert "4 of the 20 sentence pairs" in displacement_warning(links, sentences)
    assert "(lines 1, 2, 3, 4)" in displacement_warning(links, sentences)


def test_few_displaced_links_are_a_matter_of_taste():
    assert displacement_warning(*slipped(4, of=60)) is None
    assert displacement_warning(*slipped(5, of=60)) is not None
    assert displacement_warning(*slipped(2, of=20)) is None


def test_words_and_repeated_or_unlinked_marks_do_not_show_displacement():
    sentences = [(["a", ",", "b", ",", "7"], ["a", ",", "b", "8"])]
    assert displaced_pairs([{(0, 2), (1, 0)}], sentences) == ([], 0)
    sentences = [(["a", "."], ["b", "."])]
    assert displaced_pairs([{(0, 0)}], sentences) == ([], 1)  # nobody linked the stops: that is no displacement
    assert displaced_pairs([{(0, 0), (1, 0)}], sentences) == ([0], 1)


class LongLine(list):
    """Words of a line that is too long to be searched once for each of them."""

    def count(self, word):
        raise AssertionError("counts one word after the other")

    index = count


def test_displaced_links_of_a_long_line_are_found_in_one_go():
    words = [LongLine(map(str, range(20))) for _ in range(2)]
    assert displaced_pairs([{(i, i) for i in range(20)}], [tuple(words)]) == ([], 1)
    assert displaced_pairs([{(i, i + 1) for i in range(19)}], [tuple(words)]) == ([0], 1)


def some_corpus(pairs: int = 30) -> list[set]:
    """Links near the diagonal of sentences of 8 words."""
    generator = random.Random(1)
    return [{(i, min(7, max(0, i + generator.choice([-2, -1, 0, 0, 0, 1])))) for i in range(8)} for _ in range(pairs)]


def gold_of(links: list[set]) -> list[GoldAlignment]:
    return [GoldAlignment(frozenset(pair), frozenset(pair)) for pair in links]


def test_a_gold_file_off_by_one_is_noticed_even_if_it_has_an_index_zero():
    links = some_corpus()
    # 1-based, but with an explicit NULL word 0: no first word without links gives it away.
    lines = [" ".join(f"{i + 1}-{j + 1}" for i, j in pair) for pair in links]
    gold = parse_alignments([lines[0] + " 0-3", *lines[1:]])
    check_index_base(gold)
    with pytest.warns(UserWarning, match=r"raised by 1.*1-based"):
        score = alignment_error_rate(gold, links)
    assert 0.6 < score.aer < 0.8  # the error rate near 70 % that gives no other hint
    assert alignment_error_rate(gold_of(links), links).aer == 0


def test_a_hypothesis_off_by_one_or_exchanged_is_noticed():
    gold = gold_of(some_corpus())
    raised = [{(i + 1, j + 1) for i, j in pair} for pair in some_corpus()]
    assert "lowered by 1: the hypothesis looks 1-based" in find_index_mismatch(gold, raised)
    anti = [{(i, (3 * i + 1) % 8) for i in range(8)} for _ in range(10)]
    exchanged = [{(j, i) for i, j in pair} for pair in anti]
    assert "exchanged between source and target" in find_index_mismatch(gold_of(anti), exchanged)


def test_a_bad_hypothesis_is_not_taken_for_a_shifted_one():
    generator = random.Random(2)
    links = some_corpus()
    noise = [{(generator.randrange(8), generator.randrange(8)) for _ in range(8)} for _ in links]
    assert find_index_mismatch(gold_of(links), noise) is None
    assert find_index_mismatch(gold_of(links), links) is None
    few = links[:9]
    assert find_index_mismatch(gold_of(few), [{(i + 1, j + 1) for i, j in pair} for pair in few]) is None
    # Of 8 links 3 are right and 5 shifted: shifting back leaves more than half of the errors.
    mixed = [{(i + (i > 2), j + (i > 2)) for i, j in pair} for pair in links]
    back = [{(i - 1, j - 1) for i, j in pair} for pair in mixed]
    before, after = (alignment_error_rate(gold_of(links), pairs, check_indices=False).aer for pairs in (mixed, back))
    assert before > 0.3
    assert before * 0.5 < after < before * 0.9
    assert find_index_mismatch(gold_of(links), mixed) is None


def test_the_checks_can_be_turned_off():
    gold = parse_alignments(["1-1 2-2"] * 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert alignment_error_rate(gold, [{(0, 0), (1, 1)}] * 10, check_indices=False).aer == 0.5


# ---- error rate ----


def slow_score(
    gold: list[str], hypothesis: list[str], ignore_possible: bool = False, excluded: list | None = None
) -> dict[str, float]:
    """METHODS section 6 from the text of the files, link by link. `excluded`: (source, target) positions of pairs."""
    counts = {"A": 0, "S": 0, "AS": 0, "AP": 0, "P": 0}

    def halves(token: str, separator: str) -> tuple[int, int]:
        left, right = token.split(":")[0].split(separator)
        return int(left), int(right)

    for number, (gold_line, line) in enumerate(zip(gold, hypothesis, strict=True)):
        sure, possible, proposed = [], [], []
        for token in gold_line.split():
            separator = next(symbol for symbol in "-p?" if symbol in token)
            (sure if separator == "-" else possible).append(halves(token, separator))
        for token in line.split():
            proposed.append(halves(token, "-"))
        sources, targets = excluded[number] if excluded else ([], [])
        sure, possible, proposed = (
            [link for link in dict.fromkeys(links) if link[0] not in sources and link[1] not in targets]
            for links in (sure, possible, proposed)
        )
        if ignore_possible:
            possible = []
        counts["S"] += len(sure)
        counts["P"] += len(sure)
        for link in possible:
            counts["P"] += link not in sure
        for link in proposed:
            counts["A"] += 1
            counts["AS"] += link in sure
            counts["AP"] += link in sure or link in possible
    both = counts["A"] + counts["S"]
    precision = counts["AP"] / counts["A"] if counts["A"] else 1.0
    recall = counts["AS"] / counts["S"] if counts["S"] else 1.0
    return counts | {
        "aer": 1 - (counts["AS"] + counts["AP"]) / both if both else 0.0,
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0,
    }


def random_lines(generator: random.Random, pairs: int, kinds: str, most: int) -> list[str]:
    """Lines of up to `most` tokens, some of them repeated, over sentences of 4 words."""
    return [
        " ".join(
            f"{generator.randrange(4)}{generator.choice(kinds)}{generator.randrange(4)}"
            for _ in range(generator.randint(0, most))
        )
        for _ in range(pairs)
    ]


CORPORA = {
    "mixed": ("-p?", 6, 5),
    "only sure": ("-", 6, 5),
    "only possible": ("p?", 6, 5),
    "empty gold": ("-", 0, 5),
    "empty hypothesis": ("-p", 6, 0),
    "both empty": ("-", 0, 0),
}
SENTENCES = [(["a", ",", "b", "."], ["``", "c", "d", "!?"])] * 40
EXCLUDED = [([1, 3], [0, 3])] * 40


@pytest.mark.parametrize("punctuation", [True, False])
@pytest.mark.parametrize("ignore_possible", [False, True])
@pytest.mark.parametrize("corpus", CORPORA)
def test_scores_equal_those_of_a_slow_scorer(corpus, ignore_possible, punctuation):
    kinds, gold_links, proposed_links = CORPORA[corpus]
    generator = random.Random(corpus)
    gold = random_lines(generator, 40, kinds, gold_links)
    hypothesis = random_lines(generator, 40, "-", proposed_links)
    expected = slow_score(gold, hypothesis, ignore_possible, None if punctuation else EXCLUDED)
    score = alignment_error_rate(
        parse_alignments(gold),
        parse_hypotheses(hypothesis),
        ignore_possible=ignore_possible,
        sentences=SENTENCES,
        punctuation=punctuation,
    )
    for name in ("aer", "precision", "recall", "f1"):
        assert getattr(score, name) == pytest.approx(expected[name], abs=1e-12), name
    counts = (score.proposed, score.sure, score.sure_hits, score.possible_hits, score.possible)
    assert counts == tuple(expected[name] for name in ("A", "S", "AS", "AP", "P"))
    assert score.sentences == 40
    assert ("possible:ignored" in score.signature) == ignore_possible
    assert ("punct:excluded" in score.signature) != punctuation


def test_links_may_be_what_an_aligner_returns():
    gold = parse_alignments(["0-0 1-1", "0p1"])
    as_sets = [{(0, 0), (1, 0)}, {(0, 1)}]
    as_tuples = [tuple(sorted(links)) for links in as_sets]
    assert alignment_error_rate(gold, as_tuples) == alignment_error_rate(gold, as_sets)


def test_numbers_of_pairs_must_agree():
    with pytest.raises(ValueError, match=r"1 annotated.*2 proposed"):
        alignment_error_rate(parse_alignments(["0-0"]), [set(), set()])


def test_the_signature_describes_the_computation():
    score = alignment_error_rate(parse_alignments(["0-0"] * 3), [{(0, 0)}] * 3, symmetrization="intersection")
    assert score.signature.startswith("AER|base:0|possible:used|unit:word|symm:intersection|n:3|version:")
    assert str(score).startswith("AER 0.0 (precision 100.0, recall 100.0, F1 100.0) AER|base:0")
    score = alignment_error_rate(
        parse_alignments(["0-0"]) * 6,
        [{(0, 0)}] * 6,
        unit="subword",
        base="gold=0,hyp=1",
        ignore_possible=True,
        sentences=[(["a"], ["b"])] * 6,
        punctuation=False,
        bootstrap=2,
    )
    assert score.signature == (
        f"AER|base:gold=0,hyp=1|possible:ignored|punct:excluded|unit:subword|symm:none|n:6|version:{__version__}"
    )
    assert str(score).startswith("AER 0.0 [0.0, 0.0] (precision")


def test_links_must_be_inside_known_sentences():
    gold = parse_alignments(["0-0 1-1"])
    with pytest.raises(ValueError, match="The hypothesis: line 1: link 1-2"):
        alignment_error_rate(gold, [{(1, 2)}], sentences=[(["a", "b"], ["c", "d"])])
    with pytest.raises(ValueError, match="The gold alignment: line 1: link 1-1"):
        alignment_error_rate(gold, [set()], sentences=[(["a"], ["c", "d"])])
    with pytest.raises(ValueError, match=r"1 lines.*2 sentence"):
        alignment_error_rate(gold, [set()], sentences=[(["a"], ["c"])] * 2)
    with pytest.raises(ValueError, match=r"`punctuation=False`.*`sentences`"):
        alignment_error_rate(gold, [set()], punctuation=False)


def test_punctuation():
    for word in [".", "...", "¿", "«", "``", "''", "-", "–", "。", "&quot;", "&apos;", "%", "´"]:
        assert is_punctuation(word), word
    for word in ["a", "a.", "'s", "&apos;s", "1", "3.5", "$", "€", "+", "日", "", "-1"]:
        assert not is_punctuation(word), word


# ---- bootstrap ----


def test_the_seed_decides_and_no_resamples_give_no_interval():
    generator = random.Random(9)
    gold = parse_alignments(random_lines(generator, 25, "-p", 5))
    hypotheses = parse_hypotheses(random_lines(generator, 25, "-", 5))
    intervals = [alignment_error_rate(gold, hypotheses, bootstrap=50, seed=seed).interval for seed in (1, 1, 2)]
    assert intervals[0] == intervals[1] != intervals[2]
    assert alignment_error_rate(gold, hypotheses).interval is None
    assert alignment_error_rate([], [], bootstrap=50).interval is None
    assert alignment_error_rate(parse_alignments(["0-0"]) * 6, [set()] * 6, bootstrap=3).interval == (1, 1)
    assert alignment_error_rate(parse_alignments([""]) * 6, [set()] * 6, bootstrap=3).interval is None
    assert alignment_error_rate(parse_alignments(["0-0"]), [set()], bootstrap=3).interval is None
    with pytest.raises(ValueError, match=r"`bootstrap`.*0.*got -1"):
        alignment_error_rate(gold, hypotheses, bootstrap=-1)
