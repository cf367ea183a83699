"""Check of translations: formulas against loops, planted errors, and odd input."""

import itertools
import json
import math
import random
import tracemalloc

import numpy as np
import pytest
from english_german import generate_split, write_pairs
from helpers import assert_layouts_know
from sklearn.metrics import roc_auc_score

from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
from hf_attncal.checking.alarms import TextAlarms
from hf_attncal.checking.check_learning import KIND_WEIGHTS, learn_check, without
from hf_attncal.checking.check_model import CHECK_FILE, PLANTED, CheckModel
from hf_attncal.checking.check_self_test import FAULTS, plant_and_check
from hf_attncal.checking.check_summary import SHARES, compare_counts, count_faults, summarize_counts
from hf_attncal.checking.checked_text import checked_lines
from hf_attncal.checking.checker import Checker, JudgedPair, SharedTargets, _rule_findings, saved_check
from hf_attncal.checking.evidence import link_features, read_evidence, usual_of_tokens
from hf_attncal.checking.facts import PLANTED_FACTS
from hf_attncal.checking.features import CLASSES, chains, features_of_words, side_by_side, strongest_runs
from hf_attncal.checking.fitting import count_words, fit_lengths, fit_logistic, fit_network, mean_network
from hf_attncal.checking.logistic import Network
from hf_attncal.checking.rules import Break
from hf_attncal.checking.verdicts import NOTES, VERDICTS
from hf_attncal.data.segmentation import segment
from hf_attncal.data.translation_errors import plant_errors
from hf_attncal.inference.running import Running


def texts(pairs):
    return [(" ".join(pair.source), " ".join(pair.target)) for pair in pairs]


