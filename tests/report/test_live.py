"""The live page: what is said of sentences, words taken away, and a server that answers nobody else."""

import base64
import hashlib
import json
import re
import threading
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import numpy as np
import pytest
from live_helpers import HOSTILE_LINE, LINES, tiny_live
from report_helpers import unpack

from hf_attncal.inference.translation import translate_texts
from hf_attncal.report.attribution import word_scores
from hf_attncal.report.live import MOST_LINES, given_target
from hf_attncal.report.live_server import LiveServer, _numbers


@pytest.fixture(scope="module")
def live():
    return tiny_live()


@pytest.fixture(scope="module")
def server(live):
    with LiveServer(live) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def posted(server, path, host=None, **fields) -> str:
    fields = {"token": server.token} | fields
    place = urlsplit(server.url)
    request = Request(f"http://{place.netloc}{path}", urlencode(fields).encode())
    if host:
        request.add_header("Host", host)
    with urlopen(request) as answer:
        return answer.read().decode()


def refused(server, *args, **fields) -> tuple[int, str]:
    with pytest.raises(HTTPError) as told:
        posted(server, *args, **fields)
    return told.value.code, told.value.read().decode()


# ---- the model ----


def test_translations_are_those_of_the_model_and_given_ones_stay(live):
    views = list(live.views([*LINES, "a house\tein <i>Haus</i>", "the house ||| das Haus ||| x"]))
    assert [view.target for view in views[:2]] == translate_texts(live.model, live.tokenizer, LINES, num_beams=2)
    assert [(view.source, view.target) for view in views[2:]] == [
        ("a house", "ein <i>Haus</i>"),
        ("the house", "das Haus ||| x"),
    ]
    assert [view.index for view in live.views(LINES, first=7)] == [7, 8]


@pytest.mark.parametrize(
    ("line", "pair"),
    [("a b", ("a b", None)), ("a\tb", ("a", "b")), ("a ||| b c", ("a", "b c")), ("a|||b", ("a|||b", None))],
)
def test_a_line_may_have_its_translation_with_it(line, pair):
    assert given_target(line) == pair


def test_what_the_check_says_and_the_links_are_with_the_pair(live):
    (view,) = live.views(["the old house\tdas alte Haus"])
    assert (list(view.left_out), list(view.made_up), view.links) == ([0], [2], ((0, 0),))
    assert list(view.told) == ["the check says: left out, identical sides"]
    assert view.notes["left out"] == 0.9
    assert view.link_kind == "link of the aligner"
    assert list(view.weights) == ["attention", "calibrated", "contribution"]


def test_a_pair_without_words_on_a_side_is_there_all_the_same(live):
    (view,) = live.views(["the house\t\u3000"])
    assert (view.source, view.target, dict(view.weights)) == ("the house", "", {})


@pytest.mark.parametrize("method", ["alti", "occlusion", "value_zeroing", "integrated_gradients"])
def test_any_method_is_what_attribution_says(live, method):
    view = live.way("the old house\tdas alte Haus", method)
    (expected,) = word_scores(live.model, live.tokenizer, ["the old house"], ["das alte Haus"], method)
    assert list(view.weights) == [method]
    rows, columns = np.array(view.target_words), np.array(view.source_words)
    values = view.weights[method].values[0, 0]
    first = values[rows == 0][:, columns == 0].sum(axis=1).mean()
    assert first == pytest.approx(expected[0, 0], rel=1e-4)


def test_words_that_are_taken_away_are_not_seen(live):
    found = live.without(LINES[0], [1, 2, 2, 99])
    whole, rest = translate_texts(live.model, live.tokenizer, [LINES[0], "the is a house"], num_beams=2)
    assert [word.text for word in found.before] == [word.text for word in found.target] == whole.split()
    assert [word.text for word in found.after] == rest.split()
    (scores,) = word_scores(live.model, live.tokenizer, LINES[:1], [whole], "occlusion")
    losses = scores[:, [1, 2]].sum(axis=1).tolist()
    assert [word.loss for word in found.target] == [word.loss for word in found.before] == pytest.approx(losses)


def test_of_a_given_translation_the_losses_and_of_the_model_the_changes(live):
    found = live.without("the old house\tdas alte Haus", [1])
    assert [word.text for word in found.target] == ["das", "alte", "Haus"]
    assert any(word.loss != 0 for word in found.target)
    assert all(word.loss == 0 for word in found.before)
    assert not any(word.changed for word in found.target)


def test_changed_words_are_those_that_the_other_translation_lacks(live, monkeypatch):
    monkeypatch.setattr(live, "translations", lambda lines: ["two dogs run", "two runners run fast"][: len(lines)])
    found = live.without("x\ty", [0])
    assert [(word.text, word.changed) for word in found.before] == [("two", False), ("dogs", True), ("run", False)]
    assert [(word.text, word.changed) for word in found.after] == [
        ("two", False),
        ("runners", True),
        ("run", False),
        ("fast", True),
    ]


def test_too_many_lines_are_refused(live, server):
    with pytest.raises(ValueError, match=r"`lines`.*200.*got 201"):
        list(live.views(["a"] * (MOST_LINES + 1)))
    assert refused(server, "/answers", text="a\n" * 201) == (400, "`lines` must be at most 200, got 201.")


# ---- the server ----


