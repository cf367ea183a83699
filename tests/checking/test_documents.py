"""Documents: reading with positions, unchanged bytes, notes, and refusal of hostile files."""

import itertools
import time
import warnings

import numpy as np
import pytest

from hf_attncal.checking.checker import JudgedPair
from hf_attncal.checking.documents.check_documents import _check_language
from hf_attncal.checking.documents.document_formats import FORMATS, format_of, is_document, noted, read_document
from hf_attncal.checking.documents.pairing import best_path, have_same_times, pair_by_time
from hf_attncal.checking.documents.segments import CODE, Document, Segment, inserted
from hf_attncal.checking.rules import check_rules
from hf_attncal.data.segmentation import segment
from hf_attncal.io.errors import CommandError

MARKDOWN = """---
title: "A short title"
tags: [a, b]
---
# Head & shoulders { #head }

A paragraph with **bold**, `code` and [a link](https://example.org),
on two lines.

1. First item
2. Second item

   continued

| a | b |
|---|---|
| one cell | two |

```python
print("hello")
```

<p>Some <b>HTML</b></p>

`all code`
"""
SRT = (
    "1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Hello</i> there.\r\nTwo lines.\r\n\r\n"
    "2\r\n00:01:03,000 --> 00:01:04,000\r\nBye.\r\n"
)
VTT = (
    "WEBVTT\n\nNOTE by hand\n\nintro\n00:01.000 --> 00:02.500 align:start\nHello there.\n\n"
    "00:03.000 --> 00:04.000\nBye.\n"
)
PO = """# head
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

#: main.c:1
msgctxt "menu"
msgid "_Open %d file"
msgid_plural "_Open %d files"
msgstr[0] "%d Datei öffnen"
msgstr[1] "%d Dateien öffnen"

#, fuzzy
msgid "Old text"
msgstr "Alter Text"

# kept
msgid ""
"Two "
"lines"
msgstr ""

#~ msgid "gone"
#~ msgstr "weg"
"""
XLIFF1 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file source-language="en" target-language="de" original="x"><body>
    <trans-unit id="a">
      <source>Press <x id="1"/> now &amp; <g id="2">here</g></source>
      <target>Jetzt <x id="1"/> drücken</target>
      <alt-trans><source>no</source><target>nein</target></alt-trans>
    </trans-unit>
    <trans-unit id="b"><source>Nothing yet</source></trans-unit>
    <trans-unit id="c" translate="no"><source>Keep</source><target>Keep</target></trans-unit>
  </body></file>
</xliff>
"""
XLIFF2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de"><file id="f">
  <unit id="u1">
    <notes><note>old</note></notes>
    <segment id="s1"><source>One <ph id="1"/></source><target>Eins <ph id="1"/></target></segment>
    <segment><source>Two</source><target>Zwei</target></segment>
  </unit>
  <unit id="u2">
    <segment><source>Three</source><target>Drei</target></segment>
  </unit>
</file></xliff>
"""
CSV = 'id,source,target\n1,"Hello, you",Hallo du\n2,"Two\nlines",Zwei Zeilen\n'
TSV = "Hello\tHallo\nBye\t\n"
JSON = """{
  "menu": {"file": "Open the <b>file</b>", "size": 3},
  "steps": ["First", "Then\\u0020this", ""]
}
"""