def scores(verdict):
    return [getattr(verdict, name) for name in VERDICTS]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder with a statistical aligner and its check, and held-out pairs."""
    folder = tmp_path_factory.mktemp("learned")
    split = generate_split(1500, 150, 0, seed=2)
    write_pairs(split.train, folder / "train.en", folder / "train.de")
    train = {"source": str(folder / "train.en"), "target": str(folder / "train.de")}
    settings = {"preset": "hmm", "data": {"train": train, "raw_text": True}}
    settings |= {"training": {"output_dir": str(folder / "aligner")}, "tokenizer": {"vocab_size": 800}}
    AlignerJob.train(AlignerConfig.make(settings))
    aligner = WordAligner.from_pretrained(folder / "aligner", device="cpu")
    learn_check(aligner, texts(split.train), sample=300).save(folder / "aligner")
    return folder / "aligner", texts(split.valid)


@pytest.fixture(scope="module")
def checker(learned):
    return Checker.from_pretrained(learned[0], device="cpu")


def test_what_is_sought_more_is_planted():
    assert set(KIND_WEIGHTS) <= {*PLANTED, *PLANTED_FACTS}


# ---- formulas ----


def chain_by_loops(against, entered, left):
    """Return the posterior of each word, by summing over all 2 ** n paths."""
    total, bad = 0.0, np.zeros(len(against))
    for states in itertools.product((0, 1), repeat=len(against)):
        weight, before = 1.0, 0
        for state, value in zip(states, against, strict=True):
            move = (entered, left)[before] if state != before else 1 - (entered, left)[before]
            weight *= move * (math.exp(value) if state else 1.0)
            before = state
        total += weight
        bad += weight * np.array(states)
    return bad / total


@pytest.mark.parametrize("words", [1, 2, 7])
def test_the_chain_is_the_sum_over_all_ways(words):
    against = np.random.default_rng(words).normal(0, 2, words)
    found, _, moved = chains([against, np.zeros(9), against + 0.1], 0.07, 0.3)
    assert found == pytest.approx(chain_by_loops(against, 0.07, 0.3), abs=1e-12)
    assert moved != pytest.approx(found, abs=1e-3)


def test_a_chain_of_many_words_and_of_none():
    none, found = chains([np.zeros(0), np.array([-50.0] * 3000 + [50.0] * 3000)])
    assert none.shape == (0,)
    assert np.isfinite(found).all()
    assert found[:2990].max() < 1e-3
    assert found[3010:].min() > 0.99


def test_links_against_loops():
    """Features of each word in a batch with padding."""
    rng, sizes = np.random.default_rng(6), [(4, 5), (1, 3), (2, 1)]
    scores, forward, backward = (np.zeros((3, 5, 6)) for _ in range(3))
    for row, size in enumerate(sizes):
        for one in (scores, forward, backward):
            one[row, : size[0], : size[1]] = rng.random(size)
    found = link_features([scores, forward, backward], np.array([rows for rows, _ in sizes]))
    for row, (words, others) in enumerate(sizes):
        of = scores[row, :words, :others]
        partners = of.argmax(axis=1)
        for word, partner in enumerate(partners):
            rivals = [of[other, partner] for other in range(words) if other != word]
            expected = [partners[one] + word - one for one in (word - 1, word + 1) if 0 <= one < words]
            jumps = [min(abs(partner - one), 6) for one in expected]
            before, after = (jumps[0] if word else 3), (jumps[-1] if word < words - 1 else 3)
            best = of[word, partner]
            near = [of[word, min(max(one, 0), others - 1)] for one in expected]
            assert found[row, word, :7] == pytest.approx([
                *(best, forward[row, word].max(), backward[row, word].max()),
                *((best + 0.01) / (best + max(rivals, default=0) + 0.02), min(sum(rivals), 3), before, after),
            ])  # fmt: skip
            assert found[row, word, 7] == pytest.approx(max([*near, *([best] if len(near) < 2 else [])]))
            assert found[row, word, 8] == partner


def test_a_window_is_looked_at_as_line_by_line(checker, learned):
    """A batch of lines of different lengths has the same features and chains as each line by itself."""
    lines = read_evidence(checker.aligner, [*learned[1][:12], ("ein haus", "a"), ("a", "ein haus ist da")])
    together = checker.model.inputs(lines)
    for place, line in enumerate(lines):
        alone = checker.model.inputs([line])
        assert alone.features[0] == pytest.approx(together.features[place], abs=1e-9)
        for side in (0, 1):
            assert alone.words[0][side] == pytest.approx(together.words[place][side], abs=1e-9)
            assert alone.against[side][0] == pytest.approx(together.against[side][place], abs=1e-9)
    moved = features_of_words(lines, together.sides, [1.0] * len(lines), 1)
    assert moved.shape[1] == checker.model.networks[1].scale.shape[1]
    assert not np.allclose(moved, features_of_words(lines, together.sides, [0.0] * len(lines), 1))


def test_what_pairs_taught_is_taken_out_and_put_back(checker, learned):
    """A rare word loses its partner without its only line; pairs that were not counted change nothing."""
    model, pairs = checker.aligner.model, learned[1]
    before = {name: table.clone() for name, table in model.named_buffers()}
    source = (learned[0].parent / "train.en").read_text().splitlines()[:200]
    target = (learned[0].parent / "train.de").read_text().splitlines()[:200]
    words = [(checker.cut(one).words, checker.cut(other).words) for one, other in zip(source, target, strict=True)]
    with without(checker.aligner, words):
        assert 0.7 * before["counts"].sum() < model.counts.sum() < 0.95 * before["counts"].sum()  # 200 of 1,500
        assert model.source_counts.sum() < before["source_counts"].sum()
    new = [(("zyx", "wvu"), ("uvw", "xyz"))] * 5
    with without(checker.aligner, [*new, *([(pairs[0][0].split(), pairs[1][1].split())] * 3)]):
        assert all((table == before[name]).all() for name, table in model.named_buffers())
    assert all((table == before[name]).all() for name, table in model.named_buffers())


def test_what_is_usual_for_a_token_against_loops(checker, learned):
    """Mean information of its partners, and share without a partner; a word of two tokens has their mean."""
    model = checker.aligner.model
    tables, size = usual_of_tokens(model), model.config.vocab_size
    cells = dict(zip(model.pairs.tolist(), model.counts.double().tolist(), strict=True))
    total = sum(cells.values()) + 1
    alone, null = [], []
    for side in ("source", "target"):
        null.append(getattr(model, f"{side}_null_counts").double().tolist())
        linked = getattr(model, f"{side}_counts").double().tolist()
        alone.append([one + other for one, other in zip(linked, null[-1], strict=True)])
    for side in (0, 1):
        for token in {(key // size, key % size)[side] for key in list(cells)[::40]}:
            shared, information = 0.0, 0.0
            for key, count in cells.items():
                if (key // size, key % size)[side] == token:
                    chance = (alone[0][key // size] + 1) * (alone[1][key % size] + 1)
                    shared, information = (
                        shared + count,
                        information + count * math.log((count + 0.02) * total / chance),
                    )
            expected = information / (shared + 5), (null[side][token] + 0.5) / (alone[side][token] + 2)
            assert tables[side][token].tolist() == pytest.approx(expected, abs=2e-3)
    assert usual_of_tokens(model)[0] is tables[0]
    files = [(learned[0].parent / f"train.{side}").read_text().splitlines()[:200] for side in ("en", "de")]
    words = [(checker.cut(source).words, checker.cut(target).words) for source, target in zip(*files, strict=True)]
    with without(checker.aligner, words):
        assert not np.allclose(usual_of_tokens(model)[0], tables[0], atol=1e-3)
    (line,) = read_evidence(checker.aligner, learned[1][:1])
    source = checker.aligner.source.tokenizer(line.source.words[0].lower(), add_special_tokens=False)["input_ids"]
    assert line.usual[0][0] == pytest.approx(tables[0][source].mean(axis=0).numpy(), abs=1e-5)


def test_a_network_learns_and_networks_are_joined():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(400, 3))
    truths = (np.abs(values[:, 0]) > 0.7).astype(float)  # no regression tells
    networks = [fit_network(values, truths, hidden=(8,), steps=800, seed=seed) for seed in range(2)]
    assert ((networks[0](values) > 0) == truths).mean() > 0.9
    together = (networks[0](values) + networks[1](values)) / 2
    assert mean_network(networks)(values) == pytest.approx(together, abs=1e-9)
    again = Network.from_dict(networks[0].to_dict())
    assert again(values) == pytest.approx(networks[0](values), abs=1e-3)
    assert not np.allclose(networks[0](values), networks[1](values), atol=1e-3)


def test_logistic_regression_is_at_its_minimum():
    generator = np.random.default_rng(0)
    values, weights = generator.normal(size=(80, 3)), generator.random(80)
    truths = (values @ [1.0, -2.0, 0.0] + generator.normal(size=80) > 0).astype(float)

    def loss(parameters):
        logits = parameters[0] + values @ parameters[1:]
        losses = np.logaddexp(0, logits) - truths * logits
        return (weights * losses).sum() / weights.sum() + 0.05 / 2 * (parameters[1:] ** 2).sum()

    found = fit_logistic(values, truths, weights, 0.05)
    for place, step in itertools.product(range(4), (-1e-3, 1e-3)):
        moved = found.copy()
        moved[place] += step
        assert loss(moved) > loss(found)


def test_lengths_of_a_longer_language():
    pairs = [("x" * n, "y" * (2 * n + 1)) for n in range(5, 60)]  # twice as long, all of them
    mean, fixed, falling = fit_lengths(pairs)
    assert mean == pytest.approx(math.log(2))
    assert (fixed, falling) == (1e-3, pytest.approx(0, abs=1e-9))


def test_classes_of_words():
    text = [(("das", "Haus", "nicht", "17", "Zürich", "."), ("the", "house", "not", "17", "Zurich", "."))] * 100
    vocabulary = count_words([*text, (("Schloß",), ("castle",))])
    known = [CLASSES[vocabulary.look_up(word, 0)[0]] for word in ("17", "nicht", ".", "Das", "neu")]
    assert known == ["number", "negation", "punctuation", "frequency 5", "frequency 0"]
    assert vocabulary.look_up("das", 0)[2] > 2 > -2 > vocabulary.look_up("the", 0)[2]
    assert vocabulary.look_up("neu", 0)[2] == vocabulary.look_up("17", 0)[2] == 0
    assert vocabulary.look_up("neu", 0)[1] > vocabulary.look_up("das", 0)[1]


# ---- what is found ----


def test_planted_errors_are_found(checker, learned):
    pairs = [tuple(tuple(side.split()) for side in pair) for pair in learned[1]]
    clean = checker.check(learned[1])
    for kind, name, least in (
        ("omission", "omission", 0.9),
        ("insertion", "addition", 0.9),
        ("replacement", "addition", 0.9),
        ("unrelated", "unrelated", 0.95),
        ("repetition", "repeats", 0.95),
        ("swapped", "unrelated", 0.95),
        ("negation", "changed", 0.9),
        ("untranslated", "addition", 0.95),
    ):
        errors = plant_errors(pairs, [kind], seed=1)
        verdicts = checker.check((" ".join(error.source), " ".join(error.target)) for error in errors)
        truths = [True] * len(verdicts) + [False] * len(clean)
        scores = [getattr(verdict, name) for verdict in (*verdicts, *clean)]
        assert roc_auc_score(truths, scores) > least, kind
        places = {"omission": "omission", "negation": "omission", "insertion": "addition"}.get(kind)
        if places:
            side = "source" if places == "omission" else "target"
            words = [
                (place in getattr(error, places), value)
                for error, verdict in zip(errors, verdicts, strict=True)
                for place, value in enumerate(getattr(verdict, f"{side}_words"))
                if any(map(str.isalnum, getattr(error, side)[place]))
            ]
            assert roc_auc_score(*zip(*words, strict=True)) > 0.9, kind
    assert np.mean([bool(verdict.flagged) for verdict in clean]) < 0.1


def test_a_self_test_counts_what_is_flagged_of_long_and_short_lines(checker, learned):
    short = [("the dog", "der Hund"), ("the big dog", "der große Hund"), ("the cat", "die Katze")]
    result = plant_and_check(checker, [*learned[1], *short])
    kinds = {row.kind: row for row in result.kinds}
    assert set(kinds) <= set(FAULTS)
    assert result.clean.long[1] + result.clean.short[1] == len(learned[1]) + 3
    assert result.clean.short[1] >= 3
    assert result.clean.flagged < 0.1 < kinds["text of another line"].flagged
    assert kinds["text of another line"].long[1] + kinds["sentence added"].short[1] >= len(learned[1])
    assert all(0 <= flagged <= planted for row in kinds.values() for flagged, planted in (row.long, row.short))
    assert "short lines" in str(result)


@pytest.mark.parametrize(
    ("kind", "target", "planted"),
    [
        ("cut at half", "eins zwei drei vier", "eins zwei"),
        ("cut at half", "eins zwei", None),
        ("sentence added", "Er ging.", "Er ging. Sie kam."),
        ("not translated", "Er ging nicht.", "He has not got 15"),
        ("negation dropped", "Er ging nicht.", "Er ging ."),
        ("negation dropped", "Er ging.", None),
        ("number changed", "Er hat 7", None),
        ("words repeated", "Er ging nach Hause", "Er ging nach Er ging nach Hause"),
    ],
)
def test_a_planted_fault_is_what_its_name_is(kind, target, planted):
    sides = segment("He has not got 15"), segment(target)
    assert FAULTS[kind](*sides, "Sie kam.", random.Random(1)) == planted


def test_clauses_and_numbers_are_drawn():
    source, target = segment("a b 15"), segment("eins zwei drei vier fünf sechs sieben acht neun 15")
    for seed in range(20):
        left = FAULTS["3 to 5 words left out"](source, target, "", random.Random(seed)).split()
        assert 5 <= len(left) <= 7
        assert [word for word in target.words if word in left] == left
        assert left[0] == "eins"
        number = FAULTS["number changed"](source, target, "", random.Random(seed))
        assert number.startswith("eins zwei drei vier fünf sechs sieben acht neun ")
        assert 16 <= int(number.split()[-1]) <= 23


@pytest.mark.parametrize(("suspect", "told"), [(0.02, True), (0.9, False)])
@pytest.mark.parametrize("in_document", [True, False])
def test_a_lost_negation_among_other_words_is_none_in_a_document(suspect, told, in_document):
    sides = segment("The file may not work on this machine"), segment("Die Datei könnte hier Probleme bereiten")
    words = tuple((np.zeros(len(side.words)), np.zeros(len(side.words), dtype=int)) for side in sides)
    words[0][0][4] = suspect  # "work"
    judged = JudgedPair(sides, words, {}, (), {"negation lost": Break("", (13, 16))})
    alarms = TextAlarms(0.1, {"negation lost": 0.01}, tails={"omission": None} if in_document else {})
    assert bool(list(_rule_findings(judged, alarms))) == (told or not in_document)


def test_a_verdict_names_words_and_characters(checker):
    source = "The old man sees the big dog and the little cat drinks the fresh milk ."
    clean, cut = checker.check([(source, "Der alte Mann sieht den großen Hund ."), (source, "Der alte Mann .")])
    for verdict in (clean, cut):
        assert len(verdict.source_words) == len(source.split())
        for spans, text in ((verdict.omission_spans, source), (verdict.addition_spans, verdict.target)):
            words = text.split()
            for span in spans:
                (begin, end), (first, last) = span.words, span.characters
                assert text[first:last].split() == words[begin:end]
    assert cut.omission > 0.5
    assert cut.omission_spans
    marked, _ = cut.marked()
    assert "[-" in marked
    assert marked.replace("[-", "").replace("-]", "") == source
    assert json.loads(json.dumps(cut.to_dict()))["omission"] == round(cut.omission, 4)


@pytest.mark.parametrize(
    ("pair", "names", "certain"),
    [
        (("", "Der alte Mann ."), "empty source", "addition"),
        (("The old man .", " \t"), "empty target", "omission"),
        (("The old man sees the big dog .", "The old man sees the big dog ."), "untranslated", "addition"),
        (("The old man sees the big dog .", "Старый человек видит собаку ."), "alien script", "unrelated"),
    ],
)
def test_what_is_told_by_name(checker, pair, names, certain):
    (verdict,) = checker.check([pair])
    assert names in verdict.names
    assert getattr(verdict, certain) > 0.5
    assert certain in verdict.flagged


ODD = ["", " ", ".", "\u200b", "😀 😀 😀", "a" * 600, "x " * 700, "ﷺ ﷺ", "12 12 12", "e\u0301 \u0301", "\x00 \x1f"]


@pytest.mark.parametrize("text", [*ODD, "日本語の文です。"])
def test_odd_lines(checker, text):
    for pair in ((text, "Der alte Mann ."), ("The old man .", text), (text, text)):
        (verdict,) = checker.check([pair])
        assert all(0 <= getattr(verdict, name) <= 1 for name in (*VERDICTS, "wrong"))
        json.dumps(verdict.to_dict(), allow_nan=False)


def test_what_repeats_itself(checker):
    source, target = "The old man sees the big dog .", "Der alte Mann sieht den großen Hund ."
    again = target[:-1] + "und den großen Hund und den großen Hund ."
    first, second = checker.check([(source, target), (source, again)])
    assert second.repeats > 0.5 > first.repeats
    both = checker.check([(source + " " + source, target + " " + target)])[0]
    assert both.repeats < second.repeats  # the source says it twice, too


def test_one_target_for_many_sources(checker, learned):
    sources = [source for source, _ in learned[1][:6]]
    same = "Der alte Mann sieht den großen Hund ."
    pairs = [(source, same) for source in sources] + learned[1][6:9]
    shared = SharedTargets(pairs)
    assert shared.sources_of(same.upper()) == 6
    assert shared.sources_of(learned[1][7][1]) == 1
    alone, together = checker.check(pairs), checker.check(pairs, shared=shared)
    assert all("one target for 6 sources" in verdict.names for verdict in together[:6])
    for before, after in zip(alone[:6], together[:6], strict=True):
        assert 1 - after.unrelated == pytest.approx((1 - before.unrelated) / 6)
    assert alone[6:] == together[6:]
    assert SharedTargets([(source, same) for source in sources[:2]]).sources_of(same) == 1
    assert SharedTargets([(sources[0], same)] * 9).sources_of(same) == 1  # one source, again and again


def test_the_strongest_run_against_all_runs():
    rng = np.random.default_rng(4)
    lines = [rng.normal(-0.5, 3, length) for length in (0, 1, 2, 9, 30)]
    for against, found in zip(lines, strongest_runs(side_by_side(lines)[0]), strict=True):
        runs = [against[i:j].sum() for i in range(len(against)) for j in range(i + 1, len(against) + 1)]
        assert found == pytest.approx(max([0.0, *runs]))


def test_one_verdict_decides_everything(checker, learned):
    """`wrong` decides the flagged lines, the kept lines, and the worst line."""
    pairs = learned[1][:60]
    moved = [(source, pairs[place - 1][1]) for place, (source, _) in enumerate(pairs)]
    doubled = [
        (source, f"{target.partition(' ')[0]} Haus Haus {target.partition(' ')[2]}") for source, target in pairs[:20]
    ]
    verdicts = checker.check(pairs + moved + doubled)
    assert 60 < sum(bool(verdict.flagged) for verdict in verdicts) < 130
    for verdict in verdicts:
        assert bool(verdict.flagged) == (verdict.wrong > checker.model.alarm)
        most = max(VERDICTS, key=lambda name, verdict=verdict: getattr(verdict, name))
        also = [name for name in VERDICTS if getattr(verdict, name) > 0.5]
        assert not verdict.flagged or {most, *also} == set(verdict.flagged)
    sources, targets = zip(*pairs, *moved, strict=True)
    kept = list(checked_lines(checker, sources, targets, Running(), "kept"))
    assert {verdict.line for verdict in kept} == {
        number for number, verdict in enumerate(verdicts[:120], 1) if not verdict.flagged
    }
    worst = list(checked_lines(checker, sources, targets, Running(), "tsv", worst=10))
    assert [verdict.wrong for verdict in worst] == sorted((verdict.wrong for verdict in verdicts[:120]), reverse=True)[
        :10
    ]


def test_marks_and_reasons_are_those_of_flagged_lines(checker, learned):
    """A flagged line has a mark or a name, and no other line has any: good, planted, moved and odd ones."""
    pairs = learned[1]
    planted = plant_errors([(tuple(a.split()), tuple(b.split())) for a, b in pairs[:50]], seed=3)
    lines = [*pairs, *((" ".join(error.source), " ".join(error.target)) for error in planted)]
    lines += [(source, pairs[place - 1][1]) for place, (source, _) in enumerate(pairs[:50])]
    lines += [(text, pairs[0][1]) for text in ODD] + [(pairs[0][0], text) for text in ODD]
    verdicts = checker.check(lines)
    assert 100 < sum(bool(verdict.flagged) for verdict in verdicts) < len(lines) - 100
    for verdict in verdicts:
        marks = [*verdict.omission_spans, *verdict.addition_spans]
        reasons = [name for name in verdict.names if name not in NOTES or verdict.flagged]
        assert bool(verdict.flagged) == bool(marks or reasons), verdict
        assert verdict.flagged or max((*verdict.source_words, *verdict.target_words), default=0) <= 0.5
        assert verdict.flagged or verdict.marked() == (verdict.source, verdict.target)
        assert bool(verdict.findings) == bool(verdict.flagged)
        assert all(mark.reason and mark.probability > 0.5 for mark in marks)


def test_what_was_changed_is_told_by_name(checker):
    """Rules flag them, also with unknown words."""
    source, target = "The old man sees the big dog in 1998 .", "Der alte Mann sieht den großen Hund in 1998 ."
    changes = {
        "wrong number": target.replace("1998", "1989"),
        "doubled word": target.replace("Mann", "Mann Mann"),
        "wrong placeholders": target.replace("Hund", "Hund %s"),
    }
    right, *wrong = checker.check([(source, target), *((source, changed) for changed in changes.values())])
    assert right.changed < 0.5
    assert not right.flagged
    for name, verdict in zip(changes, wrong, strict=True):
        assert verdict.changed > 0.8
        assert "changed" in verdict.flagged
        assert verdict.names == (name,)


# ---- lists, streams, files ----


def test_alone_as_among_others(checker, learned):
    pairs = [*learned[1][:40], ("", ""), ("The dog .", "")]
    together = checker.check(pairs)
    alone = [checker.check([pair])[0] for pair in pairs]
    for first, second in zip(together, alone, strict=True):
        assert scores(first) == pytest.approx(scores(second), abs=1e-4)
    for first, second in zip(together, checker.stream(iter(pairs), window=7), strict=True):
        assert scores(first) == pytest.approx(scores(second), abs=1e-4)
    assert checker.check([]) == []


def test_a_stream_holds_one_window(checker, learned):
    taken = 0

    def endless():
        nonlocal taken
        for pair in itertools.cycle(learned[1]):
            taken += 1
            yield pair

    stream = checker.stream(endless(), window=16)
    for _ in range(40):
        next(stream)
    assert taken <= 48
    tracemalloc.start()
    for _ in range(200):
        next(stream)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(400):
        next(stream)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1_000_000


def test_the_model_is_what_was_saved(learned, checker, tmp_path):
    assert_layouts_know(learned[0])
    folder, pairs = learned
    path = checker.model.save(tmp_path)
    again = Checker(checker.aligner, CheckModel.load(path))
    assert again.check(pairs[:10]) == checker.check(pairs[:10])
    assert path.name == CHECK_FILE
    assert saved_check(folder).learned == {"pairs": 1500, "sample": 300, "seed": 0}


def test_a_damaged_model(checker, tmp_path):
    path = checker.model.save(tmp_path)
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"totals": [1, 2]}))
    with pytest.raises(ValueError, match=r"it has been changed.*attncal check learn"):
        CheckModel.load(path)
    (tmp_path / "empty").mkdir()
    path.write_text("{")
    with pytest.raises(ValueError, match=str(path)):
        CheckModel.load(path)
    with pytest.raises(ValueError, match=r"attncal check learn .* --source FILE"):
        saved_check(tmp_path / "empty")


@pytest.mark.slow
def test_learning_is_repeated_and_needs_text(checker, learned):
    pairs = learned[1]
    first, second = (learn_check(checker.aligner, pairs, sample=100, seed=4) for _ in range(2))
    assert all((first.heads[name] == second.heads[name]).all() for name in first.heads)
    with pytest.raises(ValueError, match="50 or more"):
        learn_check(checker.aligner, pairs[:20])


def test_the_summary_counts_lines_and_words(checker, learned):
    pairs = [*learned[1][:30], ("The old man .", ""), ("", "Der Mann")]
    verdicts = checker.check(pairs)
    found = summarize_counts(checker, count_faults(verdicts), bootstrap=20)
    flagged = sum(bool(verdict.flagged) for verdict in verdicts)
    assert found.lines == 32
    assert found.shares["lines flagged"].value == pytest.approx(flagged / 32)
    words = [value for verdict in verdicts for value in verdict.source_words]
    assert found.shares["source words omitted"].value == pytest.approx(np.mean(np.array(words) > 0.5))
    assert found.signature.startswith("Check|aligner:hmm_align|")
    with pytest.raises(ValueError, match="none"):
        summarize_counts(checker, count_faults([]))


def test_two_systems_are_compared_line_by_line(checker, learned):
    pairs = learned[1][:40]
    sources = [source for source, _ in pairs]
    worse = [(source, sources[0] if place % 2 else target) for place, (source, target) in enumerate(pairs)]
    first, second = (count_faults(checker.check(system)) for system in (worse, pairs))
    found = compare_counts(checker, first, second, bootstrap=200)
    for place, name in enumerate(SHARES):
        shares = [
            sum(row[place][0] for row in counts) / sum(row[place][1] for row in counts) for counts in (first, second)
        ]
        assert found.differences[name].value == pytest.approx(shares[0] - shares[1])
    assert found.differences["lines flagged"].interval[0] > 0.2
    assert found.p_values["lines flagged"] < 0.05
    same = compare_counts(checker, second, second, bootstrap=50)
    assert set(same.p_values.values()) == {1}
    assert all(difference.value == 0 for difference in same.differences.values())
    with pytest.raises(ValueError, match="same sentences"):
        compare_counts(checker, first, second[1:])
    assert set(compare_counts(checker, first[:5], second[:5]).p_values.values()) == {None}
