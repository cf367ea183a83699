"""The page of a report in a real browser: what it shows, and how it is used by keyboard. Needs Chromium."""

import numpy as np
import pytest
import torch
from chromium import Browser, found
from report_helpers import HOSTILE, SCRIPTS, chart, pair_view, report

from hf_attncal.data.words import WordTokens
from hf_attncal.inference.word_attention import word_attention
from hf_attncal.report.figures.report_files import write_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(found() is None, reason="no Chromium is found, and ATTNCAL_CHROMIUM names none"),
]
PAIRS = 200
READY = "document.getElementById('pair')?.getAttribute('aria-busy') === 'false'"
# Of each heat map its cells, as numbers; row and column headers.
CELLS = """[...document.querySelectorAll('#maps table')].map((table) => [...table.tBodies[0].rows].map((row) =>
  [...row.querySelectorAll('td')].map((cell) => Number(cell.textContent.replace('−', '-')))))"""
ROWS = "[...document.querySelectorAll('#maps table')[0].tBodies[0].rows].map((row) => row.cells[0].textContent)"


@pytest.fixture(scope="module")
def pairs():
    made = [pair_view(index) for index in range(PAIRS)]
    made[7] = pair_view(7, source=HOSTILE, target=SCRIPTS)
    made[8] = pair_view(8, source="البيت القديم جميل", target="the old house")
    return made


