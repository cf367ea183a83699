"""The page of a report: whole, offline, nothing but text, and the weights as they were but for the stated rounding."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from report_helpers import HOSTILE, SCRIPTS, chart, pair_view, pairs_of, report, unpack

from hf_attncal.report.figures.contents import ChangedWord, PairWeights, Without
from hf_attncal.report.figures.report_files import SIGNED_STEPS, WEIGHT_STEPS, csv_text, packed, write_page

VOID = {"meta", "input", "br"}
FETCHING = {"src", "href", "xlink:href", "srcset", "data", "action", "formaction", "poster", "background"}


class Page(HTMLParser):
    """A page, read strictly: every tag is closed, no attribute runs anything, and nothing is fetched."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            assert not name.startswith("on")
            if name in FETCHING:
                assert re.match("#|data:", value), value
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)
        if tag == "script" and not dict(attributes).get("type"):
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            if self.scripts and not data.lstrip().startswith('{"'):
                self.scripts[-1] += data
        else:
            self.text += data


def written(path, *args, **fields) -> str:
    write_page(report(*args, **fields), path)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def page(tmp_path):
    pairs = [pair_view(0), pair_view(1, source=HOSTILE, target=SCRIPTS), pair_view(2, links=None)]
    return written(tmp_path / "page.html", pairs)


def test_the_page_has_all_that_was_given_as_text(page):
    read = Page(page)
    assert read.tags.isdisjoint({"img", "iframe", "link", "object"})
    assert read.text.count(HOSTILE) == 5  # title twice, summary, two captions
    for text in ("Second.", "Beware.", "A section", "What is in it.", "Two bars", "0.1235", "–"):
        assert text in read.text
    assert [known["source"] for known, _ in pairs_of(page)] == ["the old house", HOSTILE, "the old house"]
    assert pairs_of(page)[1][0]["target"] == SCRIPTS


