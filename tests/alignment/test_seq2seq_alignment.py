"""Alignment from encoder-decoders: teacher-forced attention, the search for the best heads.

The reference for a row of attention is a forward pass of one sentence alone, up to that step and no further.
"""

import copy
import functools
import itertools
import json
from dataclasses import replace

import pytest
import torch
from helpers import FAMILIES, assert_close
from seq2seq_helpers import KINDS, PAIRS, SOURCES, TARGETS, bpe_tokenizer, randomized, rows_of_pass, sized, text_model

from hf_attncal.alignment import (
    GoldAlignment,
    Seq2SeqAttention,
    WordAligner,
    alignment_error_rate,
    argmax_links,
    select_attention,
    seq2seq_weights,
)
from hf_attncal.alignment.attention_heads import _mean_of
from hf_attncal.alignment.gold import score_aligner, tune_threshold
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.inference.head_search import HeadPlace


@pytest.fixture(params=KINDS)
def model(request, family):
    return text_model(family, request.param)


def words_by_loops(rows, source_word_ids, target_word_ids, source_words, target_words):
    """(target words, source words): sums over source subwords, means over target subwords, cell by cell."""
    result = torch.zeros(target_words, source_words, dtype=rows.dtype)
    for j, i in itertools.product(range(target_words), range(source_words)):
        of_target = [t for t, word in enumerate(target_word_ids) if word == j]
        total = sum(rows[t, s] for t in of_target for s, word in enumerate(source_word_ids) if word == i)
        result[j, i] = total / len(of_target)
    return result


def words_of(tokenizer, text):
    """Ids, and the word of each: every word on its own, then the end of sentence."""
    alone = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in text.split()]
    ids = [token for tokens in alone for token in tokens]
    assert tokenizer(text)["input_ids"] == [*ids, tokenizer.eos_token_id]
    return [*ids, tokenizer.eos_token_id], [n for n, tokens in enumerate(alone) for _ in tokens] + [None]


# ---- rows ----


# ---- weights between words ----


def test_the_search_and_the_weights_read_contributions(family):
    model = text_model(family, "ours")
    gold = [GoldAlignment(frozenset(pair.links), frozenset(pair.links)) for pair in PAIRS]
    settings, score = select_attention(model, bpe_tokenizer(), SOURCES, TARGETS, gold, weights="contribution")[0]
    assert settings.weights == "contribution"
    weights = seq2seq_weights(model, bpe_tokenizer(), SOURCES, TARGETS, settings)
    assert alignment_error_rate(gold, [argmax_links(pair) for pair in weights]).aer == score.aer
    plain = seq2seq_weights(model, bpe_tokenizer(), SOURCES, TARGETS, replace(settings, weights="attention"))
    assert not torch.allclose(weights[0], plain[0])


@pytest.mark.parametrize(
    "settings",
    [
        Seq2SeqAttention(0, shift=False),
        Seq2SeqAttention(-1, shift=True),
        Seq2SeqAttention(1, heads=(1,), shift=True),
        Seq2SeqAttention(2, heads=(1, 0), shift=False),
    ],
    ids=str,
)
def test_weights_between_words(model, settings):
    tokenizer = bpe_tokenizer()
    found = seq2seq_weights(model, tokenizer, SOURCES, TARGETS, settings, batch_size=3)
    assert any(len(words_of(tokenizer, text)[0]) > len(text.split()) + 1 for text in TARGETS)
    for source, target, weights in zip(SOURCES, TARGETS, found, strict=True):
        source_ids, source_words = words_of(tokenizer, source)
        target_ids, target_words = words_of(tokenizer, target)
        # Every token is a decoder input here, so that each has a row of its own for Shift-Att.
        steps = rows_of_pass(model, source_ids, [tokenizer.pad_token_id, *target_ids])
        steps = steps[settings.layer][list(settings.heads or (0, 1))].mean(dim=0)
        rows = steps[1:] if settings.shift else steps[:-1]
        expected = words_by_loops(rows, source_words, target_words, len(source.split()), len(target.split()))
        assert_close(weights, expected, 1e-10)


