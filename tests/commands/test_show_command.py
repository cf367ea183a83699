"""`attncal show`: it prints its address, and what cannot be is refused."""

import copy
import re
import socket

import pytest
from seq2seq_helpers import bpe_tokenizer, text_model

import hf_attncal
from hf_attncal.io.errors import CommandError
from hf_attncal.report.live_server import LiveServer


@pytest.fixture
def model(tmp_path):
    for part in (text_model("marian", "ours"), copy.deepcopy(bpe_tokenizer())):
        part.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def test_the_address_is_printed_and_the_page_is_served(attncal, model, monkeypatch, capfdbinary):
    served = []
    monkeypatch.setattr(LiveServer, "serve_forever", lambda self: served.append(self.live))
    hf_attncal.show(model, beams=2)
    from_python = capfdbinary.readouterr().out.decode()
    status, out, err = attncal("show", model, "--beams", "2", "--device", "cpu")
    assert (status, err) == (0, "")
    for told in (from_python, out):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S+\nCtrl-C ends it\.\n", told)
    assert [(live.name, live.beams, live.aligner) for live in served] == [("model", 2, None)] * 2


def test_what_cannot_be_is_refused(attncal, model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"^--port {port} cannot be used: "):
            hf_attncal.show(model, port=port)
    status, _, err = attncal("show", model, "--port", "65536")
    assert (status, err) == (1, "attncal: error: --port must be from 0 to 65535, got 65536.\n")
    status, _, err = attncal("show", model, "--aligner", "./nowhere")
    assert status == 1
    assert "./nowhere" in err
