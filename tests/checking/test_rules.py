"""Placeholders, addresses and doubled words."""

import time

import numpy as np
import pytest

from hf_attncal.checking.evidence import LinkEvidence
from hf_attncal.checking.facts import Denials
from hf_attncal.checking.fitting import fit_rules
from hf_attncal.checking.rules import RULE_NAMES, UNTRANSLATED, WRONG_NUMBER, Break, check_rules, wrong_by_rules
from hf_attncal.data.segmentation import segment, white_space_words

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
        ("datei (%s)", "file (%s)", ()),
        ("Fehler (mit LC_ALL=C)", "errors (with LC_ALL=C)", ()),
        ("Weiter (j/N)", "go on (y/N)", ()),
        ("--x=DATEI", "--x=FILE FILE", ()),
        ("in Bytes", "in bytes Bytes", ()),
        ("%s von %s", "of %s of %s", ()),
        ("Ende. Ende der Datei", "End of it. End of it now", ()),
        ("Nummer 7", "No. 7", ()),
        ("Nr. 7", "No. 8", (WRONG_NUMBER,)),
        ("Warte...", "Wait…", ()),
        ("Ob oder ob nicht", "whether or not", ()),
        ("leer", "non-empty", ()),
        ("siehe http://a.org", "see https://a.org", ()),
        ("siehe", "see https://a.org", ()),  # translators add addresses
        ("Es fehlt", "It does not exist", ()),
        ("Ungültige Datei", "The file is not valid", ()),
        ("Export fehlgeschlagen", "Cannot export", ()),
        ("Das kann man nicht öffnen", "You can’t open it", ()),
        ("mit „nicht“ oder „nie“", "with “on” or “off”", ()),  # the words, not what they deny
        ("nicht nur lesbar", "only readable", ()),
        ("nicht zuletzt hier", "especially here", ()),
        ("nicht nur Wasser, sondern Wein", "more wine than water", ()),
        ("Das ist nicht anwendbar", "That is inapplicable", ()),
        ("Das kann nicht gehen", "That may cause problems", ()),
        ("nicht beschreibbar", "write-protected", ()),
    ],
)
def test_what_breaks_a_rule(source, target, broken):
    one = line(source, target)
    checked = check_rules(one.source, one.target, DE_EN)
    assert tuple(name for name in RULE_NAMES if checked.get(name)) == broken


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