def test_pairs_without_words_have_no_cells(model):
    tokenizer = bpe_tokenizer()
    sources, targets = [SOURCES[0], "", " \t", SOURCES[1]], ["", TARGETS[0], "", TARGETS[1]]
    found = seq2seq_weights(model, tokenizer, sources, targets)
    assert [tuple(weights.shape) for weights in found[:3]] == [
        (0, len(SOURCES[0].split())),
        (len(TARGETS[0].split()), 0),
        (0, 0),
    ]
    assert_close(found[3], seq2seq_weights(model, tokenizer, SOURCES[1:2], TARGETS[1:2])[0], 1e-10)
    assert seq2seq_weights(model, tokenizer, [], []) == []


def test_the_default_is_shift_att_in_the_middle():
    assert [Seq2SeqAttention.default(layers).layer for layers in (1, 2, 3, 6, 12)] == [0, 0, 0, 2, 5]
    model, tokenizer = text_model("marian", "stock"), bpe_tokenizer()
    default = seq2seq_weights(model, tokenizer, SOURCES[:1], TARGETS[:1])[0]
    explicit = seq2seq_weights(model, tokenizer, SOURCES[:1], TARGETS[:1], Seq2SeqAttention(0, shift=True))[0]
    assert torch.equal(default, explicit)


def test_the_prefix_is_read_by_the_model_and_has_no_words(model):
    tokenizer = bpe_tokenizer()
    prefix = "the dog "
    (plain,) = seq2seq_weights(model, tokenizer, [prefix + SOURCES[0]], TARGETS[:1], Seq2SeqAttention(1))
    settings = Seq2SeqAttention(1, source_prefix=prefix)
    (weights,) = seq2seq_weights(model, tokenizer, SOURCES[:1], TARGETS[:1], settings)
    assert_close(weights, plain[:, 2:])


# ---- errors ----


def test_a_pair_that_is_too_long_is_named(model):
    tokenizer = bpe_tokenizer()
    long = " ".join(SOURCES)
    number = len(tokenizer(long)["input_ids"])
    for sources, targets, side in (
        ([SOURCES[0], long], TARGETS[:2], "source"),
        (SOURCES[:2], [TARGETS[0], long], "target"),
    ):
        message = rf"pair 1 \(counted from 0\) has {number} {side} tokens, the model takes at most 64"
        with pytest.raises(ValueError, match=message):
            seq2seq_weights(model, tokenizer, sources, targets)


def test_wrong_arguments_are_named(model):
    tokenizer = bpe_tokenizer()
    call = functools.partial(seq2seq_weights, model, tokenizer)
    with pytest.raises(ValueError, match="got 2 and 1 sentences"):
        call(SOURCES[:2], TARGETS[:1])
    with pytest.raises(ValueError, match=r"`batch_size`.*1.*got 0"):
        call(SOURCES, TARGETS, batch_size=0)
    with pytest.raises(ValueError, match=r"`layer`.*-3.*2.*got 3"):
        call(SOURCES, TARGETS, Seq2SeqAttention(3))
    with pytest.raises(ValueError, match=r"`layer`.*-3.*2.*got -4"):
        call(SOURCES, TARGETS, Seq2SeqAttention(-4))
    with pytest.raises(ValueError, match=r"`heads`.*0.*1.*got \(0, 2\)"):
        call(SOURCES, TARGETS, Seq2SeqAttention(0, heads=(0, 2)))


def test_a_model_that_gives_no_weights_is_refused(monkeypatch):
    model = text_model("marian", "stock")
    monkeypatch.setattr(type(model), "set_attn_implementation", lambda *args: None)
    with pytest.raises(ValueError, match=r"'marian'.*'sdpa'.*'eager'"):
        seq2seq_weights(model, bpe_tokenizer(), SOURCES, TARGETS)


