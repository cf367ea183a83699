"""Comprehensiveness and sufficiency against a reference that writes each perturbed source and reads it alone."""

import functools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from luong_helpers import tiny_luong
from seq2seq_helpers import KINDS, bpe_tokenizer, sized, text_model
from seq2seq_helpers import SOURCES as MORE_SOURCES
from seq2seq_helpers import TARGETS as MORE_TARGETS
from transformers import BartConfig, BartForCausalLM

from hf_attncal.inference.reading import batches_of_pairs
from hf_attncal.report.judged_faithfulness import AREAS, CUTS, MEASURES, best_words, faithfulness_falls
from hf_attncal.report.perturbations import OPERATORS, Change, Perturber, WordFrequencies

pytestmark = pytest.mark.half("family", "model")
SOURCES, TARGETS = MORE_SOURCES[:3], MORE_TARGETS[:3]
WORDS = [(len(target.split()), len(source.split())) for source, target in zip(SOURCES, TARGETS, strict=True)]


def random_scores(seed: int) -> list[np.ndarray]:
    """Return random scores, with negative ones and ties."""
    generator = np.random.default_rng(seed)
    return [generator.integers(-2, 6, size=words) / 5 for words in WORDS]


SCORES = {"one": random_scores(1), "other": random_scores(2)}


@pytest.fixture(params=KINDS)
def model(request, family):
    return text_model(family, request.param)


def falls_of(model, sources=SOURCES, targets=TARGETS, scores=SCORES, **options) -> dict[int, dict[str, np.ndarray]]:
    return dict(faithfulness_falls(model, bpe_tokenizer(), sources, targets, scores, **{"batch_size": 5, **options}))


# ---- reference ----


def word_of_token(text: str, start: int, end: int) -> int:
    """By the offsets of a token; -1 for a special one. One that ends in the space before a word is that word's."""
    return -1 if start == end else len(f"{text[:end]}.".split()) - 1


@functools.cache
@torch.no_grad()
def slow_log_probabilities(model, ids: tuple[int, ...], hidden: frozenset[int], target: str) -> list[float]:
    """Of all target words, from a pass of one sentence alone."""
    tokens = bpe_tokenizer()(target, return_offsets_mapping=True)
    labels = tokens["input_ids"]
    training = model.training
    model.eval()
    encoded = model.get_encoder()(torch.tensor([ids]), return_dict=True)
    visible = torch.tensor([[int(place not in hidden) for place in range(len(ids))]])
    read = torch.tensor([[model.config.decoder_start_token_id, *labels[:-1]]])
    logits = model(encoder_outputs=encoded, attention_mask=visible, decoder_input_ids=read).logits[0]
    model.train(training)
    found = [0.0] * len(target.split())
    for step, offsets in enumerate(tokens["offset_mapping"]):
        if (word := word_of_token(target, *offsets)) >= 0:
            found[word] += float(logits[step].log_softmax(dim=-1)[labels[step]])
    return found


def slow_fall(
    model, source: str, target: str, word: int, removed: set[int], operator: str, others: list[str]
) -> float:
    """By how much the log-probability of a target word falls without some source words."""
    tokenizer = bpe_tokenizer()
    tokens = tokenizer(source, return_offsets_mapping=True)
    ids, of_word = tokens["input_ids"], [word_of_token(source, *offsets) for offsets in tokens["offset_mapping"]]
    whole = slow_log_probabilities(model, tuple(ids), frozenset(), target)[word]
    words, hidden = source.split(), frozenset()
    if operator == "hide":
        hidden = frozenset(place for place, of in enumerate(of_word) if of in removed)
    elif operator == "unk":
        ids = [tokenizer.unk_token_id if of in removed else token for token, of in zip(ids, of_word, strict=True)]
    elif operator == "delete":
        ids = tokenizer(" ".join(word for i, word in enumerate(words) if i not in removed))["input_ids"]
    else:
        ids = tokenizer(" ".join(others[i] if i in removed else word for i, word in enumerate(words)))["input_ids"]
    return whole - slow_log_probabilities(model, tuple(ids), hidden, target)[word]


def perturber(model, **options) -> Perturber:
    words = WordFrequencies(Counter(" ".join(SOURCES).split()))
    return Perturber(model, bpe_tokenizer(), frequencies=words, **options)