SAMPLES = {
    "a.md": MARKDOWN, "a.srt": SRT, "a.vtt": VTT, "a.po": PO, "a.xlf": XLIFF1, "b.xliff": XLIFF2, "a.csv": CSV,
    "a.tsv": TSV, "a.json": JSON,
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    def read_one(name, data=None):
        data = SAMPLES[name] if data is None else data
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            document = read_document(str(tmp_path / name), format_of(name))
        assert [str(one.message) for one in caught] == [f"{notice}." for notice in document.notices]
        return document

    return read_one


def test_every_format_has_a_sample():
    assert {format_of(name).name for name in SAMPLES} == {row.name for row in FORMATS}


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_noted_is_byte_for_byte(read, name):
    data = SAMPLES[name].encode()
    for variant in (data, b"\xef\xbb\xbf" + data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")):
        document = read(name, variant)
        assert noted(document, format_of(name), []) == variant
        assert document.data == variant


@pytest.mark.parametrize("name", [name for name in SAMPLES if format_of(name).note])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_note_goes_in_and_the_rest_stays(read, name, end):
    data = SAMPLES[name].replace("\r\n", "\n").replace("\n", end).encode()
    document = read(name, data)
    segments = document.segments or [pair.source for pair in document.pairs]
    note = "left out: “x” & <y>"
    written = noted(document, format_of(name), [(one.at, [note]) for one in segments[:1]])
    assert written != data
    assert b"left out" in written
    again = read(name, written)
    assert [plain_of(a) for a in (again.segments, again.pairs)] == [
        plain_of(b) for b in (document.segments, document.pairs)
    ]
    start = next(k for k, pair in enumerate(zip(written, data, strict=False)) if pair[0] != pair[1])
    added = len(written) - len(data)
    assert written[: segments[0].at] == data[: segments[0].at]
    assert written[:start] + written[start + added :] == data


def plain_of(segments):
    texts = []
    for one in segments:
        texts += [(side.text, side.key) for side in ([one] if isinstance(one, Segment) else one) if side]
    return texts


def texts(document):
    return [(one.kind, one.line, one.text) for one in document.segments]


def test_markdown(read):
    assert texts(read("a.md")) == [
        ("front matter", 2, "A short title"),
        ("heading", 5, "Head & shoulders"),
        ("paragraph", 7, "A paragraph with bold, code and a link, on two lines."),
        ("item", 10, "First item"),
        ("item", 11, "Second item"),
        ("item", 13, "continued"),
        ("row", 15, "a | b"),
        ("row", 17, "one cell | two"),
        (CODE, 19, 'print("hello")'),
        ("html", 23, "Some HTML"),
        (CODE, 25, "all code"),
    ]
    assert read("a.md").segments[1].key == "head"


def test_subtitles(read):
    document = read("a.srt")
    assert texts(document) == [("cue", 1, "Hello there. Two lines."), ("cue", 6, "Bye.")]
    assert [one.time for one in document.segments] == [(1.0, 2.5), (63.0, 64.0)]
    assert [(one.key, one.line) for one in read("a.vtt").segments] == [("intro", 5), ("2", 9)]


def sides(document):
    return [tuple(side and side.text for side in pair) for pair in document.pairs]


def test_bilingual_files(read):
    po = read("a.po")
    assert sides(po) == [("Open %d file", "%d Datei öffnen"), ("Open %d files", "%d Dateien öffnen")]
    assert [(pair.source.line, pair.source.key) for pair in po.pairs] == [(5, "menu msgstr[0]"), (5, "menu msgstr[1]")]
    assert po.pairs[1].source.raw == "_Open %d files"
    assert sides(read("a.xlf")) == [("Press now & here", "Jetzt drücken"), ("Nothing yet", None)]
    assert read("a.xlf").pairs[0].target.raw == 'Jetzt <x id="1"/> drücken'
    assert sides(read("b.xliff")) == [("One", "Eins"), ("Two", "Zwei"), ("Three", "Drei")]
    assert [pair.source.key for pair in read("b.xliff").pairs] == ["u1/s1", "u1", "u2"]
    assert sides(read("a.csv")) == [("Hello, you", "Hallo du"), ("Two lines", "Zwei Zeilen")]
    assert [(pair.source.key, pair.source.line) for pair in read("a.csv").pairs] == [("1", 2), ("2", 3)]
    assert sides(read("a.tsv")) == [("Hello", "Hallo"), ("Bye", None)]


def test_notes_of_each_xliff(read):
    document = read("b.xliff")
    notes = [(one.source.at, ["n"]) for one in (document.pairs[0], document.pairs[2])]
    written = noted(document, format_of("b.xliff"), notes).decode()
    assert '<note>old</note><note category="attncal">n</note></notes>' in written
    assert '<unit id="u2">\n    <notes><note category="attncal">n</note></notes>\n    <segment>' in written


def test_which_names_are_documents():
    assert is_document("x.MD", "y.md")
    assert is_document("x.po", None)
    assert is_document("x.json.gz", "y.json.gz")
    assert is_document("x.txt", "y.md")  # refused later, and never read as lines
    for names in (("x.de", "y.en"), ("x.txt", None), ("x", "y.tok.gz"), ("x.deu_Latn", "y.zh-Hans"), ("2.0/x", "y.1")):
        assert not is_document(*names)
    assert not is_document(["a line"], ["a line"])


@pytest.mark.parametrize(
    "suffix",
    [
        "epub",
        "usfm",
        "sfm",
        "tmx",
        "vref",
        "verses",
        "docx",
        "html",
        "xml",
        "yaml",
        "properties",
        "strings",
        "ts",
        "resx",
    ],
)
def test_formats_that_are_not_read_are_refused(suffix):
    for names in ((f"x.{suffix}", None), ("x.en", f"y.{suffix}"), ("x.md", f"y.{suffix.upper()}")):
        with pytest.raises(CommandError, match=f"{suffix.upper()} files cannot be checked"):
            is_document(*names)


# ---- hostile and broken files ----

_BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><xliff><file/>&b;</xliff>'
_OUTER = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><xliff><unit><segment><source>&a;</source></segment></unit></xliff>'
_HOSTILE = {
    "bomb.xlf": (_BOMB, "defines entities"),
    "outer.xlf": (_OUTER, "defines entities"),
    "cut.xlf": (XLIFF1[:400], "line 8 is not valid XML"),
    "source.xlf": ("<xliff><trans-unit id='1'><source>One two</source></trans-unit></xliff>", "has no <target>"),
    "old.srt": (SRT.replace("Bye", "Schön").encode("cp1252"), "is not UTF-8"),
    "long.srt": ("".join(f"{n}\n00:00:01,000 --> 00:00:02,000\nHi there\n\n" for n in range(60_000)), "50,000 cues"),
    "broken.po": (PO + '\nmsgid "x\nmsgstr y\n', "is not a valid PO file (line"),
    "no.po": ("just some text\n", "no line that begins with `msgid`"),
    "latin.po": (PO.replace("UTF-8", "x-unknown"), "has the charset x-unknown"),
    "quote.csv": ('a,b\n"x,y\n', "cannot be read"),
    "narrow.tsv": ("a\tb\nc\n", "line 2 has 1 columns"),
    "deep.xlf": (f"<xliff>{'<g>' * 400}", "line 1 has more than 200 nested elements"),
    "deep.json": ("[" * 10_000_000, "too many nested brackets"),
    "cut.json": ('{"a": "b', "Unterminated string starting at: line 1 column 7"),
    "half.json": ('{"a":\n "\\ud800 text"}', "line 2 has an escape for no character"),
    "brackets.md": ("[" * 10_000_000, "a paragraph of more than 100,000 characters"),
    "template.pot": ('msgid "One"\nmsgstr ""\n', "no text to check (not translated yet: 1 of 1 entries, line 1)"),
    "times.srt": ("1\n00:00:0x,000 --> 00:00:02,000\nHi\n", "times that cannot be read: 1 of 1 cues, line 2"),
    "empty.md": ("\n\n", "has no text"),
}  # fmt: skip


@pytest.mark.parametrize("name", _HOSTILE)
def test_what_cannot_be_read_is_refused_in_a_line(read, name):
    data, message = _HOSTILE[name]
    begin = time.process_time()
    with pytest.raises(CommandError) as raised:
        read(name, data)
    assert message in str(raised.value)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)
    assert time.process_time() - begin < 5


# ---- pairing ----


def every_path(sources, targets):
    """Yield all paths of beads 1-1, 1-0, 0-1, 1-2 and 2-1."""
    if not sources and not targets:
        yield ()
    for a, b in ((1, 1), (1, 0), (0, 1), (1, 2), (2, 1)):
        if a <= sources and b <= targets:
            for rest in every_path(sources - a, targets - b):
                yield ((a, b), *rest)


def test_the_best_of_all_paths():
    rng = np.random.default_rng(0)
    for sources, targets in itertools.product((1, 2, 4), (1, 3, 4)):
        single = rng.normal(size=(sources, targets)) * 3
        two = rng.normal(size=(sources, targets - 1)) * 3
        one = rng.normal(size=(max(0, sources - 1), targets)) * 3

        def total(path, tables={(1, 1): single, (1, 2): two, (2, 1): one}):  # noqa: B006
            i = j = 0
            value = 0.0
            for step in path:
                value += tables[step][i, j] if step in tables else -2.0
                i, j = i + step[0], j + step[1]
            return value

        beads = best_path(single, two, one, gap=-2.0)
        assert [k for of, _ in beads for k in of] == list(range(sources))
        assert [k for _, of in beads for k in of] == list(range(targets))
        found = total([(len(a), len(b)) for a, b in beads])
        assert found == pytest.approx(max(map(total, every_path(sources, targets))))


def test_cues_are_paired_by_time():
    def cues(*times):
        return [Segment("x", "cue", 1, time=time) for time in times]

    source_cues = cues((0, 2), (2, 4), (5, 8), (9, 11), (11, 13))
    target_cues = cues((0, 1.9), (1.9, 4), (5, 6), (6, 8.1))
    assert have_same_times(source_cues, target_cues)
    beads = [((0,), (0,)), ((1,), (1,)), ((2,), (2, 3)), ((3,), ()), ((4,), ())]
    assert list(pair_by_time(source_cues, target_cues)) == beads
    assert not have_same_times(source_cues, cues((30, 31), (40, 41)))


def test_pieces_are_put_in():
    assert inserted(b"abc", [(0, b"1"), (2, b"2"), (2, b"3"), (3, b"4")]) == b"1ab23c4"
    assert noted(Document("x", b"abc"), FORMATS[0], []) == b"abc"


def test_a_translation_in_the_language_of_its_source_is_refused():
    """Copies are findings, but another text in the same language was given by mistake."""
    german = [
        (f"Das Haus {n} ist nicht alt und klein.", f"Die Katze {n} wird mit der Maus gefunden.") for n in range(15)
    ]

    def judged(pairs):
        return [
            JudgedPair(sides, None, rules=check_rules(*sides, ("de", "en")))
            for sides in ((segment(source), segment(target)) for source, target in pairs)
        ]

    with pytest.raises(CommandError, match=r"b\.md are both in the language 'de'"):
        _check_language(judged(german), "a.md", "b.md")
    _check_language(judged([(source, source) for source, _ in german]), "a.md", "b.md")
    _check_language(judged([(source, "The house is not old and small.") for source, _ in german]), "a.md", "b.md")
    _check_language(judged(german[:3]), "a.md", "b.md")
