"""Terms that a translation has to use."""

import pytest

from hf_attncal.checking.rules import Glossary

TBX = """<martif><text><body><termEntry id="1">
<langSet xml:lang="de"><tig><term>Gerät</term></tig></langSet>
<langSet xml:lang="en-GB"><tig><term>device</term></tig><tig><term>unit</term></tig></langSet>
</termEntry></body></text></martif>"""


@pytest.mark.parametrize(
    ("source", "target", "missed"),
    [
        ("Das Gerät ist neu.", "The device is new.", []),
        ("Die Geräte sind neu.", "The units are new.", []),
        ("Das Gerät ist neu.", "The machine is new.", ["Gerät"]),
        ("Das Messgerät ist neu.", "The gauge is new.", []),
        ("Der rote  Knopf", "The red button", []),
        ("Der rote Knopf des Geräts", "The red knob", ["Gerät", "rote Knopf"]),
        ("", "", []),
    ],
)
def test_terms_that_are_missed(tmp_path, source, target, missed):
    (tmp_path / "terms.tsv").write_text("# terms\nGerät\tdevice|unit\nrote Knopf\tred button\n")
    assert Glossary.read(tmp_path / "terms.tsv").missed(source, target) == missed


def test_a_glossary_of_tbx(tmp_path):
    (tmp_path / "terms.tbx").write_text(TBX)
    terms = Glossary.read(tmp_path / "terms.tbx", "de", "en")
    assert terms.missed("Das Gerät", "The unit") == []
    assert terms.missed("Das Gerät", "The thing") == ["Gerät"]
    with pytest.raises(ValueError, match=r"'de' to 'fr'; its languages are \['de', 'en'\]"):
        Glossary.read(tmp_path / "terms.tbx", "de", "fr")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("t.tsv", "Gerät device\n", "line 1: a term, a tab"),
        ("t.tsv", "--\tdevice\n", "must have letters"),
        ("t.tbx", "<martif>", "is no XML"),
        ("t.tbx", '<!DOCTYPE x [<!ENTITY a "b">]><martif/>', "defines entities"),
    ],
)
def test_damaged_glossaries(tmp_path, name, text, told):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=told):
        Glossary.read(tmp_path / name, "de", "en")