def others_of(model, index: int) -> list[str]:
    """The words that stand in for those of a source."""
    ((pair,), _), *_ = batches_of_pairs(model, bpe_tokenizer(), [SOURCES[index]], [TARGETS[index]])
    return perturber(model).others(pair, SOURCES[index].split())


def slow_best(row: list[float], cut: float) -> set[int]:
    count = cut if isinstance(cut, int) else math.ceil(cut * len(row) - 1e-9)
    return set(sorted(range(len(row)), key=lambda i: (-row[i], i))[:count])


# ---- values ----


@pytest.mark.third("family", "model", "operator")
@pytest.mark.parametrize("operator", OPERATORS)
def test_hard_falls_equal_those_of_separately_read_sources(model, operator):
    index = 1
    found = falls_of(model, operators=[operator])[index]["one"][0]
    source, target, others = SOURCES[index], TARGETS[index], others_of(model, index)
    everything = set(range(len(source.split())))
    for word, row in enumerate(SCORES["one"][index].tolist()):
        for area in AREAS:
            falls = []
            for cut in CUTS:
                best = slow_best(row, cut)
                removed = best if area == "comprehensiveness" else everything - best
                falls.append(slow_fall(model, source, target, word, removed, operator, others))
                assert found[MEASURES.index(f"{area}@{cut}")][word] == pytest.approx(falls[-1], abs=1e-10)
            assert found[MEASURES.index(area)][word] == pytest.approx(sum(falls) / len(falls), abs=1e-10)


def test_a_change_that_keeps_every_word_changes_nothing(family):
    model = text_model(family, "stock")
    ((pair,), _), *_ = batches_of_pairs(model, bpe_tokenizer(), [SOURCES[0]], [TARGETS[0]])
    for operator in OPERATORS:
        kept = Change(operator, np.ones(pair.source.words, dtype=bool).tobytes())
        ((whole, changed),) = perturber(model).log_probabilities([pair], [SOURCES[0]], [{kept: [0]}])
        assert (changed[kept] == whole).all()


def test_a_recurrent_model_is_measured():
    tokenizer = bpe_tokenizer()
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer), "max_source_length": 64}
    size |= {name: getattr(tokenizer, name) for name in ("pad_token_id", "eos_token_id")}
    falls = falls_of(tiny_luong(**size, decoder_start_token_id=tokenizer.pad_token_id))
    assert sorted(falls) == list(range(len(SOURCES)))


# ---- batches, order, seeds ----


@pytest.mark.parametrize(
    ("batch_size", "family", "kind"),
    [(1, "marian", "ours"), pytest.param(64, "bart", "stock", marks=pytest.mark.slow)],
)
def test_neither_batch_nor_order_nor_company_changes_anything(batch_size, family, kind):
    model = text_model(family, kind)
    expected = falls_of(model)
    turned = [list(reversed(side)) for side in (SOURCES, TARGETS)]
    scores = {name: list(reversed(of)) for name, of in SCORES.items()}
    found = falls_of(model, *turned, scores, batch_size=batch_size)
    last = len(SOURCES) - 1
    for index, falls in expected.items():
        for name, values in falls.items():
            np.testing.assert_allclose(found[last - index][name], values, atol=1e-9)
    frequencies = Counter(" ".join(SOURCES).split())  # a pair alone draws from what all have
    one = {"one": SCORES["one"][:1]}
    alone = falls_of(model, SOURCES[:1], TARGETS[:1], one, frequencies=frequencies)
    np.testing.assert_allclose(alone[0]["one"], expected[0]["one"], atol=1e-9)


def test_pairs_with_a_side_of_no_word_are_left_out():
    model = text_model("marian", "stock")
    scores = {"one": [SCORES["one"][0], None, None]}
    found = falls_of(model, [SOURCES[0], " ", "a"], [TARGETS[0], "b", ""], scores)
    assert sorted(found) == [0]


# ---- sets ----


