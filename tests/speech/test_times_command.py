"""`attncal times`: words with times in each format, and audio, text and models that cannot be used."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from peft import get_peft_model
from speech_helpers import tiny_whisper, tone
from transformers import WhisperForConditionalGeneration

import hf_attncal
from hf_attncal.adapters import AttentionCalibrationConfig, save_adapter
from hf_attncal.commands import main
from hf_attncal.io.errors import CommandError
from hf_attncal.speech.observed import Unspoken
from hf_attncal.speech.sound import RATE, read_audio

soundfile = pytest.importorskip("soundfile")
AUDIO = np.concatenate([tone("low", 0.6), np.zeros(RATE // 5, np.float32), tone("top", 0.6)])


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Return a folder with a Whisper, an observer that learned nothing, an audio and its text."""
    folder = tmp_path_factory.mktemp("speech")
    model, processor = tiny_whisper()
    for part in (model, *processor):
        part.save_pretrained(folder / "whisper")
    model = WhisperForConditionalGeneration.from_pretrained(folder / "whisper")
    settings = {"observe": True, "guided": True, "leaky": True, "calibration": None}
    save_adapter(get_peft_model(model, AttentionCalibrationConfig(**settings)), folder / "observer")
    soundfile.write(folder / "talk.wav", AUDIO, RATE)
    (folder / "talk.txt").write_text("low\ntop\n")
    return folder


@pytest.fixture
def options(here):
    return ["--model", f"{here / 'whisper'}", "--observer", f"{here / 'observer'}", "--text", f"{here / 'talk.txt'}"]


def test_words_of_a_text_are_written_in_the_format_of_the_output(here, options, tmp_path, capfdbinary):
    assert main(["times", f"{here / 'talk.wav'}", *options]) == 0
    chunks = json.loads(capfdbinary.readouterr().out)["chunks"]
    words = hf_attncal.times(here / "talk.wav", model=here / "whisper", observer=here / "observer", text=["low top"])
    assert [chunk["text"] for chunk in chunks] == [f" {word.text}" for word in words]
    assert [word.text for word in words if word.kind != "unwritten"] == ["low", "top"]
    assert all(0 <= word.start <= word.end <= len(AUDIO) / RATE for word in words)
    for name, start in {"a.srt": "1\n00:", "a.vtt": "WEBVTT\n", "a.TextGrid": "File type"}.items():
        assert main(["times", f"{here / 'talk.wav'}", *options, "--output", f"{tmp_path / name}"]) == 0
        text = (tmp_path / name).read_text()
        assert text.startswith(start)
        assert "low" in text


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_audio_is_resampled_and_mixed(rate, tmp_path):
    times = np.arange(rate) / rate
    soundfile.write(tmp_path / "a.flac", np.stack([np.sin(2 * np.pi * 440 * times) * 0.5, 0 * times], axis=1), rate)
    audio = read_audio(tmp_path / "a.flac")
    assert audio.dtype == np.float32
    assert abs(len(audio) - RATE) <= 1
    expected = 0.25 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
    assert np.abs(audio[1000:-1000] - expected[1000 : len(audio) - 1000]).max() < 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"audio": "talk.txt"}, r"talk\.txt cannot be read as audio: .* Convert it"),
        ({"text": [" "]}, "`text` must have words"),
        ({"text": ["low " * 60]}, "does not fit the audio"),
        ({"observer": "whisper"}, "whisper"),
    ],
    ids=str,
)
def test_what_cannot_be_used(change, message, here):
    names = {"audio": "talk.wav", "model": "whisper", "observer": "observer"}
    arguments = {name: here / file for name, file in names.items()} | {"text": ["low top"]}
    arguments |= {name: here / value if isinstance(value, str) else value for name, value in change.items()}
    with pytest.raises(CommandError, match=re.compile(message, re.DOTALL)):
        hf_attncal.times(arguments.pop("audio"), **arguments)


def test_the_page_on_observers(here, monkeypatch):
    """The commands and the Python about speech run beside an observer with a learned probability."""
    monkeypatch.chdir(here)
    evidence = np.random.default_rng(1).normal(size=(50, 3))
    Unspoken.learn(evidence, evidence[:, 0] > 0.5).save("observer")
    page = (Path(hf_attncal.__file__).parents[1] / "docs" / "observers.md").read_text(encoding="utf-8")
    for line in re.findall(r"^attncal (times .*)$", page, re.MULTILINE):
        assert main(shlex.split(line)) == 0
    assert {"talk.srt", "talk.vtt"} <= {path.name for path in here.iterdir()}
    names: dict = {}
    *_, code = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)  # the others are of text
    exec(compile(code, "observers.md", "exec"), names)
    assert names["words"]


def test_an_empty_audio(tmp_path):
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    with pytest.raises(ValueError, match=r"empty\.wav must be a sequence of samples"):
        read_audio(tmp_path / "empty.wav")
