"""Alarms of a text: ordinary text, text of another kind, faulty text, lengths, and rules that a text ignores."""

import numpy as np
import pytest

from hf_attncal.checking.alarms import MOST_RISE, TextAlarms, alarms_of_lines, alarms_of_segments, with_habits
from hf_attncal.checking.logistic import log_odds, sigmoid

ORDINARY = 0.3
PAIR = "x" * 40, "x" * 44
BAR = float(log_odds(np.array(ORDINARY)))


def text_scores(generator, pairs, middle):
    """Return log-odds of right pairs that fall off exponentially above their median."""
    return middle + np.where(generator.uniform(size=pairs) < 0.5, -1.0, 1.0) * generator.exponential(0.8, pairs)


def alarms(scores, words=None):
    words = [8] * len(scores) if words is None else words
    likeness = sigmoid(np.asarray(scores, dtype=float)).tolist()
    return alarms_of_lines(with_habits(ORDINARY, {}, [{}] * len(scores)), words, likeness)


def document(scores, texts=None):
    names = ("likeness", "omission", "added", "unrelated")
    causes = [dict.fromkeys(names, one) for one in sigmoid(np.asarray(scores, dtype=float)).tolist()]
    texts = texts or [("x" * 40, "x" * 44)] * len(scores)
    return alarms_of_segments(with_habits(ORDINARY, {}, [{}] * len(scores)), texts, [8] * len(scores), causes)


@pytest.mark.parametrize("faulty", [0, 0.05])
@pytest.mark.parametrize("middle", [BAR - 2, BAR - 1])
def test_one_in_a_hundred_right_pairs_is_flagged_in_text_of_another_kind(faulty, middle):
    generator = np.random.default_rng(1)
    right = text_scores(generator, 1000, middle)
    found = alarms(np.concatenate([right, generator.normal(BAR + 6, 1, int(1000 * faulty))]))
    flagged = np.mean(sigmoid(right) > found.alarm(8))
    assert 0.0 < flagged < 0.03
    assert found.alarm(8) > ORDINARY


def test_ordinary_text_keeps_the_learned_alarm():
    scores = text_scores(np.random.default_rng(2), 1000, BAR - 8)
    found = alarms(scores)
    assert found.alarm(8) == pytest.approx(ORDINARY)
    assert str(found) == "alarm 0.3, as on ordinary text"


def test_the_rise_is_bounded_and_stated():
    found = alarms(text_scores(np.random.default_rng(3), 500, BAR + 5))
    assert log_odds(np.array(found.alarm(8))) == pytest.approx(BAR + MOST_RISE)
    assert f"{found.between} of 500 pairs lie above it" in str(found)
    assert found.between > 0


def test_short_and_long_pairs_have_alarms_of_their_own():
    generator = np.random.default_rng(4)
    scores = np.concatenate([text_scores(generator, 500, BAR - 1), text_scores(generator, 500, BAR - 8)])
    found = alarms(scores, words=[2] * 500 + [20] * 500)
    assert found.alarm(2) > 0.6
    assert found.alarm(20) == pytest.approx(ORDINARY)


def test_fewer_than_200_lines_keep_the_learned_alarm():
    scores = [BAR + 1, BAR + 3, BAR + 4, BAR - 5] * 50
    assert alarms(scores[:199]).alarm(8) == ORDINARY
    assert alarms(scores).alarm(8) > 0.5


def test_a_rule_that_the_text_ignores_loses_its_weight():
    shares = {"wrong end mark": 0.01, "wrong number": 0.01}
    broken = [
        {"wrong end mark": object() if n % 2 else None, "wrong number": None if n else object()} for n in range(100)
    ]
    found = with_habits(ORDINARY, shares, broken)
    assert found.shares["wrong end mark"] == pytest.approx((50 - 1 - 2) / 100)
    assert found.shares["wrong number"] == 0.01  # one number may be a fault
    plain = TextAlarms(ORDINARY, shares)
    assert found.of_rule("wrong number") == plain.of_rule("wrong number") > 0.5
    assert found.of_rule("wrong end mark") < plain.of_rule("wrong end mark")


def test_a_document_breaks_rules_at_least_as_often_as_catalogues_do():
    found = document(text_scores(np.random.default_rng(5), 100, BAR))
    assert 0.8 < found.of_rule("wrong number") < 0.9
    assert 0.5 < found.of_rule("negation lost") < 0.7
    assert found.of_rule("wrong name") < 0.5 < with_habits(ORDINARY, {"wrong name": 0.001}, []).of_rule("wrong name")


