"""Placeholders, tags and ICU messages: right in another order or form, wrong if one is lost or new."""

import time

import pytest

from hf_attncal.checking.placeholders import MASK, compare_placeholders, masked

RIGHT = [
    ("%s opened %s", "%2$s wurde von %1$s geöffnet"),
    ("%1$s of %2$s", "%2$s von %1$s"),
    ("{0} and {1}", "{1} et {0}"),
    ("{name} opened it. You may ask {name}.", "{name} l'a ouvert."),
    ("%d %% done", "%d %% fertig"),
    ("%u%% of %s", "%u %% de %s"),
    ("100% done", "100 % fertig"),
    ("10 % of the people, 100% of them", "10 % der Leute, 100%ig"),
    ("size %dx%d", "tamaño %d×%d"),
    ("character %02x", "Zeichen %02X"),
    ("%5d kB", "%d kB"),
    ("%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M"),
    ("Usage: %s <file>", "Aufruf: %s <Datei>"),
    ("a < b and c > d", "a ist kleiner als b und c > d"),
    ("less than %(limit_value)s", "kleiner als %(limit_value)s"),
    ("%s at %d.%m.", "%s am %m/%d"),
    ("%.*s has %u bytes", "%3$u Bytes hat %2$.*1$s"),
    ("<%s AI>", "<KI %s>"),
    ("<b>Drag</b> to open it", "<b>Ziehen</b> <b>öffnet</b> es"),
    ("Blurs its input", "<b>feBlur</b> verwischt die Eingabe"),
    ('<span size="large">a</span>', '<span size="larger">b</span>'),
    (":hooks.log: a function", ":hook.log: eine Funktion"),
    ("one<br>two, three", "eins,<br>zwei<br>drei"),
    ("Examples: {{{\nall\n}}}", "Beispiele: {{{\nalle\n}}}"),
    ("%n folder(s)", "%n Ordner"),
    ("the %1 theme", "o tema %1."),
    ("{{ x | upper }}", "{{x|upper}}"),
    ("The :name field", "Il campo :name"),
    ("click <b>here</b>", "klicken Sie <b>hier</b>"),
    ("<0>a</0>", "<0>b</0>"),
    ('<a href="/x">b</a>', '<a target="_blank" rel="noopener" href="/x">c</a>'),
    ('<a href="/en/x" title="Go">b</a>', '<a href="/de/x" title="Los">c</a>'),
    ('<a href="/en/%(version)s">b</a>', '<a href="/de/%(version)s">c</a>'),
    ("{}th", "{}<sup>e</sup>"),
    ("host[:port]", "Host[:Port]"),
    (r"at \x{HEX}", r"bei \x{ZAHL}"),
    ("built {n, plural, one {# day} other {# days}} ago", "vor {n, plural, one {einem Tag} other {# Tagen}} gebaut"),
    ("{n, plural, one {house} other {houses}}", "{n, plural, one {Haus} other {Häuser}}"),
    ("{who, select, male {He} other {They}} sold it.", "{who, select, male {Él} other {Ellos}} lo vendió."),
    ("{n, plural, =0 {Nothing} one {# cup} other {# cups}}", "{n, plural, =0 {Nada} one {Una taza} other {# tazas}}"),
    (
        "{n, plural, one {# day} other {# days}}",
        "{n, plural, one {# dzień} few {# dni} many {# dni} other {# dnia}}",
        "pl",
    ),
    ("{n, plural, one {# day} other {# days}}", "{n, plural, other {# 日}}", "ja"),
    ("{total, number, percent} sold", "{total,number,percent} verkauft"),
    ("{n, selectordinal, one {#st} two {#nd} few {#rd} other {#th}} day", "{n, selectordinal, other {#.}} Tag"),
    (
        "{a, plural, one {# x} other {# x}} {b, plural, one {# y} other {# y}}",
        "{b, plural, one {# y} other {# y}}, {a, plural, one {# x} other {# x}}",
    ),
    ("%1% of %2%", "%2% von %1%"),
    ("{0} {who, select, a {of {b}} other {off}}", "{who, select, a {von {b}} other {ab}} {0}"),
]
WRONG = [
    ("child %p ended", "Kind endete"),
    ("%s %d", "%d %s"),
    ("%s", "%d"),
    ("%lu", "%u"),
    ("%s: %s", "%s"),
    ("The key is%%0A %s", "Der Schlüssel ist%%0A"),
    ("%s uses %%m, %s does not", "%s benutzt %%m, %d nicht"),
    ("%s was written at %I64u", "geschrieben: %I64u"),
    ("%s was written at %H:%M", "um %H:%M geschrieben"),
    ("<%s AI>", "<KI>"),
    ("{Name}", "{name}"),
    ("%(name)s is here", "%(nom)s est ici"),
    ("${user} is here", "ist da"),
    ("%1 of %2", "%1 di"),
    ("%n folder(s)", "Ordner"),
    ("The :name field", "Das Feld"),
    ('<a href="/en/%(version)s">b</a>', '<a href="/de/">c</a>'),
    ("{{ x | upper }}", "{{ x }}"),
    ("<b>bold</b>", "<b>fett"),
    ("click <b>here</b>", "clique aqui"),
    ("<0>a</0>", "a"),
    ("{n, plural, one {# day} other {# days}}", "{n, plural, one {Tag} other {Tage}}"),
    ("{n, plural, one {# day} other {# days}}", "{zahl, plural, one {# Tag} other {# Tage}}"),
    ("{n, plural, one {# day} other {# days}}", "# Tage"),
    ("{n, plural, one {# day} other {# days}}", "{n, plural, other {# Tage}}"),
    ("{n, plural, one {# day} other {# days}}", "{n, plural, one {# dzień} other {# dni}}", "pl"),
    ("{n, plural, =0 {Nothing} other {# days}}", "{n, plural, other {# Tage}}"),
    ("{n, plural, other {# of {all}}}", "{n, plural, other {# Tage}}"),
    ("{who, select, male {He} female {She} other {They}}", "{who, select, male {Er} other {Sie}}"),
    ("{who, select, male {He} other {They}}", "{who, select, männlich {Er} male {Er} other {Sie}}"),
    ("{total, number, percent} sold", "{total, number} verkauft"),
    ("%1% of %2%", "%1%"),
    ("{a, plural, other {# x}} {b, plural, other {# y}}", "{a, plural, other {# x}} {b, plural, other {y}}"),
    ("The {name} costs {price}.", "Der {name} kostet {preis}."),
]


