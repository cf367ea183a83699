"""Readers of documents on files as people have them: every form, column, state and cue is read, or counted."""

import random
import time
import warnings

import pytest

from hf_attncal.checking.documents.document_formats import LINES, format_of, read_document
from hf_attncal.checking.documents.pairing import pair_by_key, pair_by_time
from hf_attncal.checking.documents.segments import CODE, Segment, changed_parts, lines_with_places
from hf_attncal.checking.placeholders import compare_placeholders
from hf_attncal.io.errors import CommandError

HEAD = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
TWO_FORMS = f'{HEAD}"Language: de\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
FRENCH = f'{HEAD}"Language: fr\\n"\n"Plural-Forms: nplurals=2; plural=(n > 1);\\n"\n\n'
ONE_FORM = f'{HEAD}"Plural-Forms: nplurals=1; plural=0;\\n"\n\n'
RUSSIAN = (
    f'{HEAD}"Plural-Forms: nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && '
    '(n%100<10 || n%100>=20) ? 1 : 2);\\n"\n\n'
)
ARABIC = (
    f'{HEAD}"Plural-Forms: nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : '
    'n%100>=11 ? 4 : 5;\\n"\n\n'
)


@pytest.fixture
def read(tmp_path):
    def read_one(name, data, columns=None):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read_document(str(path), format_of(name) or LINES, columns)

    return read_one


def sides(document):
    return [tuple(side and side.text for side in pair) for pair in document.pairs]


def notices(document):
    return [notice.partition(f"{document.name}: ")[2] for notice in document.notices]


def entry(*forms, singular="%d box is open", plural="%d boxes are open"):
    texts = "".join(f'msgstr[{number}] "{form}"\n' for number, form in enumerate(forms))
    return f'msgid "{singular}"\nmsgid_plural "{plural}"\n{texts}\n'


# ---- PO ----


def test_an_address_in_angle_brackets_is_text_and_a_tag_is_none(read):
    data = f'{HEAD}\nmsgid "<b>see</b> <https://a.org/x> <me@a.org>"\nmsgstr "siehe https://a.org/x <me@a.org>"\n'
    assert sides(read("a.po", data)) == [("see <https://a.org/x> <me@a.org>", "siehe https://a.org/x <me@a.org>")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TWO_FORMS + entry("%d K", "%d Kisten"), [("%d box is open", "%d K"), ("%d boxes are open", "%d Kisten")]),
        (TWO_FORMS + entry("", "%d Kisten"), [("%d box is open", None), ("%d boxes are open", "%d Kisten")]),
        # The singular may do without the number, and others may not.
        (TWO_FORMS + entry("Eine Kiste", "Kisten"), [("box is open", "Eine Kiste"), ("%d boxes are open", "Kisten")]),
        (TWO_FORMS + entry("1 Kiste", "%d K"), [("1 box is open", "1 Kiste"), ("%d boxes are open", "%d K")]),
        (TWO_FORMS + entry("%s Kiste", "%d K"), [("%d box is open", "%s Kiste"), ("%d boxes are open", "%d K")]),
        (FRENCH + entry("Une boîte", "boîtes"), [("box is open", "Une boîte"), ("%d boxes are open", "boîtes")]),
        # The singular may have the number of the plural.
        (
            TWO_FORMS + entry("%d Kiste", "%d K", singular="One box"),
            [("%d boxes are open", "%d Kiste"), ("%d boxes are open", "%d K")],
        ),
        (ONE_FORM + entry("%d個"), [("%d boxes are open", "%d個")]),
        (HEAD + "\n" + entry("%d個"), [("%d boxes are open", "%d個")]),
        (
            RUSSIAN + entry("Ящик", "%d ящика", ""),  # the first form is for 21, too
            [("%d box is open", "Ящик"), ("%d boxes are open", "%d ящика"), ("%d boxes are open", None)],
        ),
        (RUSSIAN + entry("%d ящик", "%d ящика"), [("%d box is open", "%d ящик"), ("%d boxes are open", "%d ящика"),
                                                   ("%d boxes are open", None)]),
        (
            ARABIC + entry("لا شيء", "صندوق", "صندوقان", "%d أ", "%d ب", "%d ج"),
            [("boxes are open", "لا شيء"), ("box is open", "صندوق"), ("boxes are open", "صندوقان"),
             *(("%d boxes are open", text) for text in ("%d أ", "%d ب", "%d ج"))],
        ),
    ],
)  # fmt: skip
def test_every_plural_form_is_beside_its_source(read, text, expected):
    document = read("a.po", text)
    assert sides(document) == expected
    assert [pair.source.key for pair in document.pairs] == [f"msgstr[{number}]" for number in range(len(expected))]


