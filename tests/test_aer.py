"""Pharaoh files, AER, and links from attention."""

import random

import pytest
import torch

from hf_attncal.alignment import (
    GoldAlignment,
    alignment_error_rate,
    argmax_links,
    check_index_base,
    extract_links,
    parse_alignments,
    subword_word_ids,
    word_attention,
)

# ---- reading ----


def test_sure_and_possible_links_are_read():
    (pair,) = parse_alignments(["0-0 1p2 3?1\n"])
    assert pair.sure == {(0, 0)}
    assert pair.possible == {(0, 0), (1, 2), (3, 1)}


def test_an_empty_line_is_a_pair_without_links():
    assert parse_alignments(["", "0-0"])[0] == GoldAlignment(frozenset(), frozenset())


@pytest.mark.parametrize("token", ["3", "3_4", "a-1", "1-", "-1-2", "1-2-3", "1.0-2"])
def test_a_token_that_is_no_link_is_named_with_its_line(token):
    with pytest.raises(ValueError, match=r"line 2: .* is not a link.*0-1 ") as raised:
        parse_alignments(["0-0", f"0-1 {token}"])
    assert token in str(raised.value)


def test_base_one_counts_from_zero():
    assert parse_alignments(["1-2 2p1"], base=1)[0].possible == {(0, 1), (1, 0)}
    with pytest.raises(ValueError, match=r"line 1: '0-2' has an index below the base 1"):
        parse_alignments(["0-2"], base=1)


# ---- index base ----


def test_a_one_based_file_is_recognised():
    gold = parse_alignments(["1-1 2-2"] * 10)
    with pytest.raises(ValueError, match=r"1-based.*base=1"):
        check_index_base(gold)
    with pytest.raises(ValueError, match=r"1-based.*base=1"):
        alignment_error_rate(gold, [set()] * 10)
    check_index_base(parse_alignments(["1-1 2-2"] * 10, base=1))


def test_one_link_of_a_first_word_is_enough_for_base_zero():
    check_index_base(parse_alignments(["1-1 2-2"] * 10 + ["3-0"]))


def test_a_link_outside_its_sentence_is_named():
    gold = parse_alignments(["0-0", "0-1 2p1"])
    check_index_base(gold, [(1, 1), (3, 2)])
    with pytest.raises(ValueError, match=r"line 2: link 2-1 lies outside a pair of 2 source and 2 target words"):
        check_index_base(gold, [(1, 1), (2, 2)])
    with pytest.raises(ValueError, match="2 lines of links for 1 sentence pairs"):
        check_index_base(gold, [(1, 1)])


# ---- error rate ----


def test_scores_by_hand():
    # |A| = 4, |S| = 3, |A & S| = 2, |A & P| = 3
    gold = parse_alignments(["0-0 1-1 2p1", "0-0"])
    score = alignment_error_rate(gold, [{(0, 0), (1, 1), (2, 1)}, {(1, 1)}])
    assert score.aer == pytest.approx(1 - 5 / 7)
    assert score.precision == pytest.approx(3 / 4)
    assert score.recall == pytest.approx(2 / 3)


def test_scores_equal_a_plain_count_over_random_corpora():
    generator = random.Random(0)
    cells = [(i, j) for i in range(4) for j in range(4)]

    def some_links(n):
        return set(generator.sample(cells, n))

    gold, hypotheses = [], []
    for _ in range(50):
        sure = some_links(generator.randint(0, 4))
        gold.append(GoldAlignment(frozenset(sure), frozenset(sure | some_links(3))))
        hypotheses.append(some_links(generator.randint(0, 5)))
    proposed = [(n, link) for n, links in enumerate(hypotheses) for link in links]
    sure = [(n, link) for n, pair in enumerate(gold) for link in pair.sure]
    possible = [(n, link) for n, pair in enumerate(gold) for link in pair.possible]
    hit_sure = sum(link in sure for link in proposed)
    hit_possible = sum(link in possible for link in proposed)
    score = alignment_error_rate(gold, hypotheses)
    assert score.aer == pytest.approx(1 - (hit_sure + hit_possible) / (len(proposed) + len(sure)))
    assert score.precision == pytest.approx(hit_possible / len(proposed))
    assert score.recall == pytest.approx(hit_sure / len(sure))


def test_perfect_and_empty_hypotheses():
    gold = parse_alignments(["0-0 1p1"])
    assert alignment_error_rate(gold, [{(0, 0)}]).aer == 0
    assert alignment_error_rate(gold, [{(0, 0), (1, 1)}]).aer == 0
    nothing = alignment_error_rate(gold, [set()])
    assert (nothing.aer, nothing.precision, nothing.recall) == (1, 1, 0)
    assert alignment_error_rate(parse_alignments([""]), [set()]).aer == 0


def test_numbers_of_pairs_must_agree():
    with pytest.raises(ValueError, match="1 annotated sentence pairs, but 2 proposed"):
        alignment_error_rate(parse_alignments(["0-0"]), [set(), set()])


def test_the_signature_says_how_the_score_was_computed():
    score = alignment_error_rate(parse_alignments(["0-0"] * 3), [{(0, 0)}] * 3, symmetrization="intersection")
    assert score.signature.startswith("AER|base:0|possible:used|unit:word|symm:intersection|n:3|version:")
    assert str(score).startswith("AER 0.0 (precision 100.0, recall 100.0) AER|base:0")


# ---- links from attention ----


def test_word_ids_follow_white_space_not_pieces():
    text = "don't  stop now"
    #          d  o  n'  t    _stop  n  ow   </s>
    offsets = [(0, 1), (1, 4), (4, 5), (6, 11), (12, 13), (13, 15), (0, 0)]
    assert subword_word_ids(text, offsets) == [0, 0, 0, 1, 2, 2, None]


def test_a_subword_of_white_space_only_begins_the_next_word():
    assert subword_word_ids(" a b ", [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]) == [0, 0, 1, 1, None]
    assert subword_word_ids("", []) == []


def test_word_attention_sums_source_subwords_and_averages_target_subwords():
    attention = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.3, 0.3, 0.2, 0.2], [0.0, 0.5, 0.5, 0.0]])
    words = word_attention(attention, [0, 0, 1, None], [0, 0, 1])
    torch.testing.assert_close(words, torch.tensor([[0.45, 0.25], [0.5, 0.5]]))


def test_padding_after_the_word_ids_is_left_out():
    attention = torch.tensor([[0.2, 0.1, 0.7], [0.9, 0.1, 0.0], [0.5, 0.5, 0.0]])
    assert extract_links(attention[None], [[0, 1]], [[0, 1]]) == [{(0, 0), (0, 1)}]


def test_a_word_without_subwords_gets_no_link():
    # Target word 1 has no subword: its row is zero.
    words = word_attention(torch.tensor([[0.2, 0.8], [0.9, 0.1]]), [0, 1], [0, 2])
    assert argmax_links(words) == {(1, 0), (0, 2)}


def test_argmax_takes_the_first_of_equals():
    assert argmax_links(torch.tensor([[0.1, 0.4, 0.4]])) == {(1, 0)}
    assert argmax_links(torch.zeros(0, 3)) == set()


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="3 word ids for 2 subwords"):
        word_attention(torch.ones(1, 2), [0, 1, 2], [0])
    with pytest.raises(ValueError, match=r"\(target, source\), got the shape \(1, 1, 2\)"):
        word_attention(torch.ones(1, 1, 2), [0, 1], [0])