@pytest.mark.parametrize("case", RIGHT)
def test_the_same_in_another_order_or_form(case):
    assert compare_placeholders(*case) is None


@pytest.mark.parametrize("case", WRONG)
def test_a_difference_is_found(case):
    assert compare_placeholders(*case) is not None


def test_hostile_text_takes_no_time():
    """No form of a text takes time that grows with the square of its length, or with the product of its messages."""
    messages = "{a, plural, one {x} other {y}} " * 60
    for text in (messages, "{a, plural, one {" * 900, "a" * 40_000 + "@ %", "<a " * 9000, "{{ " * 9000):
        begin = time.perf_counter()
        compare_placeholders(text, text)
        masked(text)
        assert time.perf_counter() - begin < 5


def test_a_difference_has_text_and_characters():
    assert compare_placeholders("to %s {0}", "an %s {1}") == (("{0}", (6, 9)), ("{1}", (6, 9)))
    assert compare_placeholders("{n, plural, one {# a} other {# b}}", "{n, plural, one {# c} other {d}}") == (
        ("other # b", (29, 32)),
        ("other d", (29, 30)),
    )


def test_text_without_placeholders_keeps_its_places():
    for text, expected in [
        ("von %s von {name}!", f"von {2 * MASK} von {6 * MASK}!"),
        ("{n, plural, one {Tag} other {# Tage}} da", f"{17 * MASK}Tag{9 * MASK}# Tage{2 * MASK} da"),
        ("see https://a.org/x-1.", f"see {17 * MASK}."),
        ("nothing here", "nothing here"),
    ]:
        assert masked(text) == expected
    assert len(masked("{n, plural, one {a} other {%s and {m, plural, one {b} other {c}}}}")) == 66
