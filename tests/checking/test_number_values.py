"""Values of numbers: equal in different spellings, and different otherwise."""

import random

import pytest

from hf_attncal.checking.number_values import compare_numbers, language_of, worth

DE_EN = ("de", "en")
SAME = [
    ("Die Spielzeit 2011 / 2012", "the 2011-2012 season"),
    ("2011/12", "2011-2012"),
    ("misst 32,7 mal 22,5", "measures 32.7 by 22.5"),
    ("etwa 2.000 Firmen", "about 2,000 companies"),
    ("10.00 Uhr bis 13.30 Uhr", "10:00 to 13:30"),
    ("am 06. Mai 2009", "on 6 May 2009"),
    ("vom 5. bis 12. Mai", "from May 5-12"),
    ("10 %", "10%"),
    ("um 15 Uhr", "at 3 p.m ."),
    ("um 17:45 Uhr", "at 5:45 pm"),
    ("um halb drei", "at 2:30"),
    ("um halb 8", "at half past 7"),
    ("um halb acht", "at half past 7"),
    ("um halb 8", "at half past seven"),
    ("um 7:30", "at half past 7"),
    ("um sieben Uhr abends", "at 7 p.m ."),
    ("um halb sieben", "for six-thirty"),
    ("um 0 Uhr", "at 12 a.m."),
    ("zwei Hunde", "2 dogs"),
    ("einundzwanzig", "twenty-one"),
    ("sechsundachtzig", "eighty - six"),
    ("im siebzehnten Jahrhundert", "in the 17th century"),
    ("zwanzigjährige Geschichte", "20 years"),
    ("1 234 567 Euro", "1,234,567 euros"),
    ("1\u202f234\u202f567", "1'234'567"),
    ("12,34,567", "1234567"),
    ("1.299,00 €", "€1,299.00"),
    ("-5 Grad", "minus 5 degrees"),
    ("\u22125 Grad", "-5 degrees"),
    ("Am 3.10.1990", "On 3 October 1990"),
    ("Am 3.10.1990", "10/3/90"),
    ("1990-10-03", "October 3, 1990"),
    ("2 Millionen", "2,000,000"),
    ("1,5 Mrd", "1.5 billion"),
    ("1,5 Mrd", "1.5 bn"),
    ("47 Milliarden", "47 thousand million"),
    ("-5 Grad", "minus five degrees"),
    ("XIX. Jahrhundert", "19th century"),
    ("007", "7"),
    ("\u0663", "3"),
    ("x\u00b2", "x 2"),
    ("1 and 2", "2 and 1"),
    ("42", "42"),
]
OTHER = [
    ("Die Spielzeit 2011 / 2012", "the 2011-2013 season"),
    ("misst 32,7 mal 22,5", "measures 32.7 by 25.2"),
    ("etwa 2.000 Firmen", "about 20,000 companies"),
    ("bis 13.30 Uhr", "to 13:50"),
    ("am 06. Mai 2009", "on 7 May 2009"),
    ("10 %", "100%"),
    ("zwei Hunde", "3 dogs"),
    ("zwei Hunde", "three dogs"),
    ("1990", "1909"),
    ("1 234 567", "1,234,568"),
    ("-5 Grad", "5 degrees"),
    ("12,5 cm", "125 cm"),
    ("1.299,00 €", "€1,929.00"),
    ("um 17:45 Uhr", "at 6:45 pm"),
    ("Am 3.10.1990", "On 3 November 1990"),
    ("2 Millionen", "20,000"),
    ("1,5 Milliarden", "1.5 million"),
    ("0", "7"),
]


def same(source, target, languages=DE_EN):
    return [all(number.has_counterpart for number in side) for side in compare_numbers(source, target, languages)]


@pytest.mark.parametrize(("source", "target"), SAME)
def test_one_value_written_in_two_ways(source, target):
    assert same(source, target) == [True, True]
    assert same(target, source, DE_EN[::-1]) == [True, True]
    assert any(compare_numbers(source, target, DE_EN))


@pytest.mark.parametrize(("source", "target"), OTHER)
def test_another_value(source, target):
    assert not all(same(source, target))
    assert not all(same(target, source, DE_EN[::-1]))


def test_of_twelve_hours_one_is_right():
    assert [hour for hour in range(1, 13) if all(same("um 15 Uhr .", f"at {hour} p.m ."))] == [3]


def test_where_they_stand():
    text = "von 1990 bis 2.000 oder einundzwanzig"
    (found, _) = compare_numbers(text, "", DE_EN)
    assert [(text[number.start : number.stop], number.in_words) for number in found] == [
        ("1990", False),
        ("2", False),
        ("000", False),
        ("einundzwanzig", True),
    ]
    assert not any(number.has_counterpart for number in found)


def test_the_part_of_a_run_that_differs_is_told():
    (_, found) = compare_numbers("2011 / 2012", "2011-2013", DE_EN)
    assert [number.has_counterpart for number in found] == [True, False]


def test_a_month_whose_name_is_not_known_is_no_change():
    assert same("Am 3.10.1990", "3. lokakuuta 1990", ("de", None)) == [True, True]


def test_words_are_numbers_only_in_their_language():
    assert same("zwei", "2", (None, "en")) == [True, False]
    assert worth("neuf", "fr") == 9
    assert worth("neuf", "de") is None
    assert worth("Haus", "de") is None
    assert worth("2", "de") is None


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", "zwei drei"),
        ("en", "two six"),
        ("fr", "deux trois"),
        ("es", "dos tres"),
        ("pt", "dois três"),
        ("it", "due sette"),
        ("nl", "twee drie"),
        ("da", "to syv"),
    ],
)
def test_the_language_is_that_of_the_most_number_words(language, words):
    assert language_of({word: 5 for word in words.split()} | {"x": 100}) == language


def test_no_language_without_number_words():
    assert language_of({"haus": 3}) is None


def test_numbers_of_both_conventions_drawn_at_random():
    """German against English separators, and each with another value."""
    rng = random.Random(0)
    for _ in range(300):
        value = rng.choice([rng.randint(0, 99), rng.randint(100, 10**7)])
        cents = rng.randint(0, 99)
        english = f"{value:,}.{cents:02d}"
        german = english.translate(str.maketrans(",.", ".,"))
        assert same(f"{german} Euro", f"EUR {english}") == [True, True]
        digits = [place for place, character in enumerate(english) if character.isdigit()]
        place = rng.choice(digits)
        changed = english[:place] + str((int(english[place]) + rng.randint(1, 9)) % 10) + english[place + 1 :]
        assert not all(same(f"{german} Euro", f"EUR {changed}")), (german, changed)
