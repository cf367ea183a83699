"""Scores of links as probabilities: what is learned, saved, applied and refused."""

import math
import random
from copy import copy, deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from aligner_helpers import PAIRS, counting_aligner, tiny_mask_align
from aligner_helpers import TEXT as WORDS
from helpers import tiny_stock_model

from hf_attncal.alignment import LinkProbabilities, Seq2SeqAttention, WordAligner
from hf_attncal.alignment.gold import calibrate_links
from hf_attncal.alignment.links import SYMMETRIZATIONS
from hf_attncal.alignment.probabilities import PROBABILITIES_FILE, Platt, saved_probabilities
from hf_attncal.alignment.quality import mean_score
from hf_attncal.commands import main
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.data.tokenizer import train_bpe_tokenizer

RULES = {"harmonic": Platt(0.5, 1.0), "union": Platt(2.0, -1.0)}


@pytest.fixture(scope="module")
def aligner():
    tokenizer = train_bpe_tokenizer(WORDS * 3, vocab_size=70)
    return WordAligner(tiny_mask_align(tokenizer, alignment_threshold=0.1), tokenizer)


def with_probabilities(aligner: WordAligner, rules=RULES) -> WordAligner:
    return WordAligner(aligner.model, aligner.tokenizer, probabilities=LinkProbabilities(rules, 3))


def sentences(number: int) -> list[tuple[str, str]]:
    """Pairs of words in random order: their links have all kinds of scores."""
    generator = random.Random(4)
    source, target = (sorted({word for pair in PAIRS for word in pair[side].split()}) for side in (0, 1))
    return [(" ".join(generator.sample(source, 4)), " ".join(generator.sample(target, 4))) for _ in range(number)]


def annotated(aligner: WordAligner, right, number: int = 60) -> Gold:
    """Pairs whose links are right where `right(score)` says so."""
    pairs = sentences(number)
    links = [
        frozenset(link for link, score in zip(one.links, one.scores, strict=True) if right(score))
        for one in aligner.align(pairs, threshold=0.0, symmetrize="union")
    ]
    return Gold(pairs, [GoldAlignment(frozenset(), found) for found in links])


# ---- what is learned ----


def test_planted_probabilities_are_recovered():
    generator = torch.Generator().manual_seed(1)
    logits = torch.empty(40_000).uniform_(-6, 6, generator=generator)
    right = torch.rand(40_000, generator=generator) < torch.sigmoid(0.5 * logits + 1)
    found = Platt.fit(torch.sigmoid(logits).tolist(), right.tolist())
    assert found == (pytest.approx(0.5, abs=0.02), pytest.approx(1, abs=0.05))
    assert found.of([0.5]) == (pytest.approx(1 / (1 + math.exp(-found.intercept))),)


def test_links_that_are_all_right_have_a_finite_fit():
    found = Platt.fit([0.2, 0.9, 0.99], [True, True, True])
    assert all(map(math.isfinite, found))
    assert all(0.5 < p < 1 for p in found.of([0.0, 0.5, 1.0]))


def test_overconfident_scores_are_corrected_on_other_pairs(aligner):
    generator = random.Random(6)
    gold = annotated(aligner, lambda score: generator.random() < 0.2 + 0.4 * score, 400)
    halves = (Gold(gold.pairs[half::2], gold.links[half::2]) for half in (0, 1))
    learned = calibrate_links(aligner, next(halves))
    assert learned.probabilities.rules.keys() == set(SYMMETRIZATIONS)
    assert learned.probabilities.pairs == 200
    assert learned.after.count == learned.before.count
    measured = calibrate_links(aligner, next(halves))
    assert measured.after.ece < 0.5 * measured.before.ece
    assert learned.probabilities.rules["harmonic"] == (
        pytest.approx(measured.probabilities.rules["harmonic"].slope, abs=0.3),
        pytest.approx(measured.probabilities.rules["harmonic"].intercept, abs=0.3),
    )


@pytest.mark.parametrize(
    ("right", "told"),
    [(lambda score: True, r"(\d+) of \1 links are right"), (lambda score: False, r" 0 of \d+ links")],
)
def test_links_of_one_kind_cannot_be_calibrated(right, told, aligner):
    with pytest.raises(ValueError, match=told):
        calibrate_links(aligner, annotated(aligner, right))