@pytest.mark.parametrize(("sign", "expected"), [("{}.", []), (".", [("{}th", None)])])
def test_a_sign_is_no_text_unless_it_lost_a_placeholder(read, sign, expected):
    text = f'{HEAD}\nmsgid "{{}}th"\nmsgstr "{sign}"\n\nmsgid "One"\nmsgstr "Eins"\n'
    assert sides(read("a.po", text)) == [*expected, ("One", "Eins")]


@pytest.mark.parametrize("formula", ["n/(n-1)", "n", "(" * 400, "__import__('os')", "n=1", ""])
def test_a_broken_formula_of_plurals_is_no_formula(read, formula):
    document = read("a.po", f'{HEAD}"Plural-Forms: nplurals=2; plural={formula};\\n"\n\n' + entry("%d a", "%d b"))
    assert sides(document) == [("%d box is open", "%d a"), ("%d boxes are open", "%d b")]


def test_entries_that_are_not_checked_are_counted(read):
    empty = 'msgid "Nothing yet {0}"\nmsgstr ""\n\n'
    text = (
        TWO_FORMS + "".join(map(empty.format, range(12))) + entry("", "") + '#, fuzzy\nmsgid "Old"\nmsgstr "Alt"\n\n'
    )
    document = read("a.po", f'{text}msgid "One"\nmsgstr "Eins"\n\n#~ msgid "gone"\n#~ msgstr "weg"\n')
    assert sides(document) == [("One", "Eins")]
    assert notices(document) == [
        "not checked, as they are fuzzy: 1 of 15 entries, line 48",
        "not translated yet: 13 of 15 entries, line 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, ...",
    ]


def test_a_key_is_no_source_but_its_text_in_a_comment_is(read):
    keyed = '#. Default: "Add a comment"\nmsgid "label_add_comment"\nmsgstr "Kommentar hinzufügen"\n\n'
    others = 'msgid "user:mail.txt"\nmsgstr "Sie haben Post."\n\nmsgid "apt.conf"\nmsgstr "Datei apt.conf"\n'
    document = read("a.po", f"{HEAD}\n{keyed}{others}")
    assert sides(document) == [("Add a comment", "Kommentar hinzufügen"), ("apt.conf", "Datei apt.conf")]
    assert notices(document) == ["not checked, as their source is a key: 1 of 3 entries, line 9"]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("_File", "_Datei", ("File", "Datei")),
        ("E_xit", "B_eenden", ("Exit", "Beenden")),
        ("&Open the file", "Datei ö&ffnen", ("Open the file", "Datei öffnen")),
        ("Save _As", "保存(_S)", ("Save As", "保存")),
        ("Only %(limit_value)s", "Nur %(limit_value)s", ("Only %(limit_value)s", "Nur %(limit_value)s")),
        ("Set LC_ALL", "LC_ALL setzen", ("Set LC_ALL", "LC_ALL setzen")),
        ("Use {foo_bar}", "Nimm {foo_bar}", ("Use {foo_bar}", "Nimm {foo_bar}")),
        ("R&D costs", "Kosten der R&D", ("R&D costs", "Kosten der R&D")),
        ("Fish &amp; chips", "Fisch &amp; Pommes", ("Fish &amp; chips", "Fisch &amp; Pommes")),
    ],
)  # fmt: skip
def test_accelerators_are_no_text_and_placeholders_are_whole(read, source, target, expected):
    document = read("a.po", f'{HEAD}\nmsgid "{source}"\nmsgstr "{target}"\n')
    assert sides(document) == [expected]
    assert (document.pairs[0].source.raw, document.pairs[0].target.raw) == (source, target)