@pytest.mark.parametrize(
    ("source", "target", "languages", "name"),
    [
        ("3 May", "5. März", ("en", "de"), WRONG_NUMBER),
        ("May 3, 2009", "3 de marzo de 2009", ("en", "es"), WRONG_NUMBER),
        ("at 9 a.m.", "um 21 Uhr", ("en", "de"), WRONG_NUMBER),
        ("from 1 to 2", "de 1 à 1", ("en", "fr"), WRONG_NUMBER),
        ("Page 4 of 12", "Página 5 de 12", ("en", "pt"), WRONG_NUMBER),
        ("It costs $5", "Das kostet 5 €", ("en", "de"), "wrong unit"),
        ("8 km", "8 miglia", ("en", "it"), "wrong unit"),
        ("%d MB free", "%d Go libres", ("en", "fr"), "wrong unit"),
        ("%s seconds", "%s Minuten", ("en", "de"), "wrong unit"),
        ("%d hours, %d minutes, %d seconds", "%d Stunden, %d Minuten, %d Minuten", ("en", "de"), "wrong unit"),
        ("%d TB free", "%d Go libres", ("en", "fr"), "wrong unit"),
        ("wait (%d) seconds", "espere (%d) minutos", ("en", "es"), "wrong unit"),
        ("20 °C", "20 °F", ("en", "es"), "wrong unit"),
        ("EUR 5", "5 $", ("en", "de"), "wrong unit"),
        ("9 km/h", "9 mph", ("de", "en"), "wrong unit"),
        ("The file was not found", "The file was not found", ("en", "pt"), UNTRANSLATED),
        ("This cannot be undone", "Das kann rückgängig gemacht werden", ("en", "de"), "negation lost"),
        ("This cannot be undone", "Cela peut être annulé", ("en", "fr"), "negation lost"),
        ("There is no such folder", "Existe tal carpeta", ("en", "es"), "negation lost"),
        ("The file is not there", "o arquivo está no caminho", ("en", "pt"), "negation lost"),
        ("It is not there. Go on?", "Es ist da. Weiter?", ("en", "de"), "negation lost"),
        ("Never ask again", "Pergunte de novo", ("en", "pt"), "negation lost"),
        ("Do not close it", "Chiudere", ("en", "it"), "negation lost"),
        ("Datei nicht gefunden", "file found", ("de", "en"), "negation lost"),
        ("La page existe", "The page does not exist", ("fr", "en"), "negation added"),
    ],
)
def test_each_rule_finds_its_fault(source, target, languages, name):
    assert check_rules(segment(source), segment(target), languages)[name] is not None


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("3 May 2009", "3. Mai 2009", ("en", "de")),
        ("3 May", "3 de mayo", ("en", "es")),
        ("10/3/90", "3 octobre 1990", ("en", "fr")),
        ("It costs $5", "Das kostet 5 Dollar", ("en", "de")),
        ("5 MB", "5 Mio", ("en", "fr")),
        ("5 TB", "5 To", ("en", "fr")),
        ("from 1 hour to 2 hours", "von 1 bis 2 Stunden", ("en", "de")),
        ("Do not stop until it ends", "Erst am Ende anhalten", ("en", "de")),
        ("8 km", "8 quilômetros", ("en", "pt")),
        ("wait 30 seconds", "aspettare 30 secondi", ("en", "it")),
        ("50% off", "50 Prozent Rabatt", ("en", "de")),
        ("at 9 o'clock", "à 9 heures", ("en", "fr")),
        ("utf8 and x86_64", "UTF-8 und x86_64", ("en", "de")),
        ("%2d of %1$s", "%2d von %1$s", ("en", "de")),
        ("in the 1970s", "in den 70er Jahren", ("en", "de")),
        ("You can 't do it", "Das geht nicht", ("en", "de")),
        ("a two-letter code", "ein Code aus 2 Buchstaben", ("en", "de")),
        ("Cannot open it", "Impossible de l'ouvrir", ("en", "fr")),
        ("%s not found", "%s introuvable", ("en", "fr")),
        ("No such file", "Archivo inexistente", ("en", "es")),
        ("Cannot delete it", "Impossível apagar", ("en", "pt")),
        ("At the top", "no topo", ("en", "pt")),
        ("There is no such group", "Gruppo inesistente", ("en", "it")),
        ("Unsupported type", "Tipo no admitido", ("en", "es")),
        ("Invalid page", "Página não válida", ("en", "pt")),
        ("Failed to open it", "Konnte nicht geöffnet werden", ("en", "de")),
        ("Do not ask again", "Ne plus demander", ("en", "fr")),
        ("It is missing", "Non c'è", ("en", "it")),
        ("answer yes/no", "mit ja antworten", ("en", "de")),
        ("Lines, 5 if not given", "Zeilen (Vorgabe: 5)", ("en", "de")),
        ("It has no effect except on %s", "Es wirkt nur auf %s", ("en", "de")),
        ("The folder is not writable", "Der Ordner ist schreibgeschützt", ("en", "de")),
        ("It has no errors", "Es ist fehlerfrei", ("en", "de")),
        ("It didn't finish", "Il a été interrompu", ("en", "fr")),
    ],
)
def test_right_translations_break_no_rule(source, target, languages):
    assert not any(check_rules(segment(source), segment(target), languages).values())


def test_a_name_is_wrong_if_the_translation_lacks_it():
    """A name that only the translation has may be a noun that is kept elsewhere."""
    denials = tuple(Denials(frozenset(), frozenset(), frozenset({"tom", "name"})) for _ in range(2))
    for source, target, expected in [
        ("Tom is here", "Peter ist hier", Break("“Tom” is only in the source", (0, 3))),
        ("Tom is here", "Toms ist hier", None),
        ("invalid mode", "Ungültiger Name", "does not apply"),
    ]:
        checked = check_rules(segment(source), segment(target), ("en", "de"), denials)
        assert checked.get("wrong name", "does not apply") == expected


@pytest.mark.parametrize("piece", ["the ", "a-", "a_", "a'", "\n", "(", "x", "1 ", "nicht ", "5 km "])
def test_hostile_text_is_checked_in_seconds(piece):
    text = white_space_words("a" + piece * (8_000 // len(piece)))
    begin = time.process_time()
    check_rules(text, text, ("en", "de"))
    assert time.process_time() - begin < 5


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