def test_too_little_text_is_reported(aligner):
    with pytest.raises(ValueError, match=r"two.*pairs.*got 1"):
        calibrate_links(aligner, annotated(aligner, lambda score: score > 0.5, 1))
    nothing = Gold([("", "")] * 3, [GoldAlignment(frozenset(), frozenset())] * 3)
    with pytest.raises(ValueError, match="0 of 0 links"):
        calibrate_links(aligner, nothing)
    one = annotated(aligner, lambda score: score > 0.15, 1)
    with pytest.raises(ValueError, match="Annotate more pairs"):
        calibrate_links(aligner, Gold([*one.pairs, ("", "")], [*one.links, *nothing.links[:1]]))
    with pytest.raises(ValueError, match="are not higher than scores of wrong links"):
        calibrate_links(aligner, annotated(aligner, lambda score: score < 0.15))


# ---- what it does ----


def test_links_stay_and_scores_become_probabilities(aligner):
    raw, calibrated = aligner.align(PAIRS), with_probabilities(aligner).align(PAIRS)
    assert sum(len(one.links) for one in raw) > 5
    for before, after in zip(raw, calibrated, strict=True):
        assert (before.links, before.score, before.threshold) == (after.links, after.score, after.threshold)
        assert after.scores == RULES["harmonic"].of(before.scores)
        assert (before.calibrated, after.calibrated) == (False, True)
    assert calibrated[0].to_dict()["calibrated"] is True
    assert "probability to be right" in calibrated[0]._repr_html_()


def test_each_way_to_merge_has_its_own_rule(aligner):
    (raw,), (found,) = (one.align(PAIRS[:1], symmetrize="union") for one in (aligner, with_probabilities(aligner)))
    assert found.scores == RULES["union"].of(raw.scores)
    with pytest.raises(ValueError, match=r"'harmonic'.*'union'.*got 'forward'"):
        with_probabilities(aligner).align(PAIRS, symmetrize="forward")


def test_the_quality_of_an_aligner_is_computed_from_its_own_scores(aligner):
    """Probabilities need not know each way to merge, and pairs may come one by one."""
    calibrated = with_probabilities(aligner, {"union": Platt(0.5, 1.0)})
    scores = [one.score for one in aligner.align(PAIRS, symmetrize="harmonic")]
    assert mean_score(calibrated, iter(PAIRS)) == pytest.approx(sum(scores) / len(scores))
    assert mean_score(aligner, [("", "a")]) is None
    assert calibrated.probabilities is not None


def test_unlikely_links_are_left_out_on_request(aligner):
    whole = with_probabilities(aligner).align(PAIRS)
    middle = sorted(score for one in whole for score in one.scores)[3]
    some = with_probabilities(aligner).align(PAIRS, least_probability=middle)
    for before, after in zip(whole, some, strict=True):
        kept = [pair for pair in zip(before.links, before.scores, strict=True) if pair[1] >= middle]
        assert list(zip(after.links, after.scores, strict=True)) == kept
    assert 0 < sum(len(one.links) for one in some) == sum(len(one.links) for one in whole) - 3


@pytest.mark.parametrize(("least", "told"), [(0.5, "attncal align calibrate"), (1.5, "from 0 to 1, got 1.5")])
def test_a_minimum_probability_out_of_range_is_refused(least, told, aligner):
    with pytest.raises(ValueError, match=told):
        aligner.align(PAIRS, least_probability=least)


# ---- encoder-decoders ----


