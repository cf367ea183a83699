"""The live page in a real browser: typing, two hundred sentences, words taken away, links. Needs Chromium."""

import threading

import pytest
from chromium import Browser, found
from live_helpers import HOSTILE_LINE, LINES, tiny_live

from hf_attncal.report.live_server import LiveServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(found() is None, reason="no Chromium is found, and ATTNCAL_CHROMIUM names none"),
]
READY = "document.getElementById('pair').getAttribute('aria-busy') === 'false'"
DONE = "document.getElementById('progress').textContent === ''"
COUNT = "document.getElementById('count').textContent"
MANY = [f"{LINES[0]} {'house ' * (n % 4)}".strip() for n in range(200)]


@pytest.fixture(scope="module")
def server():
    with LiveServer(tiny_live()) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


@pytest.fixture
def browser(tmp_path):
    browser = Browser(found(), tmp_path / "profile")
    yield browser
    browser.close()


def ask(browser, lines):
    browser.value(f"document.getElementById('text').value = {chr(10).join(lines)!r}; 0")
    browser.value("document.getElementById('translate').focus()")
    browser.press("Enter")
    browser.wait(f"{DONE} && {COUNT}.startsWith('{len(lines)} sentence')", seconds=120)
    browser.wait(READY)


def texts(browser, selector):
    return browser.value(f"[...document.querySelectorAll({selector!r})].map((one) => one.textContent)")


def test_the_token_leaves_the_address_and_nothing_complains(browser, server):
    browser.open(server.url)
    assert server.token not in browser.value("location.href")
    assert browser.value("document.getElementById('browser').hidden")
    ask(browser, [*LINES, HOSTILE_LINE])
    assert browser.complaints() == []
    assert {address.partition("?")[0] for address in browser.requests()} == {
        server.url.partition("?")[0],
        server.url.partition("?")[0] + "answers",
        server.url.partition("?")[0] + "verdict",
    }
    browser.press("k")
    browser.value("document.querySelector('#rows [data-pair=\"2\"]').click()")
    browser.wait("document.getElementById('number').textContent.startsWith('Sentence 3')")
    assert texts(browser, "#source .word")[0] == HOSTILE_LINE.split()[0]
    assert browser.value("document.querySelectorAll('script:not([type])').length") == 1


def test_two_hundred_sentences(browser, server):
    browser.open(server.url)
    ask(browser, MANY)
    assert browser.value("document.querySelectorAll('#rows > div').length") < 40  # only what can be seen is there
    browser.value("document.getElementById('options').focus()")
    browser.press("End")
    browser.wait("document.getElementById('number').textContent.startsWith('Sentence 200')")
    browser.wait(READY)
    assert " ".join(texts(browser, "#source .word")) == MANY[199]
    assert browser.complaints() == []


def test_too_many_and_too_long_are_told(browser, server):
    browser.open(server.url)
    browser.value(f"document.getElementById('text').value = {'a ' + chr(10) * 1!r}.repeat(201); 0")
    browser.value("document.getElementById('translate').click()")
    assert browser.value("document.getElementById('failure').textContent") == "At most 200 sentences, there are 201."
    browser.value(f"document.getElementById('text').value = {chr(10).join([*LINES, 'house ' * 90, 'a house'])!r}; 0")
    browser.value("document.getElementById('translate').click()")
    browser.wait(f"{DONE} && {COUNT} === '3 sentences'")
    assert browser.value("document.getElementById('failure').textContent").startswith("Sentence 3: line 1 has")
    assert texts(browser, "#rows .n") == ["1", "2", "4"]


def test_a_word_is_taken_away_and_the_link_brings_it_back(browser, server):
    browser.open(server.url)
    ask(browser, ["a house", LINES[0]])
    browser.press("j")
    browser.value("document.querySelectorAll('#source .word')[1].click()")
    assert browser.value("document.getElementById('take').textContent") == "Take “old” away"
    browser.press("x")
    browser.wait("document.querySelectorAll('#without p').length === 3")
    found = server.live.without(LINES[0], [1])
    assert texts(browser, "#without del") == [word.text for word in found.before if word.changed]
    assert texts(browser, "#without ins") == [word.text for word in found.after if word.changed]
    assert texts(browser, "#source .taken") == ["old"]
    before = browser.value("document.getElementById('without').innerText")
    tall = browser.picture().size[1]
    browser.value("document.getElementById('link').click()")
    browser.wait("document.getElementById('said').textContent.includes('link')")
    pinned = browser.value("location.href")
    assert server.token not in pinned
    assert "without=1" in pinned
    browser.open(pinned)
    browser.wait(f"{DONE} && {COUNT} === '1 sentence'")
    browser.wait("document.querySelectorAll('#without p').length === 3")
    assert browser.value("document.getElementById('without').innerText") == before
    assert texts(browser, "#source .here, #source [aria-selected=true]") == ["old"]
    browser.value("document.getElementById('back').click()")
    assert browser.value("document.getElementById('without').hidden")
    assert browser.picture().size[1] < tall  # with before and after
    assert browser.complaints() == []


def test_a_given_translation_any_method_and_a_reload(browser, server):
    browser.open(server.url)
    ask(browser, ["the old house ||| das alte Haus", LINES[0]])
    assert texts(browser, "#target .word") == ["das", "alte", "Haus"]
    way = "document.getElementById('way0')"
    choose = f"{way}.value = {{!r}}; {way}.dispatchEvent(new Event('change'))"
    browser.value(choose.format("integrated_gradients"))
    browser.wait("document.querySelector('#maps b')?.textContent === 'integrated gradients'")
    browser.wait(READY)
    assert browser.picture().size[0] > 300
    asked = [address for address in browser.requests() if address.endswith("/way")]
    browser.value(choose.format("attention"))
    browser.value(choose.format("integrated_gradients"))
    browser.wait(READY)
    assert [address for address in browser.requests() if address.endswith("/way")] == asked  # it is known by now
    browser.press("j")
    browser.wait("location.hash.includes('sentence=2')")
    browser.ask("Page.reload")
    browser.wait(f"document.readyState === 'complete' && {COUNT} === '2 sentences'")
    browser.wait("document.getElementById('number').textContent.startsWith('Sentence 2')")
    assert browser.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_telephone(browser, server, scheme):
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(server.url, width=390, height=844)
    ask(browser, [LINES[0], "Donaudampf"])
    browser.ask("Emulation.setTouchEmulationEnabled", enabled=True)
    box = browser.value("(({x, y}) => [x + 5, y + 5])((document.getElementById('source').scrollIntoView(), "
                        "document.querySelector('#source .word').getBoundingClientRect()))")  # fmt: skip
    browser.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": box[0], "y": box[1]}])
    browser.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    browser.wait("document.querySelector('#source [aria-selected=true]')?.textContent === 'the'")
    browser.value("document.getElementById('take').click()")
    browser.wait("document.querySelectorAll('#without p').length === 3")
    assert browser.value("document.documentElement.scrollWidth") <= 390
    paper = browser.value("getComputedStyle(document.documentElement).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    browser.ask("Emulation.clearDeviceMetricsOverride")