@pytest.fixture(scope="module")
def address(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page(report(pairs, [chart(), chart("second")]), path)
    return path.as_uri()


@pytest.fixture
def browser(tmp_path):
    browser = Browser(found(), tmp_path / "profile")
    yield browser
    browser.close()


def show(browser, address, state=""):
    browser.open(f"{address}#{state}")
    browser.wait(READY)


def number(browser):
    browser.wait(READY)
    return browser.value("document.getElementById('number').textContent")


def of_words(values, pair):
    sides = [
        WordTokens(np.array([]), np.array(numbers), len(text.split()))
        for numbers, text in ((pair.source_words, pair.source), (pair.target_words, pair.target))
    ]
    return word_attention(torch.from_numpy(values), *sides).numpy()


def test_the_page_opens_without_a_complaint_and_without_a_request(browser, address):
    show(browser, address)
    assert browser.complaints() == []
    assert browser.requests() == [f"{address}#"] or browser.requests() == [address]
    assert browser.value("document.querySelectorAll('.drawing svg').length") == 2
    assert number(browser) == "Sentence 1"


def test_words_are_what_word_attention_makes_of_the_weights(browser, address, pairs):
    show(browser, address, "sentence=5&show=attention&show=occlusion")
    attention, occlusion = browser.value(CELLS)
    pair = pairs[4]
    # Half a step of a head, for up to two tokens a word; half a digit of what is shown.
    expected = of_words(pair.weights["attention"].values.mean((0, 1)), pair)
    np.testing.assert_allclose(np.array(attention)[:, :3], expected, atol=2 * 0.5 / 255 + 0.0051)
    null = pair.weights["attention"].null.mean((0, 1))
    of_target = np.array(pair.target_words)
    expected = [null[of_target == word].mean() for word in range(3)]
    np.testing.assert_allclose(np.array(attention)[:, 3], expected, atol=0.5 / 255 + 0.0051)
    values = pair.weights["occlusion"].values
    expected = of_words(values.mean((0, 1)), pair)
    np.testing.assert_allclose(occlusion, expected, atol=2 * 0.5 / 127 * np.abs(values).max() + 0.051)
    assert (expected < 0).any()
    assert browser.value(ROWS) == pair.target.split()


def test_sentences_are_chosen_by_keys(browser, address):
    show(browser, address)
    browser.press("j")
    browser.press("j")
    assert number(browser) == "Sentence 3"
    browser.press("k")
    assert number(browser) == "Sentence 2"
    browser.value("document.getElementById('options').focus()")
    browser.press("ArrowDown")
    assert number(browser) == "Sentence 3"
    browser.press("End")
    assert number(browser) == f"Sentence {PAIRS}"
    chosen = "document.querySelector('#options [aria-selected=true]')"
    assert browser.value(f"{chosen}.getAttribute('aria-posinset')") == str(PAIRS)
    browser.wait(f"{chosen}.id === document.getElementById('options').getAttribute('aria-activedescendant')")
    box = "document.getElementById('options').getBoundingClientRect()"
    assert browser.value(f"{chosen}.getBoundingClientRect().bottom <= {box}.bottom + 1")
    assert browser.value("document.querySelectorAll('#rows > div').length") < PAIRS  # only what can be seen is there
    browser.wait(f"new URLSearchParams(location.hash.slice(1)).get('sentence') === '{PAIRS}'")
    browser.value("document.getElementById('filter').focus()")
    browser.press("j")
    assert number(browser) == f"Sentence {PAIRS}"
    assert browser.value("document.getElementById('filter').value") == "j"


def shaded(browser, side):
    """The words of a side that are shaded, and how much."""
    words = f"[...document.querySelectorAll('#{side} .word.shaded')]"
    return browser.value(f"{words}.map((one) => [one.textContent, Number(one.style.getPropertyValue('--v'))])")


def test_a_word_shades_the_words_of_the_other_side(browser, address, pairs):
    show(browser, address, "sentence=5&show=attention")
    assert browser.value("document.querySelectorAll('.word.shaded').length") == 0
    browser.value("document.querySelector('#target .word:nth-child(2)').click()")
    pair = pairs[4]
    expected = of_words(pair.weights["attention"].values.mean((0, 1)), pair)
    null = pair.weights["attention"].null.mean((0, 1))[np.array(pair.target_words) == 1].mean()
    row = np.array([*expected[1], null])
    names, shares = zip(*shaded(browser, "source"), strict=True)
    assert names == (*pair.source.split(), "NULL")
    np.testing.assert_allclose(shares, row / row.max(), atol=0.02)
    assert shaded(browser, "target") == []
    told = browser.value("document.getElementById('readout').textContent")
    assert told.startswith(f"{pair.target.split()[1]} from {names[row.argmax()]} {row.max():.2f}")
    assert "(attention, mean of 3 layers and 2 heads)" in told
    browser.value("document.querySelector('#source .word:last-child').click()")  # NULL
    assert len(shaded(browser, "target")) == 3
    browser.value("document.querySelector('#target .word:last-child').click()")
    assert browser.value("document.querySelector('#source .linked').textContent") == "old"


def test_a_pinned_link_brings_the_view_back(browser, address):
    show(browser, address, "sentence=9&show=attention&layer=1")
    browser.value("document.querySelector('#target .word:nth-child(3)').click()")
    before = shaded(browser, "source"), browser.value("document.getElementById('readout').textContent")
    browser.value("document.getElementById('link').click()")
    browser.wait("document.getElementById('said').textContent.includes('link')")
    assert "no text" in browser.value("document.getElementById('said').textContent")
    pinned = browser.value("location.href")
    assert "word=target.2" in pinned
    browser.open(pinned)
    assert number(browser) == "Sentence 9 · no good"
    assert (shaded(browser, "source"), browser.value("document.getElementById('readout').textContent")) == before
    show(browser, address, "sentence=9&show=attention&word=target.77")
    assert browser.complaints() == []
    assert browser.value("document.querySelectorAll('.word[tabindex=\"0\"]').length") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_has_the_words_and_the_heat_maps(browser, address, scheme):
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    show(browser, address, "sentence=8&show=attention&show=occlusion&numbers=yes&word=target.1")
    image = browser.picture()
    assert browser.complaints() == []
    assert max(image.size) <= 16000
    pixels = np.asarray(image).astype(int)
    paper = pixels[2, 2]
    assert (paper.mean() > 200) == (scheme == "light")
    drawn = np.abs(pixels - paper).sum(axis=-1) > 60
    assert 0.01 < drawn.mean() < 0.9
    assert drawn[: len(drawn) // 4].any()  # the words
    blue = (pixels[..., 2] - pixels[..., 0]) > 60
    assert blue[len(blue) // 3 :].any()  # the heat maps
    one = browser.value("document.getElementById('words').click()") or browser.picture()
    assert one.size != image.size  # tokens are more than words


def test_the_list_is_filtered_and_ordered(browser, address):
    show(browser, address)
    browser.value("document.getElementById('order').selectedIndex = 2")
    browser.value("document.getElementById('order').dispatchEvent(new Event('change'))")
    assert browser.value("document.querySelector('#rows .n').textContent") == str(PAIRS)
    browser.value("document.getElementById('filter').value = 'ALERT(1)'")
    browser.value("document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert browser.value("document.getElementById('count').textContent") == f"1 of {PAIRS} sentences"
    browser.press("j")
    assert number(browser) == "Sentence 8"


def test_hostile_text_stays_text(browser, address):
    show(browser, address, "sentence=8&show=attention")
    assert browser.complaints() == []
    assert browser.value("document.getElementById('source').textContent.trim()") == " ".join(
        [*HOSTILE.split(), "NULL"]
    )
    assert browser.value("document.getElementById('target').textContent.trim()") == " ".join(SCRIPTS.split())
    assert browser.value("document.querySelectorAll('script:not([type])').length") == 1
    assert browser.value(ROWS) == SCRIPTS.split()


@pytest.mark.parametrize("width", [1400, 900, 400])
def test_sentences_come_first_and_nothing_is_wider_than_the_page(browser, address, width):
    browser.open(address, width=width, height=900)
    browser.wait(READY)
    tops = "['sentences', 'findings', 'section-1', 'record'].map((id) => document.getElementById(id).offsetTop)"
    assert browser.value(tops) == sorted(browser.value(tops))
    assert browser.value("document.documentElement.scrollWidth") <= width
    lefts = "new Set([...document.querySelectorAll('.chart')].map((one) => one.getBoundingClientRect().left)).size"
    assert browser.value(lefts) == (2 if width == 1400 else 1)
    assert browser.value("document.querySelector('.foot details').open") is False
    browser.ask("Emulation.clearDeviceMetricsOverride")


def test_without_javascript_the_page_says_what_is_missing(browser, address):
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(address)
    shown = "document.querySelector('noscript').checkVisibility() && document.querySelector('noscript').innerText"
    text = browser.value(shown)
    assert "need JavaScript" in text
