"""Short segments and pairing by an encoder: a stub whose vectors are those of known words."""

from types import SimpleNamespace

import numpy as np
import pytest

from hf_attncal.checking.alarms import TextAlarms
from hf_attncal.checking.checker import JudgedPair
from hf_attncal.checking.documents.findings import SegmentSide
from hf_attncal.checking.documents.pairing import belong_together, pair_segments
from hf_attncal.checking.documents.segments import Segment
from hf_attncal.checking.documents.short_segments import is_short, sentence_findings, short_findings
from hf_attncal.data.segmentation import segment

# Words of both languages with one vector for each row.
LEXICON = """open öffnen|close schließen|save speichern|file datei|print drucken|search suchen|window fenster
help hilfe|page seite|copy kopieren|delete löschen|remove entfernen|first erste|last letzte|new neue|line zeile
colour farbe|number anzahl|image bild|text wort|tool werkzeug|name name
user benutzer|group gruppe|host rechner|key schlüssel"""
SIZE = 64


class Reader:
    """Reader whose vector of a text is the sum of the vectors of its words."""

    def __init__(self):
        generator = np.random.default_rng(0)
        self.words = {}
        for row in LEXICON.replace("\n", "|").split("|"):
            vector = generator.normal(size=SIZE) / np.sqrt(SIZE)
            self.words |= {word: vector + 0.1 * generator.normal(size=SIZE) / np.sqrt(SIZE) for word in row.split()}

    def vectors(self, texts):
        words = ([word.strip(":.…!_") for word in text.lower().split()] for text in texts)
        zero = np.zeros(SIZE)
        return np.array([sum((self.words.get(word, zero) for word in of_text), start=zero) for of_text in words])


@pytest.fixture
def checker():
    return SimpleNamespace(aligner=None, encoder=SimpleNamespace(evidence_reader=Reader(), covers_languages=True))


PAIRS = [
    ("Open file", "Datei öffnen"),
    ("Close window", "Fenster schließen"),
    ("Save image", "Bild speichern"),
    ("Print page", "Seite drucken"),
    ("Search text", "Wort suchen"),
    ("Delete line", "Zeile löschen"),
    ("Remove key", "Schlüssel entfernen"),
    ("Copy name", "Name kopieren"),
    ("New user", "Neue Benutzer"),
    ("First group", "Erste Gruppe"),
    ("Last host", "Letzte Rechner"),
    ("Help", "Hilfe"),
    ("Tool number", "Anzahl Werkzeug"),
    ("Colour", "Farbe"),
    ("Print image", "Bild drucken"),
    ("Open window", "Fenster öffnen"),
]


def side(text, raw=""):
    return SegmentSide("x.po", (Segment(text, "entry", 1, raw=raw),) if text else ())


def found(checker, pairs):
    sides = (tuple(side(*([text] if isinstance(text, str) else text)) for text in pair) for pair in pairs)
    return short_findings(checker, dict(enumerate(sides)))


def test_right_short_segments_have_no_finding(checker):
    assert found(checker, PAIRS) == []
    assert found(checker, PAIRS[:1]) == []


def test_the_text_of_another_entry_is_found(checker):
    pairs = [*PAIRS]
    pairs[3] = "Print page", "Fenster schließen"
    (one,) = found(checker, pairs)
    assert (one.unit, one.kind) == (3, "unrelated")
    assert "“Close window”" in one.reason
    assert one.probability > 0.5


def test_two_entries_with_each_other_s_text_are_found(checker):
    pairs = [*PAIRS]
    pairs[3], pairs[5] = ("Print page", "Zeile löschen"), ("Delete line", "Seite drucken")
    ones = found(checker, pairs)
    assert [one.unit for one in ones] == [3, 5]
    pairs[5] = PAIRS[5]
    alone = found(checker, pairs)
    assert [one.unit for one in alone] == [3]


def test_synonyms_may_have_one_translation(checker):
    """`Remove` is translated as `Delete` is: the text is one of another entry, but close to its own source."""
    checker.encoder.evidence_reader.words["remove"] = checker.encoder.evidence_reader.words["delete"]
    assert found(checker, [*PAIRS, ("Delete key", "Schlüssel löschen"), ("Remove line", "Zeile löschen")]) == []


def test_long_segments_copies_and_missing_sides_are_left_to_others(checker):
    assert is_short("Open the file now")
    assert not is_short("Open the file right now")
    assert not is_short("%d / %d")
    pairs = [*PAIRS, ("Print the page of this image", "Hilfe"), ("Key", "Key"), ("Key", "")]
    assert found(checker, pairs) == []


def test_without_a_judge_only_marks_are_compared(checker):
    checker.encoder.covers_languages = False
    pairs = [*PAIRS, ("Help", "Fenster schließen"), ("Open file", "Zeile löschen")]
    assert found(checker, pairs) == []
    assert found(SimpleNamespace(aligner=None, encoder=None), pairs) == []