# ---- settings ----


def test_settings_are_saved_with_the_checkpoint(tmp_path):
    settings = Seq2SeqAttention(-2, heads=(3, 1), shift=False, source_prefix=">>deu<< ")
    assert settings.save(tmp_path) == tmp_path / "alignment.json"
    assert Seq2SeqAttention.load(tmp_path) == settings
    assert Seq2SeqAttention.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    assert Seq2SeqAttention.from_dict({"layer": 1}) == Seq2SeqAttention(1)
    above = Seq2SeqAttention(1, threshold=0.25)
    above.save(tmp_path)
    assert Seq2SeqAttention.load(tmp_path) == above


@pytest.mark.parametrize("text", ['{"layer": 1, "head": [1]}', "{}", "[1]", '{"layer": "1"}', "{"])
def test_a_file_with_other_content_is_named(tmp_path, text):
    (tmp_path / "alignment.json").write_text(text)
    with pytest.raises(ValueError, match=r"alignment\.json cannot be used: .*`attncal align select"):
        Seq2SeqAttention.load(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer": 1.0}, "`layer` must be a whole number, got 1.0"),
        ({"layer": True}, "`layer` must be a whole number, got True"),
        ({"layer": 0, "heads": ()}, r"`heads` must be .* got \(\)"),
        ({"layer": 0, "heads": (1, 1)}, r"`heads` .*got \(1, 1\)"),
        ({"layer": 0, "heads": (-1,)}, r"`heads` .*got \(-1,\)"),
        ({"layer": 0, "heads": 2}, "`heads` .*got 2"),
        ({"layer": 0, "shift": 1}, "`shift` must be True or False, got 1"),
        ({"layer": 0, "weights": "masks"}, "`weights` must be one of .*, got 'masks'"),
        ({"layer": 0, "source_prefix": None}, "`source_prefix` must be text, got None"),
        ({"layer": 0, "threshold": 1.5}, "`threshold` must be from 0 to 1, got 1.5"),
        ({"layer": 0, "threshold": True}, "`threshold` must be from 0 to 1, got True"),
        ({"layer": 0, "threshold": "0.5"}, "`threshold` must be from 0 to 1, got '0.5'"),
    ],
)
def test_wrong_settings_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Seq2SeqAttention(**fields)


# ---- a threshold ----


def test_a_threshold_of_the_settings():
    """It is the default, links words with more weight, and can be changed."""
    model, pairs = copy.deepcopy(text_model("marian", "stock")), list(zip(SOURCES, TARGETS, strict=True))
    best = WordAligner(model, bpe_tokenizer(), Seq2SeqAttention(1))
    aligner = WordAligner(model, bpe_tokenizer(), Seq2SeqAttention(1, threshold=0.2))
    expected = best.align(pairs, threshold=0.2)
    found = aligner.align(pairs)
    assert [one.links for one in found] == [one.links for one in expected]
    assert found[0].threshold == 0.2
    expected = seq2seq_weights(model, bpe_tokenizer(), SOURCES, TARGETS, Seq2SeqAttention(1))
    for weights, one in zip(expected, found, strict=True):
        assert set(one.links) == {(s, t) for t, s in (weights > 0.2).nonzero().tolist()}
    assert [one.links for one in found] != [one.links for one in best.align(pairs)]
    aligner.choose(source_prefix="")
    assert aligner.settings.threshold == 0.2
    aligner.choose(layer=0)  # for whose weights the threshold was not chosen
    assert aligner.settings == Seq2SeqAttention(0)
    aligner.choose(layer=1, threshold=0.2)
    assert aligner.settings == Seq2SeqAttention(1, threshold=0.2)
    aligner.choose(threshold=None)
    assert [one.links for one in aligner.align(pairs)] == [one.links for one in best.align(pairs)]


