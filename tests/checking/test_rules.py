"""Placeholders, addresses and doubled words."""

import numpy as np
import pytest

from hf_attncal.checking.evidence import LinkEvidence
from hf_attncal.checking.rules import (
    RULE_NAMES,
    UNTRANSLATED,
    WRONG_NUMBER,
    Break,
    broken_rules,
    check_rules,
    fit_rules,
    wrong_by_rules,
)
from hf_attncal.data.segmentation import segment

DE_EN = ("de", "en")


def line(source, target):
    sides = segment(source), segment(target)
    values = tuple(np.zeros(len(side.words)) for side in sides)
    return LinkEvidence(*sides, values, None, values[1])


@pytest.mark.parametrize(
    ("source", "target", "broken"),
    [
        ("Drücken Sie %d, um {0} zu löschen.", "Press %s to delete {1}.", ("wrong placeholders",)),
        ("Drücken Sie %d, um {0} zu löschen.", "Press %d to delete {0}.", ()),
        ("{0} und {1}", "{1} and {0}", ()),
        ("%1$s von %2$s", "%2$s of %1$s", ()),
        ("%(name)s ist da", "%(nom)s is here", ("wrong placeholders",)),
        ("<b>fett</b>", "<b>bold", ("wrong placeholders",)),
        ("das Haus der Frau", "the woman &apos;s house", ()),
        ("${user} ist da", "is here", ("wrong placeholders",)),
        ("10 % der Leute, 100% davon, 5 %ige", "10 % of the people, 100% of them, 5 %", ()),
        ("a < b und c > d", "a is less than b and c is more than d", ()),
        ("siehe https://a.org/x.html", "see https://a.org/y.html", ("wrong address",)),
        ("siehe https://a.org/x.html.", "see https://a.org/x.html", ("wrong end mark",)),
        ("an me@a.org", "to you@a.org", ("wrong address",)),
        ("Ein Mann in rotem Hemd", "A man man in a red shirt", ("doubled word",)),
        ("Ein Mann", "A Man man", ("doubled word",)),
        ("Bora Bora ist schön", "Bora Bora is nice", ()),
        ("Er sagte, dass das gut ist", "He said that that is good", ()),
        ("fünf", "the 5 5", ()),
        ("um 15 Uhr", "at 4 p.m.", (WRONG_NUMBER,)),
        ("Ein Mann und eine Frau", "A man and a man and a woman", ("repeated words",)),
        ("wieder und wieder und wieder", "again and again and again", ()),
        ("a b a b", "x y x y", ()),
        ("Kommt er?", "He comes.", ("wrong end mark",)),
        ("Er sagte: „Ja.“", 'He said: "Yes!"', ()),
        ("das Haus (alt)", "the house (old", ("wrong brackets",)),
        ("das Haus [alt]", "the house old]", ("wrong brackets",)),
        ("das Haus (alt)", "the house , old", ()),  # what a sign may stand for
        ("das Haus (alt", "the house (old", ()),
        ("das Haus ist alt", "a) the house is old :-)", ()),
        ("Das darf nicht sein.", "That may be.", ("negation lost",)),
        ("Das ist gut.", "That is not good.", ("negation added",)),
        ("Er kommt ohne sie.", "He does not bring her.", ()),
        ("um 15 Uhr", "in the afternoon", ()),
        ("Gehst du nicht?", "Do you go?", ()),  # questions deny for politeness
        ("Wir helfen Menschen in Not", "we help people in need", ()),
    ],
)
def test_what_breaks_a_rule(source, target, broken):
    one = line(source, target)
    assert broken_rules(one.source, one.target, DE_EN) == broken


@pytest.mark.parametrize(
    ("source", "target", "name", "expected"),
    [
        ("8 Dateien.", "6 files.", WRONG_NUMBER, Break("“8” in the source, “6” in the translation", (0, 1), (0, 1))),
        ("8 Dateien", "8 files", WRONG_NUMBER, None),
        (
            "an %s {0}", "to %s", "wrong placeholders", Break("“{0}” is only in the source", (6, 9))
        ),
        ("Das darf nicht sein.", "That may be.", "negation lost",
         Break("“nicht”: the translation has no negation", (9, 14))),
        ("Das geht.", "That cannot work.", "negation added",
         Break("“cannot”: the source has no negation", None, (5, 11))),
        ("Das Haus", "The the house", "doubled word", Break("“The the” in the translation", None, (0, 7))),
        ("Kommt er?", "He comes", "wrong end mark",
         Break("“?” at the end of the source, no end mark at the end of the translation")),
    ],
)  # fmt: skip
def test_a_break_has_values_and_places(source, target, name, expected):
    assert check_rules(segment(source), segment(target), DE_EN)[name] == expected


def test_only_rules_that_apply_are_returned():
    assert check_rules(segment("Haus"), segment("house"), DE_EN) == {}
    assert check_rules(segment("Das Haus (8)."), segment("The house (8)."), DE_EN) == dict.fromkeys(
        ("doubled word", "wrong end mark", "wrong brackets", WRONG_NUMBER, UNTRANSLATED)
    )


def test_a_rule_that_clean_text_breaks_says_little():
    clean = [line("a", "b")] * 999
    shares = fit_rules(clean, DE_EN)
    assert shares == dict.fromkeys(RULE_NAMES, 1 / 1000)
    assert wrong_by_rules(("doubled word",), shares) == pytest.approx(1 / (1 + 1 / 50))
    often = fit_rules(clean[:50] + [line("a", "who who")] * 49, DE_EN)
    assert wrong_by_rules(("doubled word",), often) == pytest.approx(0.05 / 0.55)
    assert wrong_by_rules((), often) == 0
