"""The example of a server: the contract of NeMo Curator's backend `nmt`, over a real socket."""

import json
import sys
import threading
from http.client import HTTPConnection
from pathlib import Path

import pytest
from language_helpers import PAIRS, save_multilingual

from hf_attncal import translate

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import translation_server

SOURCES = [source for source, _ in PAIRS[:2]]
ASKED = {"texts": SOURCES, "src_lang": "en", "tgt_lang": "de"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_multilingual("m2m100", tmp_path_factory.mktemp("served")))


@pytest.fixture(scope="module")
def ask(folder):
    """(method, path, body) -> status and answer."""
    server = translation_server.server_of(folder, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(method, path, body=None):
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())

    yield ask
    server.shutdown()


def test_a_batch_is_translated_into_the_requested_language(ask, folder):
    for language in ("de", "fr"):
        expected = translate(SOURCES, model=folder, languages=("en", language), device="cpu")
        assert ask("POST", "/translate", ASKED | {"tgt_lang": language}) == (200, {"translations": expected})
    assert ask("GET", "/health") == (200, {})


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/translate", ASKED | {"tgt_lang": "xx"}, 400, "the target must be a language of M2M100Tokenizer, got 'xx'"),
        ("/translate", ASKED | {"texts": ["a\nb"]}, 400, "without a line end"),
        ("/translate", ASKED | {"texts": __file__}, 400, "`texts` must be a list, got "),
        ("/translate", {"texts": SOURCES}, 400, "src_lang"),
        ("/translate", "{", 400, "JSONDecodeError"),
        ("/other", ASKED, 404, "there is no /other"),
    ],
)
def test_lines_that_cannot_be_translated_are_reported(path, body, status, told, ask):
    found, answer = ask("POST", path, body)
    assert (found, told in answer["error"]) == (status, True)