def test_the_attention_of_an_encoder_decoder_is_calibrated_for_what_is_read_of_it(aligner, tmp_path):
    tokenizer = aligner.tokenizer
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    special |= {"decoder_start_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.eos_token_id}
    model = tiny_stock_model("marian", torch.float32, vocab_size=len(tokenizer), max_position_embeddings=64, **special)
    reading = WordAligner(model, tokenizer, Seq2SeqAttention(layer=0))
    pairs = sentences(40)
    scored = reading.align(pairs)
    middle = sorted(score for one in scored for score in one.scores)[80]
    links = [
        frozenset(link for link, score in zip(one.links, one.scores, strict=True) if score > middle) for one in scored
    ]
    found = calibrate_links(reading, Gold(pairs, [GoldAlignment(one, one) for one in links])).probabilities
    assert list(found.rules) == ["forward"]
    assert found.settings == reading.settings.to_dict()
    found.save(tmp_path)
    reading.probabilities = saved_probabilities(tmp_path)
    (calibrated,) = reading.align(pairs[:1])
    # Alone a pair is rounded otherwise than in a batch.
    assert calibrated.scores == pytest.approx(found.rules["forward"].of(scored[0].scores), abs=1e-4)
    reading.source.choose(layer=1)
    with pytest.raises(ValueError, match=r"'layer': 0.*'layer': 1.*Calibrate again"):
        reading.align(pairs[:1])


# ---- text of another kind ----

ENGLISH = ["the old house", "a house", "the dog", "an old dog", "the house is old", "a dog is old", "the old dog runs"]
GERMAN = ["das alte Haus", "ein Haus", "der Hund", "ein alter Hund", "das Haus ist alt", "ein Hund ist alt"]
GERMAN += ["der alte Hund läuft"]
KNOWN, NEW = list(zip(ENGLISH, GERMAN, strict=True)), [("Pi Pi", "Pi"), ("q the dog", "der Hund zz yy xx")]


@pytest.fixture(scope="module")
def counted():
    """An aligner that counts, with probabilities that are above all of its scores."""
    result = counting_aligner(KNOWN * 5)
    result.probabilities = LinkProbabilities({"harmonic": Platt(1.0, 3.0)}, 7, unknown=(0.35, 0.45))
    return result


def slow_share(aligner, source: str, target: str) -> float:
    """Tokens of both sides that have no count of 0.5 or more with any token of the other side."""
    model, (s, t) = (
        aligner.model,
        (side.ids.tolist() for side in aligner.source.tokens_of([(source.split(), target.split())])),
    )
    table = dict(zip(model.pairs.tolist(), model.counts.tolist(), strict=True))
    known = {(x, y) for x in s for y in t if table.get(x * model.config.vocab_size + y, 0) >= 0.5}
    found = sum(any((x, y) in known for y in t) for x in s) + sum(any((x, y) in known for x in s) for y in t)
    return 1 - found / (len(s) + len(t))


def test_shares_of_uncounted_tokens_equal_the_loops(counted, aligner):
    pairs = [*KNOWN, *NEW]
    shares = counted.unknown_shares(pairs)
    assert shares == pytest.approx([slow_share(counted, *pair) for pair in pairs])
    assert max(shares[: len(KNOWN)]) <= 0.35 < min(shares[len(KNOWN) :])
    assert counted.unknown_shares([("", "a"), ("a", "")]) == [0, 0]
    assert aligner.unknown_shares(pairs) is None  # a network


def test_a_text_like_that_of_the_calibration_keeps_its_probabilities(counted):
    """Equal to the bit; for other text, probabilities move to the lower of probability and score."""
    raw = copy(counted)
    raw.probabilities = None
    pairs = [*KNOWN, *NEW, ("q x the dog dog", "der Hund Hund")]
    said = zip(raw.align(pairs), counted.align(pairs), counted.unknown_shares(pairs), strict=True)
    rule, shifts = counted.probabilities.rules["harmonic"], []
    for number, (before, after, share) in enumerate(said):
        shift = min(1, max(0, (share - 0.35) / 0.1))
        assert after.shift == pytest.approx(shift)
        assert after.links == before.links
        plain = rule.of(before.scores)
        if number < len(KNOWN):
            assert (after.shift, after.scores) == (0, plain)
        expected = [p + shift * (min(p, s) - p) for p, s in zip(plain, before.scores, strict=True)]
        assert after.scores == pytest.approx(expected)
        assert after.to_dict()["shift"] == after.shift
        assert "shift" not in before.to_dict()
        shifts.append(after.shift)
    assert shifts[len(KNOWN)] == 1
    assert any(0 < shift < 1 for shift in shifts)
    low = replace(counted.probabilities, rules={"harmonic": Platt(1.0, -3.0)})
    (one,) = raw.align(NEW[1:])
    assert low.applied(one, unknown=1.0).scores == low.applied(one).scores  # they are below the scores already
    assert low.applied(one, unknown=None).shift == 0
    assert replace(low, unknown=None).applied(one, unknown=1.0).shift == 0
    for ends, shift in (((1.0, 0.0), 1 - one.score), ((one.score,) * 2, 0), ((one.score + 0.1,) * 2, 1)):
        by_score = replace(low, unknown=None, score=ends)
        assert by_score.applied(one).shift == pytest.approx(shift)
        both = replace(by_score, unknown=(0.1, 0.3))
        assert both.applied(one, unknown=0.2).shift == pytest.approx(max(0.5, shift))


def test_text_that_an_aligner_adapted_to_counts_as_another_text(counted):
    adapted = copy(counted)
    adapted.source = copy(counted.source)
    adapted.source.model = deepcopy(counted.model)
    assert adapted.adapt(KNOWN).weight == 0
    assert adapted.probabilities == counted.probabilities
    assert adapted.adapt(NEW * 10).weight > 0
    assert [one.shift for one in adapted.align([*KNOWN, *NEW])] == [1] * 9


def test_calibration_keeps_what_share_of_a_pair_may_be_new(counted, aligner):
    generator = random.Random(6)
    pairs = [*KNOWN, *NEW] * 4
    links = [frozenset(link for link in one.links if generator.random() < 0.8) for one in counted.align(pairs)]
    found = calibrate_links(counted, Gold(pairs, [GoldAlignment(one, one) for one in links])).probabilities
    assert found.unknown == pytest.approx(np.quantile(counted.unknown_shares(pairs), (0.5, 0.75)))
    assert found.score == pytest.approx(np.quantile([one.score for one in counted.align(pairs)], (0.5, 0.25)))
    network = annotated(aligner, lambda score: generator.random() < 0.2 + 0.4 * score)
    found = calibrate_links(aligner, network).probabilities
    assert found.unknown is None
    assert found.score[0] > found.score[1] > 0


def test_the_command_warns_of_a_text_of_another_kind(counted, tmp_path, capfd):
    counted.model.save_pretrained(tmp_path)
    counted.tokenizer.save_pretrained(tmp_path)
    counted.probabilities.save(tmp_path)

    def told(pairs, *options) -> bool:
        for side, lines in zip(("s", "t"), zip(*pairs, strict=True), strict=True):
            (tmp_path / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
        files = ["--source", str(tmp_path / "s"), "--target", str(tmp_path / "t"), "--output", str(tmp_path / "links")]
        assert main(["align", "run", str(tmp_path), *files, *options]) == 0
        return "of the pairs are unlike the annotated text" in capfd.readouterr().err

    assert [told(KNOWN * 5, "--scores"), told(NEW[:1] * 20, "--scores"), told(NEW[:1] * 20)] == [False, True, False]


# ---- files ----


def test_the_calibration_beside_a_checkpoint_is_loaded_with_it(aligner, tmp_path):
    for part in (aligner.model, aligner.tokenizer):
        part.save_pretrained(tmp_path)
    assert WordAligner.from_pretrained(tmp_path, device="cpu").probabilities is None
    given = LinkProbabilities(RULES, 3)
    assert given.save(tmp_path) == tmp_path / PROBABILITIES_FILE
    loaded = WordAligner.from_pretrained(tmp_path, device="cpu")
    assert loaded.probabilities == given == saved_probabilities(tmp_path)
    assert "calibrated=True" in repr(loaded)
    assert loaded.align(PAIRS) == with_probabilities(aligner).align(PAIRS)


@pytest.mark.parametrize("text", ["", "[]", '{"pairs": 3, "rules": {"harmonic": {"slope": 1, "intercept": 1}}}'])
def test_a_file_of_another_kind_is_named(text, tmp_path):
    path = tmp_path / PROBABILITIES_FILE
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"{PROBABILITIES_FILE}.*attncal align calibrate"):
        LinkProbabilities.load(path)