def test_the_page_runs_only_its_own_script_and_fetches_nothing(page):
    read = Page(page)
    (script,) = read.scripts
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest|import\(|WebSocket", page)
    assert set(re.findall(r'https?://[^"\s<]*', page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_all_that_the_script_uses_is_there_and_has_a_name(page):
    """Elements looked up by id exist; fields and lists have labels."""
    (script,) = Page(page).scripts
    wanted = set(re.findall(r'\$\("([\w-]+)"\)', script))
    assert wanted <= set(Page(page).ids)
    for tag in re.findall(r'<\w+[^>]*role="(?:listbox|group|region)"[^>]*>', page):
        assert "aria-label" in tag, tag


def test_links_and_the_effect_of_a_word_are_with_the_pair(tmp_path):
    without = Without("<b>", (), [ChangedWord("das", loss=2.5)], [ChangedWord("ein", True)])
    pair = pair_view(link_kind="link of <x>", without=without)
    ((known, _),) = pairs_of(written(tmp_path / "page.html", [pair]))
    assert known["linkKind"] == "link of <x>"
    assert known["without"] == {
        "word": "<b>",
        "given": [],
        "before": [{"text": "das", "changed": False, "loss": 2.5}],
        "after": [{"text": "ein", "changed": True, "loss": 0.0}],
    }


def test_each_chart_has_its_figure(page):
    figure = re.search(r"<svg.*?</svg>", page, re.DOTALL)[0]
    assert "#0072b2" in figure
    assert 'aria-label="Two bars"' in figure


def test_weights_are_what_they_were_but_for_half_a_step():
    pair = pair_view(3)
    known, text = packed(pair)
    data = base64.b64decode(text)
    found = list(unpack(known, data))
    assert [name for name, *_ in found] == list(pair.weights)
    for name, values, steps in found:
        weights = pair.weights[name]
        expected = weights.values
        if weights.null is not None:
            expected = np.concatenate([expected, weights.null[..., None]], axis=-1)
        largest = np.abs(expected).max(axis=(2, 3), keepdims=True)
        np.testing.assert_allclose(steps, largest / (SIGNED_STEPS if weights.signed else WEIGHT_STEPS), rtol=1e-6)
        assert (np.abs(values - expected) <= 0.501 * steps).all()
        assert np.abs(values - expected).max() > 0.3 * steps.max()  # it is rounded indeed
    assert len(data) < sum(weights.values.size + 500 for weights in pair.weights.values())


def test_without_pairs_there_is_no_browser_and_no_script(tmp_path):
    page = Page(written(tmp_path / "page.html"))
    assert page.scripts == []
    assert "Sentences" not in page.text


def test_names_between_backticks_are_set_apart_and_wide_charts_get_the_whole_width(tmp_path):
    wide = chart("wide", draw=None, caption="`low` & <b>", columns=list("abcdefg"), rows=[(*range(7),)])
    page = written(tmp_path / "page.html", charts=[wide, chart("narrow")], summary=["See `low`."])
    assert '<p class="lead" dir="auto">See <code>low</code>.</p>' in page
    assert "<code>low</code> &amp; &lt;b&gt;" in page
    assert re.findall('id="chart-(.*?)" class="chart(.*?)"', page) == [("wide", " wide"), ("narrow", "")]


def test_a_wide_table_shows_its_words_and_folds_its_numbers(tmp_path):
    verdicts = chart("verdicts", draw=None, columns=list("abcdefgh"), rows=[("occlusion", "better", *range(6))])
    page = written(tmp_path / "page.html", charts=[verdicts])
    first, folded = page.split('<div class="foot">')
    assert '<td class="">better</td></tr>' in first.partition('id="chart-verdicts"')[2]
    assert "<details>\n<summary>All numbers" in folded
    assert '<td class="number">5</td>' in folded


def test_methods_have_names_for_people_and_files_those_for_programs(tmp_path):
    weights = {"alti": pair_view().weights["attention"]}
    shown = chart(rows=[("alti", 1, 0.5)], draw=None, caption="alti is first.")
    page = written(tmp_path / "page.html", [pair_view(weights=weights)], [shown], summary=["Then `alti`."])
    text = Page(page).text
    assert "ALTI+ is first." in text
    assert "Then alti." in text
    assert "alti,1,0.5" in csv_text(shown)
    assert [(way["name"], way["label"]) for way in pairs_of(page)[0][0]["weights"]] == [("alti", "ALTI+")]


def test_the_title_names_the_text_and_the_record_is_json(tmp_path):
    about = {"Languages": "en–de", "BLEU": "30.1", "Date": "2026-01-02"}
    record = {"command": "attncal", "config": {"batch_size": 32, "methods": ["alti", "random"], "probe": None}}
    page = written(tmp_path / "page.html", title="A model", about=about, record=record)
    assert "<title>A model · en–de · 30.1 · 2026-01-02</title>" in page
    assert json.loads(unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1])) == record


def test_long_tables_are_cut_aloud(tmp_path):
    rows = [("x" * 500, n, 0.5) for n in range(700)]
    page = Page(written(tmp_path / "page.html", charts=[chart(rows=rows, draw=None)]))
    assert "The first 500 of 700 rows." in page.text


@pytest.mark.parametrize("text", ["\ud800 half", "\x00\x07 control", "a\u2028b"])
def test_invalid_characters_do_not_prevent_a_page(tmp_path, text):
    pairs = [pair_view(source=f"{text} x")]
    page = Page(written(tmp_path / "page.html", pairs, title=text))
    assert "half" in page.text or "control" in page.text or "a\u2028b" in page.text


# ---- whole or not at all ----


def test_an_error_in_the_middle_does_not_change_the_page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("before")

    def pairs():
        yield pair_view(0)
        raise RuntimeError("the model fails")

    with pytest.raises(RuntimeError, match="the model fails"):
        write_page(report(pairs()), path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path):
    pair = replace(pair_view(), weights={"alti": PairWeights(np.full((1, 1, 7, 6), np.nan))})
    with pytest.raises(ValueError, match=r"Pair 0 .*'alti'"):
        write_page(report([pair]), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
