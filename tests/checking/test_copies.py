"""Copies of the source: a function word of its language tells them from names and code."""

import pytest

from hf_attncal.checking.copies import copied_words, language_of_texts
from hf_attncal.checking.placeholders import masked


def copied(source, target, languages=("en", "de")):
    return bool(copied_words(masked(source), masked(target), languages))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("The file was not found.", "The file was not found."),
        ("Open the file %s", "Open the file %d"),
        ("Wait for 5 minutes", "Wait for 6 minutes"),
        ("Copy to Clipboard", "copy  to clipboard"),
        ("Is it done?", "Is it done?"),
        ("an error in command line: %s", "an error in command line: %s"),
        ("Save it now, don’t ask", "Save it now, don’t ask"),
        ("Enter Your Password", "Enter Your Password"),
        ("She sold the old car of her friend.", "She sold the old car of seinem Freund."),
        ("It rains. The dog sleeps in the garden.", "Es regnet. The dog sleeps in the garden."),
    ],
)
def test_a_sentence_that_nobody_translated(source, target):
    assert copied(source, target)
    assert copied(source, target, ("en", None))
    assert copied(source, target, (None, None))


@pytest.mark.parametrize(
    "text",
    ["Hindi", "(%d) RSA", "OK", "Ubuntu 24.04", "make -C lib", "https://a.org/the/and", "data_from_the_mem",
     "Las Vegas", "The", "Por favor", "--with=the", "Peter Müller, Berlin"],
)  # fmt: skip
def test_names_and_code_are_no_copies(text):
    assert not copied(text, text)
    assert not copied(text, text, (None, None))


def test_a_quote_and_a_command_stay_as_they_are():
    assert not copied('Type "go to the end of it now" here.', "Geben Sie „go to the end of it now“ ein.")
    assert not copied("usage: get <a|b> to the --end of it", "Aufruf: get <a|b> to the --end of it")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "The car is not here."),
        ("de", "Das Auto ist nicht hier."),
        ("fr", "La voiture est dans la rue."),
        ("es", "Los perros no están aquí."),
        ("pt", "Os cães não estão aqui."),
        ("it", "Questa casa non è della donna."),
    ],
)
def test_each_language_has_its_words(language, text):
    other = "de" if language == "en" else "en"
    assert copied(text, text, (language, other))
    assert copied(text, text, (None, other))
    assert not copied(text, text, (other, language))  # this text is in the right language
    assert language_of_texts([text] * 20) == language


def test_the_language_of_a_short_text_is_unknown():
    assert language_of_texts(["The car is not here."]) is None
    assert language_of_texts(["OK", "Hindi"] * 50) is None
    assert language_of_texts(["the car is", "das Auto ist"] * 50) is None