def test_the_best_threshold():
    """The best threshold of all weights and of the best source word equals a search over single alignments."""
    model, pairs = copy.deepcopy(text_model("marian", "stock")), list(zip(SOURCES, TARGETS, strict=True))
    aligner = WordAligner(model, bpe_tokenizer(), Seq2SeqAttention(1))
    tried = (0.1, 0.2, 0.3, 0.9)
    for wanted in (None, 0.2):
        links = [frozenset(one.links) for one in aligner.align(pairs, threshold=wanted)]
        gold = Gold(pairs, [GoldAlignment(one, one) for one in links])
        threshold, score = tune_threshold(aligner, gold, tried)
        assert (threshold, score.aer) == (wanted, 0)
        least = min(score_aligner(aligner, gold, tau).aer for tau in (None, *tried))
        assert tune_threshold(aligner, gold, tried)[1].aer == least
    links = [frozenset(one.links) for one in aligner.align(pairs, threshold=0.2)]
    gold = Gold(pairs, [GoldAlignment(one, one) for one in links])
    assert tune_threshold(aligner, gold, (0.1, 0.3))[1].aer == min(
        score_aligner(aligner, gold, tau).aer for tau in (None, 0.1, 0.3)
    )


# ---- the search ----


def test_every_candidate_has_the_score_of_an_alignment_with_it():
    model, tokenizer = text_model("bart", "ours"), bpe_tokenizer()
    gold = [GoldAlignment(pair.links, pair.links) for pair in PAIRS]
    ranked = select_attention(model, tokenizer, SOURCES, TARGETS, gold)
    # 3 layers x 2 rows x (all heads, head 0, head 1); with two heads a greedy set is one of these.
    expected = {
        Seq2SeqAttention(layer, heads, shift)
        for layer, heads, shift in itertools.product(range(3), (None, (0,), (1,)), (False, True))
    }
    alone = [settings for settings, _ in ranked if settings.beside is None]
    assert set(alone) == expected
    assert len(alone) == len(expected)
    assert all(settings.beside is None for settings, _ in ranked[1:])  # the mean of several, which is the best
    for settings, score in ranked:
        weights = seq2seq_weights(model, tokenizer, SOURCES, TARGETS, settings)
        assert score == alignment_error_rate(gold, [argmax_links(pair) for pair in weights])
    rates = [score.aer for _, score in ranked]
    assert rates == sorted(rates)
    assert len(set(rates)) > 5


def test_the_mean_of_the_step_before_and_after_a_token_comes_first_where_it_is_better_by_more_than_noise(tmp_path):
    model, tokenizer = text_model("marian", "stock"), bpe_tokenizer()
    one, other = Seq2SeqAttention(1, (1,), True), Seq2SeqAttention(1, (0,), False)
    each = [seq2seq_weights(model, tokenizer, SOURCES, TARGETS, settings) for settings in (one, other)]
    means = [(a + b) / 2 for a, b in zip(*each, strict=True)]
    links = [frozenset(argmax_links(pair)) for pair in means]
    gold = [GoldAlignment(pair, pair) for pair in links]
    # It is right for one more link, then, in eight times the text, for eight.
    alone, score = select_attention(model, tokenizer, SOURCES, TARGETS, gold)[0]
    assert (alone.beside, score.possible_hits) == (None, score.proposed - 1)
    ranked = select_attention(model, tokenizer, 8 * SOURCES, 8 * TARGETS, 8 * gold)
    best, score = ranked[0]
    assert score.aer == 0 < ranked[1][1].aer
    assert {replace(best, beside=None), best.beside} == {one, other}
    found = WordAligner(model, tokenizer, best).align(zip(SOURCES, TARGETS, strict=True))
    assert [frozenset(pair.links) for pair in found] == links
    best.save(tmp_path)
    assert Seq2SeqAttention.load(tmp_path) == best
    assert best.to_dict() == Seq2SeqAttention.from_dict(best.to_dict()).to_dict()
    with pytest.raises(ValueError, match="`beside` needs `weights='attention'`"):
        replace(one, weights="contribution", beside=other)