@pytest.mark.parametrize("middle", [BAR - 6, BAR + 3])
def test_a_document_has_a_tail_of_each_cause(middle):
    generator = np.random.default_rng(7)
    right = text_scores(generator, 400, middle)
    found = document(generator.permutation([*right, *[middle + 9] * 20]))

    def probability(score, words=8):
        causes = dict.fromkeys(("omission", "added", "unrelated"), float(sigmoid(score)))
        return max(found.of_causes(causes, words, PAIR).values())

    assert np.mean([probability(score) > 0.5 for score in right]) < 0.03
    assert probability(middle + 9) > 0.9
    assert probability(middle + 9, words=2) == 0
    assert found.tails.keys() == {"omission", "added", "unrelated"}
    assert ("are usual here" in str(found)) == (middle > BAR)


def test_a_cut_or_padded_translation_is_unlike_the_lengths_of_the_document():
    generator = np.random.default_rng(6)
    lengths = generator.integers(20, 120, 200)
    texts = [("x" * n, "x" * int(n * 1.2 * generator.lognormal(0, 0.08))) for n in lengths]
    found = document([-4.6] * 200, texts)
    deviations = np.array([found.deviation(*pair) for pair in texts])
    assert np.mean(np.abs(deviations) > 3) < 0.02
    source = "x" * 80
    assert found.deviation(source, "x" * 48) < -3
    assert found.deviation(source, "x" * 200) > 3
    assert abs(found.deviation("x" * 3, "x" * 6)) < 3  # lengths of short strings vary
    some = dict.fromkeys(("omission", "added", "unrelated"), 0.1)
    of_shorter = found.of_causes(some, 8, (source, "x" * 70))
    assert of_shorter["omission"] > of_shorter["added"]
    assert TextAlarms(ORDINARY, {}).deviation(source, "x") == 0


@pytest.mark.parametrize(
    ("source", "target", "added"),
    [
        ("Error writing to file", "Fehler beim Schreiben. Vom Server wurde nichts gesandt.", 1),
        ("File list:", "Dateiliste: Nichts davon kann jetzt geladen werden", 1),
        ("Error while writing. Nothing was sent by it.", "Fehler beim Schreiben.", -1),
        ("Error while writing, as nothing was sent.", "Fehler beim Schreiben. Es wurde nichts gesandt.", 0),
        ("Error while writing. Nothing was sent.", "Fehler beim Schreiben, nichts gesandt", 0),
        ("Error writing to file", "Fehler beim Schreiben in eine sehr große Datei dieses Rechners", 0),
        ("Regexp", "reg. Ausdruck", 0),
        ("File or folder", "Datei oder Ordner bzw. Verzeichnis, z. B. Bilder", 0),
        ("Fatal error", "Schwerer Fehler: Diese Datei ist nicht lesbar", 0),
        ("Error in %s", "Fehler in %s. Vom Server wurde nichts gesandt.", 1),
        ("Nothing was written to it. Save the file anyway?", "No se ha escrito. ¿Guardar?", 0),
        ("The server closed the connection.", "Der Server beendete die Verbindung. Datei öffnen", 1),
        ("The server closed the connection.", "Der Server beendete die Verbindung. eine Datei öffnen", 1),
        ("Error writing to file", "Fehler beim Schreiben. vom Server wurde nichts gesandt.", 1),
        ("Error writing to a file", "Fehler beim Schreiben. sonst", 0),
        ("Overwrite?", "¿Sobrescribir el fichero? (s/n)", 0),
        ("Error writing to the file", "Fehler beim Schreiben in die Datei bzw. in den Ordner mit der Datei", 0),
    ],
)
def test_a_sentence_more_or_fewer_is_told_from_other_punctuation(source, target, added):
    alarms = TextAlarms(ORDINARY, {}, usual_length=(0.1, 0.5))
    assert alarms.sentences_added(source, target) == added
    assert TextAlarms(ORDINARY, {}).sentences_added(source, target) == 0


def test_a_text_of_another_entry_is_more_suspect():
    texts = [("Open the file", "Datei"), ("Close that door", "Datei"), ("Save it all", "Alles"), ("Save all", "Alles")]
    found = document(text_scores(np.random.default_rng(9), 400, BAR), texts * 100)
    assert found.of_others == set(texts[:2])  # two sources alike may have one translation
    causes = {"omission": 0.01, "added": 0.01, "unrelated": 0.9}
    own, of_another = (found.of_causes(causes, 8, pair) for pair in (texts[2], texts[0]))
    assert of_another["unrelated"] > 0.5 > own["unrelated"]
    assert found.of_causes(causes | {"unrelated": 0.97}, 8, texts[2])["unrelated"] > 0.5


def test_an_addition_is_more_suspect_if_it_is_a_sentence():
    found = document(text_scores(np.random.default_rng(9), 400, BAR))
    causes = dict.fromkeys(("omission", "added", "unrelated"), float(sigmoid(BAR + 4)))
    source = "The file is open, and you can read it."
    within, sentence = (
        found.of_causes(causes, 9, (source, f"Die Datei ist offen{end}"))
        for end in (", und Sie können lesen.", ". Und Sie können lesen.")
    )
    assert sentence["added"] > 0.5 > within["added"]
    assert sentence["omission"] == within["omission"]
