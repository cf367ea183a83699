"""Words with times in each format, read back."""

import json
import re

import pytest

from hf_attncal.speech.sound import Word
from hf_attncal.speech.writing import WORD_FORMATS, format_by_name, transcript

WORDS = [
    Word("The", 0.5, 0.62),
    Word('"cat"', 0.62, 1.0, 0.98),
    Word("<sat>.", 1.0, 1.345),
    Word("Thanks", 1.345, 1.345, 0.01, "unspoken"),
    Word("And", 2.5, 2.75),
    Word("left", 3661.0, 3661.5, 0.9, "unwritten"),
]


def seconds(clock: str) -> float:
    hours, minutes, rest = clock.replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def test_json_is_the_form_of_the_pipeline():
    assert json.loads(WORD_FORMATS["json"](WORDS)) == json.loads(json.dumps(transcript(WORDS)))
    found = transcript(WORDS)
    assert found["text"] == "".join(f" {word.text}" for word in WORDS)
    assert found["chunks"][2] == {"text": " <sat>.", "timestamp": (1.0, 1.345), "probability": 1.0, "kind": "said"}


def test_srt():
    cues = re.findall(r"(\d+)\n(\S+) --> (\S+)\n(.+)\n", WORD_FORMATS["srt"](WORDS))
    assert [number for number, *_ in cues] == [str(number + 1) for number in range(len(cues))]
    assert [text for *_, text in cues] == ['The "cat" <sat>.', "[-Thanks-]", "And", "{+left+}"]
    assert [(seconds(start), seconds(end)) for _, start, end, _ in cues][::3] == [(0.5, 1.345), (3661.0, 3661.5)]


def test_vtt_has_the_time_of_each_word():
    text = WORD_FORMATS["vtt"](WORDS)
    assert text.startswith("WEBVTT\n\n00:00:00.500 --> 00:00:01.345\n")
    words = re.findall(r"<([\d:.]+)><c>(.*?)</c>", text)
    assert [seconds(start) for start, _ in words] == [word.start for word in WORDS]
    assert words[2][1] == "&lt;sat&gt;."
    assert words[3][1] == "[-Thanks-]"


def test_textgrid_covers_the_time_without_gaps():
    text = WORD_FORMATS["TextGrid"](WORDS)
    rows = re.findall(r'intervals \[\d+\]:\nxmin = (\S+)\nxmax = (\S+)\ntext = "(.*)"\n', text)
    starts, ends = [float(row[0]) for row in rows], [float(row[1]) for row in rows]
    assert starts == [0.0, *ends[:-1]]
    assert f"intervals: size = {len(rows)}\n" in text
    labels = [label for *_, label in rows if label]
    assert labels == ["The", '""cat""', "<sat>.", "[-Thanks-] And", "{+left+}"]


def test_the_last_word_without_length_is_kept_in_a_textgrid():
    assert "[-Thanks-]" in WORD_FORMATS["TextGrid"](WORDS[:4])


@pytest.mark.parametrize("name", WORD_FORMATS)
def test_no_words(name):
    assert WORD_FORMATS[name]([]) is not None


def test_format_by_ending():
    endings = {name: format_by_name(name) for name in ("a.srt", "a.VTT", "a.textgrid", "a.txt", "-")}
    assert list(endings.values()) == ["srt", "vtt", "TextGrid", "json", "json"]