# ---- languages ----


def test_languages_of_headers_and_names(read):
    xliff = '<xliff><file source-language="en-US" target-language="pt_BR">{}</file></xliff>'
    unit = '<trans-unit id="1"><source>One</source><target>Um</target></trans-unit>'
    po = 'msgid "One"\nmsgstr "Un"\n'
    assert read("a.po", TWO_FORMS + po).languages == (None, "de")
    assert read("messages.fr.po", po).languages == (None, "fr")
    assert read("sr@latin.po", po).languages == (None, "sr")
    assert read("pt_BR/LC_MESSAGES/x.po", po).languages == (None, "pt-BR")
    assert read("a.xlf", xliff.format(unit)).languages == ("en-US", "pt-BR")
    assert read("film.de.srt", "00:01,0 --> 00:02,0\nHallo du\n").languages == ("de", None)
    assert read("app_de.arb", '{"a": "Hallo"}').languages == ("de", None)
    assert read("en/translation.json", '{"a": "Hello"}').languages == ("en", None)
    assert read("how-to.md", "# Text\n").languages == (None, None)


# ---- subtitles ----

CUE = "{0}\n00:00:{0:02},000 --> 00:00:{1:02},000\n{2}\n\n"


def cues(document):
    return [(one.key, one.line, one.text) for one in document.segments]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("First half\n\n   second half.", "First half second half."),
        ("\nAfter an empty line.", "After an empty line."),
        ("Press --> to go on", "Press --> to go on"),
        ("It is 10:30 --> too late", "It is 10:30 --> too late"),
        ("5", "5"),
        ("12:30:45 was the time", "12:30:45 was the time"),
        ("NOTE\nis a word here", "NOTE is a word here"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_cue_ends_before_the_next_number_and_times(read, text, expected, end):
    data = CUE.format(1, 2, "One.") + CUE.format(3, 4, text) + CUE.format(5, 6, "Two.")
    document = read("a.srt", data.replace("\n", end))
    assert [text for _, _, text in cues(document)] == ["One.", expected, "Two."]
    assert [key for key, _, _ in cues(document)] == ["1", "3", "5"]
    assert notices(document) == []


@pytest.mark.parametrize(
    "times",
    ["00:00:13 --> 00:00:15", "00:00:13:000 --> 00:00:15:000", "00:00:13,0 -> 00:00:15,0", "0:0:13.0-->0:0:15.0",
     "00: 00: 13, 000 --> 00: 00: 15, 000", "00:13,00 --> 00:15,00 X1:20 X2:40", "00:00:13,000 → 00:00:15,000"],
)  # fmt: skip
def test_odd_times_are_read(read, times):
    (one,) = read("a.srt", f"1\n{times}\nThe text.\n").segments
    assert (one.text, one.time, one.line, one.key) == ("The text.", (13.0, 15.0), 1, "1")


@pytest.mark.parametrize(
    "times", ["00:00:1x,000 --> 00:00:15,000", "00:00:13,000 --> ", "--> 00:00:15,000", "00:00:13,000 00:00:15,000"]
)
def test_cues_whose_times_cannot_be_read_are_counted(read, times):
    document = read("a.srt", f"Intro\n\n{CUE.format(1, 2, 'One.')}2\n{times}\nLost.\n\n{CUE.format(5, 6, 'Two.')}")
    assert [text for _, _, text in cues(document)] == ["One.", "Two."]
    expected = [
        "times that cannot be read: 1 of 3 cues, line 8",
        "not checked, before the first cue: 1 of 14 lines, line 1",
    ]
    assert notices(document) == expected


def test_entities_of_webvtt_are_characters(read):
    cue = "WEBVTT\n\n00:01.000 --> 00:02.000\nTom &amp; Ann\n"
    assert [one.text for one in read("a.vtt", cue).segments] == ["Tom & Ann"]


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x85", "\u2028"])
def test_only_line_ends_end_a_line(read, mark):
    text = f"One{mark}two\r\nthree\n"
    assert lines_with_places(text.encode(), text) == [
        (f"One{mark}two", 0),
        ("three", len(f"One{mark}two".encode()) + 2),
    ]
    entries = f'#. a{mark}b\nmsgid "One"\nmsgstr "Eins{mark}"\n\nmsgid "Two"\nmsgstr "Zwei"\n'
    pairs = read("a.po", f"{HEAD}\n{entries}").pairs
    assert [(pair.source.line, pair.target.text) for pair in pairs] == [(5, "Eins"), (9, "Zwei")]


def test_comments_of_webvtt_are_no_text(read):
    cues_read = "00:01.000 --> 00:02.000\nHi\n\nyou\n\nNOTE x\ny\n\nname\n00:03.0 --> 00:04.0\nBye\n"
    document = read("a.vtt", f"WEBVTT - title\n\nSTYLE\n::cue {{}}\n\n{cues_read}")
    assert cues(document) == [("1", 6, "Hi you"), ("name", 14, "Bye")]
    assert notices(document) == []


def test_cues_that_a_translator_merged_are_not_missing():
    def side(*items):
        return [Segment(text, "cue", 1, time=times) for text, times in items]

    source = side(
        ("I have been to the old town.", (0, 2)), ("It was raining all day long.", (2, 4)), ("We went home.", (5, 7)),
        ("Nobody said a word about it.", (8, 10)), ("The train was late again.", (11, 13)),
    )  # fmt: skip
    target = side(
        ("Ich war in der Altstadt, und es regnete den ganzen Tag lang.", (0, 2)), ("Wir gingen heim.", (5, 7)),
        ("Der Zug war wieder zu spät.", (11, 13)),
    )  # fmt: skip
    assert list(pair_by_time(source, target)) == [((0, 1), (0,)), ((2,), (1,)), ((3,), ()), ((4,), (2,))]


# ---- CSV and TSV ----

ROW = "The dog sleeps.", "Der Hund schläft."


@pytest.mark.parametrize(
    ("head", "row", "notice", "languages"),
    [
        ("key,en,de", "A,{},{}", "columns: en -> de (key: key)", ("en", "de")),
        ("Keys,English,German", "A,{},{}", "columns: English -> German (key: Keys)", ("en", "de")),
        ("id;en_US;de-DE;comment", "A;{};{};x", "columns: en_US -> de-DE (key: id)", ("en-US", "de-DE")),
        ("Source text,notes,Target text", "{},x,{}", "columns: Source text -> Target text", (None, None)),
        ("msgctxt,msgid,msgstr", "A,{},{}", "columns: msgid -> msgstr (key: msgctxt)", (None, None)),
        ("target_de,source_en", "{1},{0}", "columns: source_en -> target_de", ("en", "de")),
        ("source,German (de)", "{},{}", "columns: source -> German (de)", (None, "de")),
        ("English,Deutsch", "{},{}", "columns: English -> Deutsch", ("en", "de")),
        ("{},{}", "{},{}", "columns: 1 -> 2", (None, None)),
    ],
)
def test_columns_by_their_names(read, head, row, notice, languages):
    document = read("a.csv", f"{head.format('One cat', 'Eine Katze')}\n{row.format(*ROW)}\n")
    assert sides(document)[-1] == ROW
    assert len(document.pairs) == 1 + (head == "{},{}")
    assert (notices(document), document.languages) == ([notice], languages)


@pytest.mark.parametrize(
    "head",
    [
        "source,target_de,target_fr",
        "term,definition,context",
        "key,en,de,fr",
        "en,de,target",
        "key,text",
        "One cat,a,b",
    ],
)
def test_ambiguous_columns_are_refused_with_their_names(read, head):
    row = ",".join(f"text {number}" for number in range(len(head.split(","))))
    with pytest.raises(CommandError, match=r"has the columns .*--columns") as raised:
        read("a.csv", f"{head}\n{row}\n")
    assert ", ".join(head.split(",")) in str(raised.value)
    last = len(head.split(","))
    for columns in (f"{last},1", f" {head.split(',')[-1].upper()} , {head.split(',')[0]}"):
        assert sides(read("a.csv", f"{head}\n{row}\n", columns))[-1] == (f"text {last - 1}", "text 0")
    for columns in ("1", "1,1", "1,9", "0,1", "nothing,1", "1,2,3", "-1,1", "²,1"):
        with pytest.raises(CommandError, match="has the columns"):
            read("a.csv", f"{head}\n{row}\n", columns)
    with pytest.raises(CommandError, match="--columns is for CSV and TSV"):
        read("a.po", TWO_FORMS + entry("a", "b"), "1,2")


def test_quoted_words_between_commas_make_no_comma_the_separator(read):
    document = read("a.csv", "en;de\nThe word, 'yes', is short.;Das Wort, 'ja', ist kurz.\n")
    assert sides(document) == [("The word, 'yes', is short.", "Das Wort, 'ja', ist kurz.")]


def test_tables_of_spreadsheets(read):
    rows = 'key\ten\tde\nA\t"The ""big""\ndog"\tDer Hund\nB\tHe sleeps.\tEr schläft.\n'
    expected = [('The "big" dog', "Der Hund"), ("He sleeps.", "Er schläft.")]
    for data in (rows.encode("utf-16"), rows.replace("\n", "\r\n").encode("utf-16"), rows.encode(),
                 rows.replace("\t", ";").encode("utf-16-be").join([b"\xfe\xff", b""])):  # fmt: skip
        assert sides(read("a.tsv" if b";" not in data else "a.csv", data)) == expected
        assert sides(read("a.csv", data)) == expected
    quotes = 'source\ttarget\n"Yes" he said\t"Ja", sagte er\n"No\t"Nein\n'
    assert sides(read("a.tsv", quotes)) == [('"Yes" he said', '"Ja", sagte er'), ('"No', '"Nein')]


# ---- XLIFF ----


def units(*items, version="1.2"):
    head = 'source-language="en" target-language="de"'
    return f'<xliff version="{version}"><file {head}><body>\n{"".join(items)}</body></file></xliff>'


def unit(source, target, state=""):
    return f'<trans-unit id="a"><source>{source}</source><target{state}>{target}</target></trans-unit>\n'


@pytest.mark.parametrize("name", ["a.xlf", "a.sdlxliff", "a.mqxliff", "a.mxliff"])
def test_segments_and_states_of_xliff(read, name):
    segmented = (
        '<trans-unit id="b" approved="no"><source>One. Two.</source><seg-source><g id="1"><mrk mtype="seg" mid="1">'
        'One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk></g></seg-source><target><mrk mtype="seg" mid="1">Eins.</mrk> '
        '<mrk mtype="seg" mid="2"/></target></trans-unit>\n'
    )
    new = (unit("Three", "Three", f' state="{state}"') for state in ("new", "needs-translation"))
    document = read(name, units(unit("Four", "Vier", ' state="needs-review-translation"'), segmented, *new))
    assert sides(document) == [("Four", "Vier"), ("One.", "Eins."), ("Two.", None)]
    assert [pair.source.key for pair in document.pairs] == ["a", "b/1", "b/2"]
    assert notices(document) == ["not translated yet, by their state: 2 of 5 units, line 4, 5"]


def test_annotations_of_xliff_are_no_placeholders(read):
    marks = '<mrk mtype="seg" mid="1">{}</mrk>', '<mrk mtype="term">{}</mrk>', '<mrk translate="no">{}</mrk>'
    document = read("a.xlf", units(*(unit(mark.format("One"), mark.format("Eins")) for mark in marks)))
    assert [(pair.source.text, pair.source.raw, pair.target.raw) for pair in document.pairs] == [
        ("One", "One", "Eins")
    ] * 3
    second = read("b.xlf", '<xliff srcLang="en"><unit id="1"><segment state="initial"><source>One</source>'
                  "</segment><segment><source>Two</source><target>Zwei</target></segment></unit></xliff>")  # fmt: skip
    assert sides(second) == [("Two", "Zwei")]
    assert notices(second) == ["not translated yet, by their state: 1 of 2 units, line 1"]
    assert sides(read("c.xlf", units(unit("One", "Eins")).encode("utf-16"))) == [("One", "Eins")]


def test_a_lost_element_of_xliff_is_a_lost_placeholder(read):
    lost = units(
        unit("Delete <x id='1'/> now", "Jetzt löschen"), unit("<ph/> <g id='2'>a</g>", "<ph/> <g id='2'>b</g>")
    )
    found = [compare_placeholders(*(side.raw for side in pair)) for pair in read("a.xlf", lost).pairs]
    assert [one is None for one in found] == [False, True]


# ---- JSON ----


def texts(document):
    return [(one.key, one.line, one.text) for one in document.segments]


def test_nested_json(read):
    text = (
        '{\n "menu": {"open": "Open <b>it</b>", "n": 3,\n  "list": ["One", ["Two"], null]},\n'
        ' "a.b": "Dotted \\"quote\\" \\u00e4",\n "empty": "", "sign": "—", "x": "{", "open":\n "See $t(menu.open)"}\n'
    )
    document = read("a.json", text)
    assert texts(document) == [
        ("menu.open", 2, "Open it"), ("menu.list.0", 3, "One"), ("menu.list.1.0", 3, "Two"),
        ("a.b", 4, 'Dotted "quote" ä'), ("open", 6, "See $t(menu.open)"),
    ]  # fmt: skip
    assert document.segments[0].raw == "Open <b>it</b>"
    assert document.segments[-1].kept_parts == ("$t(menu.open)",)
    assert notices(document) == ["not text: 2 of 7 values, line 2, 3"]
    twice = read("a.json", '{"a": "One",\n"a": "Two"}')
    assert (texts(twice), notices(twice)) == (
        [("a", 2, "Two")], ["repeated, of which the last is checked: 1 of 1 keys, line 2"],
    )  # fmt: skip


def test_arb_and_messages_of_chrome(read):
    arb = read("x.arb", '{"@@locale": "de_AT", "hi": "Hallo {name}", "@hi": {"description": "A greeting"}}')
    assert (texts(arb), arb.languages, arb.notices) == ([("hi", 1, "Hallo {name}")], ("de-AT", None), ())
    chrome = (
        '{"hi": {"message": "Hello $NAME$", "description": "A greeting", "placeholders": {"name": {"content": "$1"}}}}'
    )
    assert texts(read("_locales/en/messages.json", chrome)) == [("hi", 1, "Hello $NAME$")]


def keyed(*keys):
    return [Segment(f"text of {key}", "entry", 1, key) for key in keys]


@pytest.mark.parametrize(
    ("source", "target", "beads"),
    [
        (("a", "b", "c"), ("c", "a", "d"), [((0,), (1,)), ((1,), ()), ((2,), (0,)), ((), (2,))]),
        # Polish has forms that English lacks, and Japanese lacks one.
        (("n_one", "n_other"), ("n_one", "n_few", "n_many", "n_other"),
         [((0,), (0,)), ((1,), (3,)), ((1,), (1,)), ((1,), (2,))]),
        (("n_one", "n_other"), ("n_other",), [((1,), (0,))]),
        (("n_one", "n_other", "m_one"), ("n_other", "m_one"), [((0,), ()), ((1,), (0,)), ((2,), (1,))]),
        (("step_one", "step_two"), ("step_one",), [((0,), (0,)), ((1,), ())]),
    ],
)  # fmt: skip
def test_pairs_by_key(source, target, beads):
    assert list(pair_by_key(keyed(*source), keyed(*target))) == beads


# ---- Markdown ----


def changes(read, source, target):
    documents = read("a.md", source), read("b.md", target)
    pairs = zip(*(document.segments for document in documents), strict=True)
    return [reason for pair in pairs if (reason := changed_parts(*([segment] for segment in pair)))]


FENCE = "```{}\n{}\n```\n"


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("Run `pip install x` now", "Führe `pip instal x` aus",
         "“pip install x” is missing, and “pip instal x” is not in the source"),
        ("See [this](https://a.org/x)", "Siehe [das](https://a.org/y)",
         "“a.org/x” is missing, and “a.org/y” is not in the source"),
        ("![a picture](pics/one.png)", "![ein Bild](pics/two.png)",
         "“pics/one.png” is missing, and “pics/two.png” is not in the source"),
        ("So $x^2 + 1$ it is", "So ist $x^3 + 1$ es", "“$x^2+1$” is missing, and “$x^3+1$” is not in the source"),
        ("| a `b` | c |\n|---|---|\n", "| a `d` | c |\n|---|---|\n", "“b” is missing, and “d” is not in the source"),
        (FENCE.format("bash", "npm install\nnpm start"), FENCE.format("bash", "npm install\nnpm stop"),
         "“npm start” is missing, and “npm stop” is not in the source"),
        (FENCE.format("", "make\nmake test"), FENCE.format("", "make"), "“make test” is missing"),
        ("---\ntitle: One\nweight: 10\n---\nText\n", "---\ntitle: Eins\nweight: 20\n---\nText\n",
         "“weight: 10” is missing, and “weight: 20” is not in the source"),
        ('<p><a href="https://a.org/x">Text</a></p>\n', '<p><a href="https://a.org/y">Text</a></p>\n',
         "“a.org/x” is missing, and “a.org/y” is not in the source"),
    ],
)  # fmt: skip
def test_changed_code_addresses_and_formulas(read, source, target, reason):
    assert changes(read, source, target) == [reason]
    assert changes(read, source, source) == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Run `x` and see `x`", "Sieh `x`"),
        ("Run `npm start` and npm", "Starte `npm start` und `npm`"),
        ("See [this](/en/docs/x.md#top)", "Siehe [das](/de/docs/x.md#oben)"),
        ("See [this](https://www.a.org/x_en.html)", "Siehe [das](http://a.org/x_de.html)"),
        ("See [it](https://en.wikipedia.org/wiki/Cat)", "Siehe [das](https://de.wikipedia.org/wiki/Katze)"),
        ("See <https://a.org/x>", "Siehe <https://a.org/y>"),  # text, which the rules compare
        ("From $5 to $6 a piece", "Von 5 $ bis 7 $"),
        (r"So $x \text{ if } y$", r"So $x \text{ wenn } y$"),
        (FENCE.format("python", '# Say hello\nprint("Hello world")  # now\nx = 1'),
         FENCE.format("python", '# Sag hallo\nprint("Hallo Welt")  # jetzt\nx = 1')),
        (FENCE.format("js", "// A note\nf('some text');\n/* two\nlines */"),
         FENCE.format("js", "// Notiz\nf('ein Text');\n/* zwei\nZeilen */")),
        (FENCE.format("yaml", "title: A short text"), FENCE.format("yaml", "title: Ein kurzer Text")),
        (FENCE.format("html", "<p>Hello you</p>"), FENCE.format("html", "<p>Hallo du</p>")),
        (FENCE.format("text", "Hello you"), FENCE.format("text", "Hallo du")),
    ],
)  # fmt: skip
def test_what_a_translation_may_change(read, source, target):
    assert changes(read, source, target) == []