@pytest.mark.parametrize(
    ("pair", "kind", "reason"),
    [
        (("User name:", "Name Benutzer"), "wrong end mark", "“:” at the end is lost"),
        (("Open file...", "Datei öffnen"), "wrong end mark", "“…” at the end is lost"),
        ((("Save", "_Save"), "Speichern"), "changed", "the accelerator of “_Save” is lost"),
    ],
)
def test_a_lost_mark_is_found_unless_the_text_often_loses_it(checker, pair, kind, reason):
    kept = [(f"{source}:", f"{target} :") for source, target in PAIRS]
    identifiers = (("Colour", "a_colour"), "Farbe"), (("User", "?some_kind:User"), "Benutzer")
    entities = (("Tom & Ann", "Tom &amp; Ann"), "Tom und Ann"), (("5 < 7", "5 &#60; 7"), "5 unter 7")
    (one,) = found(checker, [*kept, pair, *identifiers, *entities])
    assert (one.unit, one.kind, one.reason) == (len(kept), kind, reason)
    assert 0.5 < one.probability < 1
    assert found(checker, [pair] * 8) == []


def test_a_copied_or_unlike_plural_form_is_found_beside_others(checker):
    def forms(*pairs):
        return {
            number: tuple(SegmentSide("x.po", (Segment(text, "entry", 1, key=f"msgstr[{number}]"),)) for text in pair)
            for number, pair in enumerate(pairs)
        }

    (one,) = short_findings(checker, forms(("%d line", "%d line"), ("%d lines", "%d Zeilen")))
    assert (one.unit, one.kind) == (0, "untranslated")
    assert short_findings(checker, forms(("%d nonillion", "%d nonillion"), ("%d nonillion", "%d nonillions"))) == []
    assert short_findings(checker, forms(("%d line", "%d line"), ("%d lines", "%d lines"))) == []
    (one,) = short_findings(checker, forms(("%d file found", "Vorgang beendet"), ("%d files found", "%d Dateien da")))
    assert (one.unit, one.kind, one.reason) == (0, "unrelated", "the plural forms of this entry differ")
    assert short_findings(checker, forms(("%d file found", "%d Datei da"), ("%d files found", "%d Dateien da"))) == []
    assert short_findings(checker, forms(("yesterday", "gestern"), ("%d days ago", "vor %d Tagen"))) == []


def test_documents_are_paired_by_an_encoder(checker):
    source, target = ([Segment(pair[one], "item", number) for number, pair in enumerate(PAIRS)] for one in (0, 1))
    del target[4]
    scored = list(pair_segments(checker, source, target))
    assert [bead for bead, _ in scored] == [
        *(((n,), (n,)) for n in range(4)), ((4,), ()), *(((n,), (n - 1,)) for n in range(5, len(PAIRS))),
    ]  # fmt: skip
    assert belong_together(checker, source, target, scored)
    other = [Segment(f"Xyz {number}", "item", 1) for number in range(len(PAIRS))]
    assert not belong_together(checker, source, other, list(pair_segments(checker, source, other)))


def test_a_segment_of_two_is_paired_by_an_encoder(checker):
    source = [Segment(pair[0], "item", 1) for pair in PAIRS]
    target = [Segment(pair[1], "item", 1) for pair in PAIRS]
    source[6:8] = [Segment(f"{source[6].text}. {source[7].text}.", "item", 1)]
    beads = [bead for bead, _ in pair_segments(checker, source, target)]
    assert ((6,), (6, 7)) in beads
    turned = [bead for bead, _ in pair_segments(checker, target, source)]
    assert ((6, 7), (6,)) in turned


@pytest.mark.parametrize(("unknown", "kinds"), [(0.1, []), (0.9, ["addition"])])
def test_a_sentence_that_became_two_is_no_addition(unknown, kinds):
    texts = (
        "The file is lost as nothing was sent",
        "Die Datei ist leider verloren. Vom Server wurde hier nichts gesandt.",
    )
    sides = tuple(segment(text) for text in texts)
    ends = texts[1].index(".")
    probabilities = [np.array([unknown * (begin > ends) for begin, _ in side.spans]) for side in sides]
    judged = {3: JudgedPair(sides, tuple((values, np.zeros(len(values), dtype=int)) for values in probabilities))}
    units = {3: tuple(SegmentSide(name, (Segment(text, "entry", 1),)) for name, text in zip("ab", texts, strict=True))}
    alarms = TextAlarms(0.3, {}, usual_length=(0.1, 0.5))
    assert [(one.kind, one.unit) for one in sentence_findings(units, alarms, judged)] == [(one, 3) for one in kinds]
