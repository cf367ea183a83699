"""AER by the tag of the target word, against counts by hand."""

import pytest

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.metrics.link_errors import aer_by_tag

SENTENCES = [(["the", "house", "is", "old"], ["das", "Haus", "ist", "alt"]), (["a", "dog"], ["ein", "Hund"])]
TAGS = [["D", "N", "V", "A"], ["D", "N"]]
GOLD = [
    GoldAlignment(frozenset({(0, 0), (1, 1), (3, 3)}), frozenset({(0, 0), (1, 1), (3, 3), (2, 2)})),
    GoldAlignment(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)})),
]
ATTENTION = [{(0, 0), (0, 1), (2, 2), (3, 3)}, {(1, 0), (1, 1)}]
OTHER = [{(0, 0), (1, 1), (2, 2)}, {(0, 0), (1, 1)}]


def by_hand(links, tag):
    """1 - (|A & S| + |A & P|) / (|A| + |S|) over the links whose target word has the tag."""
    hits = proposed = sure = 0
    for gold, of_pair, own in zip(GOLD, links, TAGS, strict=True):
        for i, j in of_pair:
            if own[j] == tag:
                proposed += 1
                hits += ((i, j) in gold.sure) + ((i, j) in gold.possible)
        sure += sum(own[j] == tag for _, j in gold.sure)
    return 1 - hits / (proposed + sure)


def test_errors_are_those_of_the_words_with_the_tag():
    found = aer_by_tag(GOLD, {"attention": ATTENTION, "other": OTHER}, TAGS, SENTENCES, bootstrap=0)
    overall, *by_tag = found
    assert overall.tag is None
    assert overall.words == 6
    assert overall.scores["attention"].aer == alignment_error_rate(GOLD, ATTENTION, sentences=SENTENCES).aer
    assert [(one.tag, one.words) for one in by_tag] == [("D", 2), ("N", 2), ("A", 1), ("V", 1)]
    for one in by_tag:
        for name, links in (("attention", ATTENTION), ("other", OTHER)):
            assert one.scores[name].aer == pytest.approx(by_hand(links, one.tag), abs=1e-12)
    assert {one.scores["attention"].aer for one in by_tag} == {0, 0.5}


def test_differences_have_an_interval_where_there_are_pairs_enough():
    links = {"attention": ATTENTION * 6, "other": OTHER * 6}
    for one in aer_by_tag(GOLD * 6, links, TAGS * 6, SENTENCES * 6, bootstrap=20):
        difference = one.differences["attention", "other"]
        assert difference.value == one.scores["attention"].aer - one.scores["other"].aer
        assert difference.interval[0] <= difference.value <= difference.interval[1]
    links = {"attention": ATTENTION * 3, "other": OTHER * 3}
    half = aer_by_tag(GOLD * 3, links, TAGS * 3, SENTENCES * 3, bootstrap=20)
    without = {one.tag for one in half if one.differences["attention", "other"].interval is None}
    assert without == {"A", "V"}  # in three pairs of six
    links = {"attention": ATTENTION, "other": OTHER}
    few = aer_by_tag(GOLD, links, TAGS, SENTENCES, bootstrap=20)
    assert {one.differences["attention", "other"].interval for one in few} == {None}


def test_without_resamples_there_are_no_differences():
    found = aer_by_tag(GOLD, {"attention": ATTENTION}, TAGS, SENTENCES, bootstrap=0)
    assert {one.differences for one in found} == {None}
    assert {one.scores["attention"].interval for one in found} == {None}


@pytest.mark.filterwarnings("error")
def test_few_words_of_a_kind_are_no_reason_to_doubt_the_indices():
    """No sentence starts with a verb, so its links by themselves would look 1-based, also a model's."""
    sentences = [(["a", "b"], ["c", "d"])] * 12
    gold = [GoldAlignment(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)}))] * 12
    found = aer_by_tag(gold, {"x": [{(1, 1)}] * 12}, [["N", "V"]] * 12, sentences, bootstrap=0)
    assert {one.tag: one.scores["x"].aer for one in found} == {None: 1 - 2 / 3, "N": 1.0, "V": 0.0}
    displaced = aer_by_tag(gold, {"x": [{(1, 0), (0, 1)}] * 12}, [["N", "V"]] * 12, sentences, bootstrap=0)
    assert {one.scores["x"].aer for one in displaced} == {1.0}


def test_input_that_does_not_fit_is_refused():
    links = {"attention": ATTENTION}
    with pytest.raises(ValueError, match=r"`links`.*at least one"):
        aer_by_tag(GOLD, {}, TAGS, SENTENCES)
    with pytest.raises(ValueError, match=r"`tags`.*2.*`gold`.*got 1"):
        aer_by_tag(GOLD, links, TAGS[:1], SENTENCES)
    with pytest.raises(ValueError, match=r"line 2: 3 tags.*2 target"):
        aer_by_tag(GOLD, links, [TAGS[0], ["D", "N", "N"]], SENTENCES)
    outside = frozenset({(5, 1)})
    with pytest.raises(ValueError, match=r"line 2: link 5-1.*2 source"):
        aer_by_tag([GOLD[0], GoldAlignment(outside, outside)], links, TAGS, SENTENCES)
    with pytest.raises(ValueError, match="The hypothesis: line 1: link 0-9"):
        aer_by_tag(GOLD, {"attention": [{(0, 9)}, set()]}, TAGS, SENTENCES)
    one_based = GoldAlignment(frozenset({(1, 1)}), frozenset({(1, 1)}))
    with pytest.raises(ValueError, match="it looks 1-based"):
        aer_by_tag([one_based] * 12, {"x": [set()] * 12}, [TAGS[1]] * 12, [SENTENCES[1]] * 12)
