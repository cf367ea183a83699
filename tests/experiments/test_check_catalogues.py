"""Faults that `check_catalogues.py` plants: each is in the translation, and only there."""

import random

import pytest


@pytest.fixture
def catalogues(experiment):
    return experiment("check_catalogues")


TEXTS = {
    "The file has 8 lines, and it cannot be read.": "Die Datei hat 8 Zeilen, sie kann nicht gelesen werden.",
    "Wait %d seconds for the answer of the server.": "Warten Sie %d Sekunden auf die Antwort des Servers.",
    "A list of your last messages is shown below.": "Unten steht eine Liste Ihrer letzten Nachrichten.",
    "Your garden needs water, light and a little patience.": "Ihr Garten braucht Wasser, Licht und etwas Geduld.",
    "Cancel": "Abbrechen",
    "Next page": "Nächste Seite",
}


def entries_of(catalogues):
    plurals = ("{} Tag", "{} Tage"), ("{} Buch", "{} Bücher")
    singular = [catalogues.Entry(source, (target,)) for source, target in TEXTS.items()]
    return [*singular, *(catalogues.Entry(f"{forms[0]} en", forms, f"{forms[1]} en") for forms in plurals)]


def planted(catalogues, kind):
    entries = entries_of(catalogues)
    found = catalogues.possible_faults(entries, "de", [kind], random.Random(1))[kind]
    return {entries[number].source: (entries[number], entry) for number, entry in found}


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("negation dropped", "The file has 8 lines, and it cannot be read.", "sie kann gelesen werden."),
        ("untranslated copy", "A list of your last messages is shown below.", "A list of your last messages is shown"),
        ("date or unit changed", "Wait %d seconds for the answer of the server.", "Warten Sie %d Minuten auf"),
        ("cut at half", "Your garden needs water, light and a little patience.", "Ihr Garten braucht Wasser,"),
    ],
)
def test_a_fault_changes_what_its_kind_says(catalogues, kind, source, expected):
    old, new = planted(catalogues, kind)[source]
    assert expected in new.targets[0]
    assert new.source == old.source
    assert new.targets != old.targets


def test_every_kind_is_planted_and_leaves_the_source(catalogues):
    for kind in catalogues.KINDS:
        ones = planted(catalogues, kind)
        assert ones, kind
        assert all(new._replace(targets=old.targets) == old for old, new in ones.values())


def test_a_number_and_a_placeholder_are_changed_once(catalogues):
    _, number = planted(catalogues, "number changed")["The file has 8 lines, and it cannot be read."]
    assert "8" not in number.targets[0]
    assert sum(map(str.isdigit, number.targets[0])) == 1
    _, placeholder = planted(catalogues, "placeholder changed")["Wait %d seconds for the answer of the server."]
    assert placeholder.targets[0].removeprefix("Warten Sie ").endswith("Sekunden auf die Antwort des Servers.")
    assert "%d" not in placeholder.targets[0]


def test_a_right_negation_stays_if_there_are_two(catalogues):
    entry = catalogues.Entry("It does not and cannot work.", ("Es läuft nicht und kann nicht laufen.",))
    assert catalogues.negation_dropped(catalogues.Place(entry, entry, "de", random.Random(1))) is None


def test_draws_take_no_fault_twice_and_few_of_each_kind(catalogues):
    possible = {"often": [(number, f"o{number}") for number in range(29)], "rare": [(3, "r3"), (4, "r4")]}
    drawn = list(catalogues.draws(possible, 4, 3))
    assert [[kind for kind, _ in draw.values()] for draw in drawn] == [
        ["rare", "often", "rare", "often"],
        ["often", "often", "often"],
        ["often", "often", "often"],
    ]
    assert len({entry for draw in drawn for _, entry in draw.values()}) == 10


@pytest.mark.parametrize("suffix", [".po", ".csv", ".xlf"])
def test_a_written_entry_is_read_back_at_its_line(catalogues, suffix, tmp_path):
    from hf_attncal.checking.documents.document_formats import format_of, read_document

    entries = [one for one in entries_of(catalogues) if not one.plural]
    [name], begins = catalogues.written(entries, tmp_path / f"text{suffix}", "de")
    sources = [pair.source for pair in read_document(name, format_of(name)).pairs[-len(entries) :]]
    ends = [*begins[1:], 1000]
    assert all(begin <= one.line < end for one, begin, end in zip(sources, begins, ends, strict=True))
    lines = (tmp_path / f"text{suffix}").read_text(encoding="utf-8").split("\n")
    for entry, begin, end in zip(entries, begins, ends, strict=True):
        assert entry.source in "".join(lines[begin - 1 : end - 1])
