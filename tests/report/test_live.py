"""The live page: translations, words taken away, marks of the check, and a server that answers nobody else."""

import threading
from html.parser import HTMLParser
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import pytest
import torch
from helpers import TINY

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.alignment.check import FlaggedSpan, PairVerdict
from hf_attncal.analysis.attribution import word_scores
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.inference.translation import translate
from hf_attncal.report.live import MOST_LINES, LiveModel, _new_words
from hf_attncal.report.live_server import LiveServer

LINES = ["the old house is a house", "a <b>house</b>"]


class Checks:
    """A checker that says that the first source word was left out and the last target word was made up."""

    def check(self, pairs):
        return [verdict(*pair) for pair in pairs]


def verdict(source: str, target: str) -> PairVerdict:
    first = len(source.split()[0])
    left_out = (FlaggedSpan((0, 1), (0, first)),)
    words = target.split()
    made_up = (FlaggedSpan((len(words) - 1, len(words)), (target.rindex(words[-1]), len(target))),) if words else ()
    return PairVerdict(
        source, target, 0.9, 0.1, 0, 0, 0, (), (), left_out, made_up, ("identical sides",), ("left_out",)
    )


@pytest.fixture(scope="module")
def live():
    tokenizer = train_bpe_tokenizer([*LINES] * 3, vocab_size=60)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    fields = TINY | ids | {"vocab_size": len(tokenizer), "decoder_start_token_id": tokenizer.pad_token_id}
    torch.manual_seed(1)
    model = AttnCalMarianMTModel(AttnCalMarianConfig(**fields, calibration="gated", init_std=1.0)).eval()
    return LiveModel(model, tokenizer, "a <model>", Checks(), beams=2)


@pytest.fixture
def server(live):
    with LiveServer(live) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def posted(server, path="/", host=None, **fields) -> str:
    fields = {"token": server.token} | fields
    place = urlsplit(server.url)
    request = Request(f"http://{place.netloc}{path}", urlencode(fields, doseq=True).encode())
    if host:
        request.add_header("Host", host)
    with urlopen(request) as answer:
        return answer.read().decode()


def test_translations_are_those_of_the_model(live):
    answers = live.answer(LINES)
    expected = translate(live.model, live.tokenizer, LINES, num_beams=2)
    assert [" ".join(word.text for word in answer.target) for answer in answers] == [
        " ".join(text.split()) for text in expected
    ]
    assert all(answer.without is None for answer in answers)


def test_words_that_are_taken_away_are_not_seen(live):
    first, second = live.answer(LINES, {0: {1, 2}})
    assert [word.taken for word in first.source] == [False, True, True, False, False, False]
    (expected,) = translate(live.model, live.tokenizer, ["the is a house"], num_beams=2)
    assert [word.text for word in first.without] == expected.split()
    assert second.without is None
    target = " ".join(word.text for word in first.target)
    (scores,) = word_scores(live.model, live.tokenizer, LINES[:1], [target], "occlusion")
    assert [word.loss for word in first.target] == pytest.approx(scores[:, [1, 2]].sum(axis=1).tolist())
    assert all(word.loss == 0 for word in second.target)


def test_new_words_are_those_that_were_not_there():
    words = _new_words(["two", "dogs", "run"], ["two", "runners", "run", "fast"])
    assert [(word.text, word.new) for word in words] == [
        ("two", False),
        ("runners", True),
        ("run", False),
        ("fast", True),
    ]


def test_what_the_check_says_is_marked(live):
    answer = live.answer(LINES[:1])[0]
    assert [word.marked for word in answer.source] == [True] + [False] * 5
    assert [word.marked for word in answer.target] == [False] * (len(answer.target) - 1) + [True]
    assert answer.flagged == ("left_out", "identical sides")


def test_too_many_lines_are_refused(live, server):
    with pytest.raises(ValueError, match="`lines` must be at most 200, got 201"):
        live.answer(["a"] * (MOST_LINES + 1))
    assert "`lines` must be at most 200, got 201" in posted(server, text="a\n" * 201)


class Form(HTMLParser):
    """The fields of the form, as a browser would send them."""

    def __init__(self, page: str):
        super().__init__()
        self.fields, self.boxes, self.labelled = {}, {}, 0
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        if tag == "label":
            self.labelled += 1
        if tag == "input" and known["type"] == "checkbox":
            self.boxes[known["value"]] = "checked" in known
        elif tag == "input":
            self.fields[known["name"]] = known["value"].replace("\n", "\r\n")


def test_a_person_types_ticks_and_sends_again(server, live):
    page = posted(server, text="\r\n".join(LINES))
    form = Form(page)
    assert set(form.boxes) == {*(f"0:{n}" for n in range(6)), "1:0", "1:1"}
    assert not any(form.boxes.values())
    assert form.labelled == len(form.boxes) + 1  # and that of the text
    assert "a &lt;b&gt;house&lt;/b&gt;" in page
    assert "<b>house" not in page
    assert "without them:" not in page
    again = posted(server, **form.fields, text="\r\n".join(LINES), taken=["0:1", "9:9", "x", "0:77"])
    assert [box for box, ticked in Form(again).boxes.items() if ticked] == ["0:1"]
    assert again.count("without them:") == 1
    other = posted(server, **form.fields, text="the house", taken=["0:1"])  # another text: nothing is ticked in it
    assert "without them:" not in other


def test_a_report_to_keep(server):
    page = posted(server, "/report", text=LINES[0])
    assert '<script type="application/json" class="pair">' in page
    assert "<h1" in page


@pytest.mark.parametrize(
    ("fields", "path", "host", "status"),
    [
        ({"token": "guessed"}, "/", None, 403),
        ({"token": ""}, "/report", None, 403),
        ({}, "/", "evil.example", 403),
        ({}, "/other", None, 404),
        ({"text": "a" * 1_000_001}, "/", None, 413),
    ],
)
def test_who_is_turned_away(server, fields, path, host, status):
    with pytest.raises(HTTPError) as told:
        posted(server, path, host, **fields)
    assert told.value.code == status


def test_the_address_opens_the_page_and_nothing_runs_there(server):
    with urlopen(server.url) as answer:
        page = answer.read().decode()
        policy = answer.headers["Content-Security-Policy"]
    assert "a &lt;model&gt;" in page
    assert "<script" not in page
    assert "default-src 'none'" in policy
    with pytest.raises(HTTPError) as told:
        urlopen(server.url.partition("?")[0])
    assert told.value.code == 403