@functools.cache
def many_heads():
    config_class, model_class, _, _ = FAMILIES["marian"]
    torch.manual_seed(1)
    model = model_class(config_class(**sized(bpe_tokenizer(), decoder_attention_heads=4, decoder_layers=1)))
    return randomized(model.double())


def test_the_set_of_heads_is_that_of_a_plain_greedy_search():
    model, tokenizer = many_heads(), bpe_tokenizer()
    # What two of the four heads see together.
    links = [
        argmax_links(pair) for pair in seq2seq_weights(model, tokenizer, SOURCES, TARGETS, Seq2SeqAttention(0, (1, 3)))
    ]
    gold = [GoldAlignment(frozenset(pair), frozenset(pair)) for pair in links]
    weights = {
        (head, shift): seq2seq_weights(model, tokenizer, SOURCES, TARGETS, Seq2SeqAttention(0, (head,), shift))
        for head, shift in itertools.product(range(4), (False, True))
    }

    def right(places):
        found = [
            argmax_links(torch.stack([weights[place][n] for place in places]).mean(dim=0)) for n in range(len(SOURCES))
        ]
        return [int(link in gold[n].sure) for n, pair in enumerate(found) for link in sorted(pair, key=lambda x: x[1])]

    best: tuple = ()
    while True:
        larger = max(((*best, place) for place in weights if place not in best), key=lambda places: sum(right(places)))
        gains = [b - a for a, b in zip(right(best) if best else itertools.repeat(0), right(larger), strict=False)]
        if 8 * sum(gains) <= 2 * (8 * sum(gain**2 for gain in gains)) ** 0.5:
            break
        best = larger
    settings, _ = select_attention(model, tokenizer, 8 * SOURCES, 8 * TARGETS, 8 * gold)[0]
    assert {(head, one.shift) for one in settings.readings for head in one.heads} == set(best)
    assert set(best) == {(1, True), (3, True)}
    few = select_attention(model, tokenizer, SOURCES[:1], TARGETS[:1], gold[:1])[0][0]  # too few words to be sure
    assert few.beside is None
    assert few.heads is None or len(few.heads) == 1


def test_the_settings_of_a_set_read_its_mean():
    model, tokenizer = many_heads(), bpe_tokenizer()
    places = HeadPlace(0, 2, True), HeadPlace(0, 0, True), HeadPlace(0, 1, False), HeadPlace(0, 3, False)
    one_by_one = {
        place: seq2seq_weights(model, tokenizer, SOURCES, TARGETS, Seq2SeqAttention(0, (place.head,), place.shift))
        for place in places
    }
    for chosen, readings in ((places, 2), (places[:3], 3), (places[:2], 1), (places[:1], 1)):
        settings = _mean_of(chosen, Seq2SeqAttention(0))
        assert len(settings.readings) == readings
        found = seq2seq_weights(model, tokenizer, SOURCES, TARGETS, settings)
        for each, mean in zip(zip(*(one_by_one[place] for place in chosen), strict=True), found, strict=True):
            torch.testing.assert_close(mean, torch.stack(each).mean(dim=0))


def test_annotations_must_fit():
    model, tokenizer = text_model("marian", "stock"), bpe_tokenizer()
    none = GoldAlignment(frozenset(), frozenset())
    outside = GoldAlignment(frozenset({(99, 0)}), frozenset({(99, 0)}))
    with pytest.raises(ValueError, match="line 1: link 99-0"):
        select_attention(model, tokenizer, SOURCES[:1], TARGETS[:1], [outside])
    with pytest.raises(ValueError, match=r"1 lines.*2 sentence"):
        select_attention(model, tokenizer, SOURCES[:2], TARGETS[:2], [none])
    with pytest.raises(ValueError, match="words on both sides"):
        select_attention(model, tokenizer, [""], TARGETS[:1], [none])