def test_answers_are_pairs_as_the_page_of_a_report_has_them(server, live):
    lines = [*LINES, HOSTILE_LINE, "a house ||| ein Haus"]
    found = json.loads(posted(server, "/answers", text="\r\n".join(["", *lines]), first="3"))
    assert [one["known"]["index"] for one in found] == [3, 4, 5, 6]
    assert [one["known"]["given"] for one in found] == [False, False, False, True]
    assert found[2]["known"]["source"] == HOSTILE_LINE
    (view,) = live.views(lines[:1])
    ways = unpack(found[0]["known"], base64.b64decode(found[0]["weights"]))
    for (name, values, steps), (expected, weights) in zip(ways, view.weights.items(), strict=True):
        assert name == expected
        assert (np.abs(values - weights.values) <= 0.51 * steps).all()


def test_one_more_way_of_looking(server):
    found = json.loads(posted(server, "/way", text="a house\tein Haus", method="occlusion"))
    (way,) = found["known"]["weights"]
    assert (way["name"], way["signed"]) == ("occlusion", True)
    status, told = refused(server, "/way", text="a house\tein Haus", method="<b>")
    assert (status, told[:24]) == (400, "`method` must be one of ")
    assert refused(server, "/way", text="a\nb", method="alti") == (400, "`text` must be one line, got 2.")


def test_what_changes_without_words(server, live):
    found = json.loads(posted(server, "/without", text=LINES[0], taken="1,2"))
    expected = live.without(LINES[0], [1, 2])
    assert [word["text"] for word in found["after"]] == [word.text for word in expected.after]
    assert [word["changed"] for word in found["before"]] == [word.changed for word in expected.before]
    assert refused(server, "/without", text=LINES[0], taken="1,x")[0] == 400


def test_the_verdict_is_the_first_thing_on_the_page_and_is_of_what_was_typed(server, live):
    with urlopen(server.url) as answer:
        page = answer.read().decode()
    assert re.search(r'<p class="lead" id="verdict" role="status">Do not trust .*? nothing is shown', page)
    lines = [f"the old house\t{'a ' * n}" for n in range(1, 7)]
    assert "nothing is shown" in json.loads(posted(server, "/verdict", text="\n".join(lines[:5])))["text"]
    found = json.loads(posted(server, "/verdict", text="\n".join(lines)))
    assert found == json.loads(json.dumps(live.verdict(lines).to_dict()))
    assert (found["level"], found["measured"]["pairs"]) == ("do not", 6)
    assert "different ones are needed" in found["text"]
    kept = posted(server, "/report", text="\n".join(lines))
    assert found["text"].split("(")[0] in kept
    assert refused(server, "/verdict", text="a\n" * 201)[0] == 400


@pytest.mark.parametrize("text", ["", "x", "1,", "-1", "1" * 7, "1 2", "٣"])
def test_numbers_that_are_none(text):
    with pytest.raises(ValueError, match="commas"):
        _numbers(text)
    assert _numbers("0,12") == [0, 12]


def test_a_line_that_is_too_long_is_told(server):
    status, told = refused(server, "/answers", text=f"{LINES[0]}\n{'house ' * 200}")
    assert status == 400
    assert "line 2" in told


def test_a_report_to_keep_has_links_and_marks(server):
    page = posted(server, "/report", text=f"{LINES[0]}\n{HOSTILE_LINE}\na house\tein Haus")
    known = [
        json.loads(one) for one in re.findall(r'<script type="application/json" class="pair">(.*?)</script>', page)
    ]
    assert [one["source"] for one in known] == [LINES[0], HOSTILE_LINE, "a house"]
    assert known[2]["target"] == "ein Haus"
    assert known[0]["links"] == [[0, 0]]
    assert known[0]["leftOut"] == [0]
    assert "<script>x()" not in page
    assert "fetch(" not in page


@pytest.mark.parametrize(
    ("fields", "path", "host", "status"),
    [
        ({"token": "guessed"}, "/answers", None, 403),
        ({"token": ""}, "/report", None, 403),
        ({"token": "ü"}, "/way", None, 403),
        ({}, "/answers", "evil.example", 403),
        ({}, "/", None, 404),
        ({}, "/other", None, 404),
        ({"text": "a" * 1_000_001}, "/answers", None, 413),
    ],
)
def test_who_is_turned_away(server, fields, path, host, status):
    assert refused(server, path, host, **fields)[0] == status


def test_the_address_opens_the_page_and_only_its_own_script_runs_there(server):
    with urlopen(server.url) as answer:
        page, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        cookie = answer.headers["Set-Cookie"]
    assert "a &lt;model&gt;" in page
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    for rule in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert rule in policy
    told = json.loads(re.search(r'id="live">(.*?)</script>', page)[1])
    assert told["token"] == server.token
    assert {"alti", "occlusion", "integrated_gradients"} <= {one["name"] for one in told["methods"]}
    assert not {"random", "posterior"} & {one["name"] for one in told["methods"]}
    assert not re.search(r"\son\w+=", page.replace(script, ""))  # no attribute runs anything
    assert {"HttpOnly", "SameSite=Lax"} <= set(cookie.split("; "))


def test_a_link_without_the_token_opens_in_the_browser_that_knows_it(server):
    bare = server.url.partition("?")[0]
    with pytest.raises(HTTPError) as told:
        urlopen(bare)
    assert told.value.code == 403
    name = f"attncal-{server.port}"
    with urlopen(Request(bare, headers={"Cookie": f"{name}={server.token}"})) as answer:
        assert answer.status == 200
    for cookie in (f"{name}=guessed", f"other={server.token}", "attncal-1=x; ;;="):
        with pytest.raises(HTTPError) as told:
            urlopen(Request(bare, headers={"Cookie": cookie}))
        assert told.value.code == 403
    # The cookie opens the page and answers nothing: another page of this machine may not ask with it.
    with pytest.raises(HTTPError) as told:
        urlopen(Request(f"{bare}answers", b"text=a", headers={"Cookie": f"{name}={server.token}"}))
    assert told.value.code == 403
