"""Serve a translation model on this machine, for NeMo Curator's backend `nmt` and whoever asks as it does.

    python examples/translation_server.py MODEL [PORT]
    curl localhost:8000/translate -d '{"texts": ["The old house."], "src_lang": "en", "tgt_lang": "de"}'

The answer is {"translations": [...]}, one for each text; of an error {"error": "..."} with a status of its own.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from hf_attncal import translate
from hf_attncal.data.languages import codes_of
from hf_attncal.inference.loading import load_seq2seq


class Translator(BaseHTTPRequestHandler):
    """Answers one request at a time, with the model of its server."""

    def do_POST(self):
        if self.path != "/translate":
            return self.answer(404, {"error": f"there is no {self.path}, but /translate and /health"})
        try:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            texts, (model, tokenizer) = asked["texts"], self.server.model
            if not isinstance(texts, list):  # a text would be the name of a file
                raise TypeError(f"`texts` must be a list, got {texts!r:.50}.")
            pair = (asked["src_lang"], asked["tgt_lang"]) if codes_of(tokenizer) else None
            return self.answer(200, {"translations": translate(texts, model=(model, tokenizer), languages=pair)})
        except (KeyError, TypeError, ValueError) as error:  # of JSON, its fields, a language, a line
            return self.answer(400, {"error": f"{type(error).__name__}: {error}"})

    def do_GET(self):
        self.answer(*((200, {}) if self.path == "/health" else (404, {"error": "POST to /translate"})))

    def answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())


def server_of(name, port=8000):
    """Return a server of the model of this name; `serve_forever()` runs it."""
    server = HTTPServer(("127.0.0.1", port), Translator)
    server.model = load_seq2seq(name)
    return server


if __name__ == "__main__":
    server_of(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000).serve_forever()