def test_best_words_by_number_and_by_share():
    row = np.array([[0.2, 0.9, 0.2, -1.0, 0.5]])
    assert best_words(row, 1).tolist() == [[False, True, False, False, False]]
    assert best_words(row, 3).tolist() == [[True, True, False, False, True]]  # the first of equals
    assert best_words(row, 9).all()
    assert best_words(row, 0.2).sum() == 1
    assert best_words(row, 0.21).sum() == 2
    assert best_words(row, 1.0).all()
    assert best_words(np.zeros((1, 10)), 0.3).sum() == 3  # and not 4: 0.3 * 10 is above 3


def test_words_are_replaced_by_others_in_proportion_to_their_frequency():
    table = WordFrequencies({"b": 6, "a": 3, "c": 1})
    generator = np.random.default_rng(0)
    drawn = Counter(table.others(["x"] * 4000, generator))
    assert {word: pytest.approx(count / 4000, abs=0.03) for word, count in drawn.items()} == {
        "a": 0.3,
        "b": 0.6,
        "c": 0.1,
    }
    assert set(table.others(["b"] * 500, generator)) == {"a", "c"}
    assert table.others(["b", "a"], np.random.default_rng(1)) == WordFrequencies({"c": 1, "a": 3, "b": 6}).others(
        ["b", "a"], np.random.default_rng(1)
    )


# ---- errors ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": {}}, "must have at least one method, got none"),
        ({"scores": {"x": SCORES["one"][:2]}}, "of 'x' must have 3 pairs, got 2"),
        ({"scores": {"x": [matrix.T for matrix in SCORES["one"]]}}, r"of 'x' for pair \d .* must be \(target words"),
        ({"scores": {"x": [None] * 3}}, "of 'x' for pair 0 .* got None"),
        ({"scores": {"x": [matrix * np.nan for matrix in SCORES["one"]]}}, "must be finite numbers"),
        ({"operators": ()}, "`operators` must be some of replace, hide, unk, delete"),
        ({"operators": ("drop",)}, r"got \('drop',\)"),
        ({"frequencies": {"a": 1}}, "at least two words"),
        ({"batch_size": 0}, "`batch_size` must be >= 1, got 0"),
        (
            {"sources": ["", " "], "targets": ["a", "b"], "scores": {"x": [None, None]}},
            "words on both sides, got none",
        ),
        ({"sources": [], "targets": [], "scores": {"x": []}}, "got none among 0 and 0 sentences"),
        ({"targets": TARGETS[:2]}, "must be pairs, got 3 and 2"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        falls_of(text_model("marian", "stock"), **changes)


def test_a_tokenizer_without_an_unknown_token_is_refused_for_that_operator():
    class Tokenizer:
        unk_token_id = None

    with pytest.raises(ValueError, match=r"'unk'.*`unk_token_id`"):
        Perturber(text_model("marian", "stock"), Tokenizer(), ("unk",))
    Perturber(text_model("marian", "stock"), Tokenizer(), ("delete",))


def test_models_without_cross_attention_are_refused():
    tokenizer = bpe_tokenizer()
    decoder = BartForCausalLM(BartConfig(**sized(tokenizer)))
    with pytest.raises(ValueError, match="must be an encoder-decoder"):
        falls_of(decoder)
    with pytest.raises(ValueError, match="`attention_window`"):
        falls_of(tiny_luong(attention_window=None, input_feeding=False))


def test_a_source_of_which_nothing_is_left_is_refused():
    """Without a special token at its end."""
    tokenizer, model = bpe_tokenizer(), text_model("marian", "stock")
    ((pair,), _), *_ = batches_of_pairs(model, tokenizer, [SOURCES[0]], [TARGETS[0]])
    bare = replace(pair, source=pair.source._replace(ids=pair.source.ids[:-1], word_ids=pair.source.word_ids[:-1]))
    nothing = Change("hide", np.zeros(pair.source.words, dtype=bool).tobytes())
    with pytest.raises(ValueError, match=r"'hide'.*pair 0"):
        perturber(model).log_probabilities([bare], [SOURCES[0]], [{nothing: [0]}])


def test_a_source_that_grows_beyond_the_positions_of_the_model_is_refused():
    frequencies = {"Donaudampfschifffahrtsgesellschaft" * 3: 1, "x" * 70: 1}
    with pytest.raises(ValueError, match=r"'replace'.*pair \d.*64"):
        falls_of(text_model("marian", "stock"), operators=("replace",), frequencies=frequencies)