def test_front_matter_is_code_beside_its_texts(read):
    document = read("a.md", "+++\ntitle = 'One'\ndraft = true\n+++\nText\n")
    assert [(one.kind, one.text) for one in document.segments] == [
        (CODE, "title = 'One' draft = true"), ("front matter", "One"), ("paragraph", "Text"),
    ]  # fmt: skip


@pytest.mark.parametrize("block", [">\n  One\n  two.", "|-\n  One\n  two.", '"One two."', "One two."])
def test_front_matter_in_a_block_is_text(read, block):
    document = read("a.md", f"---\ndescription: {block}\ntitle: >\n---\nText\n")
    assert [(one.kind, one.text) for one in document.segments] == [("front matter", "One two."), ("paragraph", "Text")]


# ---- hostile files ----

SEEDS = {
    "a.po": TWO_FORMS + entry("%d Kiste", "%d Kisten") + 'msgid "_File"\nmsgstr "_Datei"\n',
    "a.xlf": units(unit("One <x id='1'/> two", "Eins <x id='1'/> zwei"), unit("Three", "Drei", " state='new'")),
    "b.xlf": '<xliff><unit id="1"><segment><source>One</source><target>Eins</target></segment></unit></xliff>',
    "a.csv": 'key;en;de\nA;"The ""big"" dog";Der Hund\nB;He sleeps.;Er schläft.\n',
    "a.tsv": "source\ttarget\nOne\tEins\n",
    "a.json": '{"a": {"b_one": "One \\u00e4", "b_other": ["x", 2, null]}, "c": "$t(a)"}',
    "a.md": "---\ntitle: One\nn: 1\n---\n# Head\n\n- `a` [b](c) $x$\n\n| a | b |\n|---|---|\n\n```sh\nls  # x\n```\n",
    "a.srt": CUE.format(1, 2, "One.") + CUE.format(3, 4, "Two\n\nthree --> four."),
    "a.vtt": "WEBVTT\n\nNOTE x\n\nname\n00:01.000 --> 00:02.000 line:1\n<i>Hi</i>\n\n00:03.000 --> 00:04.000\nBye\n",
    "a.txt": "One\nTwo\n",
}
BROKEN = (
    *(b'"', b"<", b"{", b"[", b"-->", b"\\", b'msgstr[3] "x"\n', b"&a;", b"\xff\xfe", b"\0", b"$$", b"\n\n", b"'''"),
    *(b"```", b"|", b"\\ud800", b"::::", b"\r", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"<!--", b"\t", b"\x85", b"=1:"),
)


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        begin = rng.randrange(len(data) + 1)
        end = min(len(data), begin + rng.randint(1, 30))
        kind = rng.randrange(5)
        if kind == 0:
            del data[begin:end]
        elif kind == 1:
            data[begin:begin] = rng.choice(BROKEN)
        elif kind == 2:
            data[begin:begin] = data[begin:end] * rng.randint(1, 5)
        elif kind == 3:
            del data[begin:]
        else:
            data[begin:end] = rng.randbytes(end - begin)
    return bytes(data)


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files_end_in_a_message(read, name):
    rng, seed = random.Random(name), SEEDS[name].encode()
    whole = (b"", b"\0" * 100, b"\n", bytes(range(256)), b"\xff\xfe", seed.decode().encode("utf-16"), seed * 50)
    messages = []
    for data in (*whole, *(mutated(seed, rng) for _ in range(150))):
        begin = time.process_time()
        try:
            document = read(name, data)
            assert document.pairs or document.segments
        except CommandError as error:
            messages.append(str(error))
        assert time.process_time() - begin < 2
    assert len(messages) >= 3
    assert all(name in message and "\n" not in message for message in messages)
