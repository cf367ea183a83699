"""Windows of speech with exact word times, spoken by espeak-ng (libespeak-ng.so.1, GPL-3: only measured with).

Each window has 20 to 28 seconds of sentences, pauses of 0.05 to 2 seconds and noise.
"""

import ctypes
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from hf_attncal.io.files import read_lines
from hf_attncal.speech.sound import RATE, SpokenWindow, Word

# A voice is a language and a variant. No variant is in two of the three groups.
VOICES = {
    "train": [
        f"{language}{variant}"
        for language in ("en-us", "en-gb", "en-029", "en-gb-x-rp", "en-us-nyc")
        for variant in ("", "+m1", "+m3", "+m6", "+f1", "+f2", "+Andy", "+Annie", "+Mike", "+Alicia", "+steph")
    ],
    "dev": ["en-us+m4", "en-gb-x-gbclan+f5", "en-gb+Michael", "en-us+Belinda"],
    "test": ["en-us+f3", "en-gb+m7", "en-gb-scotland+m5", "en-gb-x-gbcwmd+f4", "en-029+Linda"],
}
_WORD, _PHONEME = 1, 7  # types of events
_SENTENCE = re.compile(r"[A-Za-z',.?! ]+")


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("milliseconds", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("name", ctypes.c_char * 8),
    ]


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class Voice:
    """The synthesiser, which calls back with samples and events."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libespeak-ng.so.1")
        self.samples: list[np.ndarray] = []
        self.events: list[tuple[int, int, float, bytes]] = []
        self.rate = self.library.espeak_Initialize(2, 0, None, 1)  # synchronous, with events of phonemes
        self.callback = _Callback(self._receive)
        self.library.espeak_SetSynthCallback(self.callback)

    def _receive(self, samples, count, events) -> int:
        if samples and count > 0:
            self.samples.append(np.ctypeslib.as_array(samples, (count,)).copy())
        number = 0
        while (event := events[number]).type != 0:
            self.events.append((event.type, event.text_position, event.milliseconds / 1000, event.name))
            number += 1
        return 0

    def say(self, words: Sequence[str], voice: str, rate: int, pitch: int) -> tuple[np.ndarray, list] | None:
        """Return samples at 16 kHz and the span of each word in seconds; None if a word has no time of its own."""
        self.samples, self.events = [], []
        self.library.espeak_SetVoiceByName(voice.encode())
        self.library.espeak_SetParameter(1, rate, 0)
        self.library.espeak_SetParameter(3, pitch, 0)
        text = " ".join(words).encode() + b"\0"
        self.library.espeak_Synth(text, len(text), 0, 0, 0, 1, None, None)
        audio = np.concatenate(self.samples).astype(np.float32) / 32768
        position, starts = 1, []
        times = {place: time for kind, place, time, _ in self.events if kind == _WORD}
        for word in words:
            starts.append(times.get(position))
            position += len(word) + 1
        if None in starts:
            return None
        silences = [time for kind, _, time, name in self.events if kind == _PHONEME and name.startswith(b"_")]
        spans = []
        for start, following in zip(starts, [*starts[1:], len(audio) / self.rate], strict=True):
            spans.append((start, min([following, *(time for time in silences if time > start + 0.02)])))
        return resample_poly(audio, 320, 441) if self.rate == 22050 else audio, spans


@cache
def _voice() -> Voice:
    return Voice()


def sentences(path: Path, seed: int) -> list[str]:
    """Return the English sentences of 5 to 16 words of a file, shuffled."""
    lines = [re.sub(r" n't\b", "n't", line.strip()) for line in read_lines(path)]
    lines = [re.sub(r" ('(?:s|re|ve|ll|d|m))\b", r"\1", line) for line in lines]
    lines = [re.sub(r"\s+([.,?!;:])", r"\1", line) for line in lines]
    found = sorted({line for line in lines if _SENTENCE.fullmatch(line) and 5 <= len(line.split()) <= 16})
    random.Random(seed).shuffle(found)
    return found


def windows(texts: Sequence[str], voices: Sequence[str], number: int, seed: int) -> Iterator[SpokenWindow]:
    """Yield windows; each has one voice, its rate and pitch, and noise of 15 to 30 dB."""
    rng, noises, lines = random.Random(seed), np.random.default_rng(seed), iter(texts)
    for count in range(number):
        voice, rate, pitch = voices[count % len(voices)], rng.randint(125, 185), rng.randint(30, 75)
        length, words = rng.uniform(20, 27.5), []
        parts = [np.zeros(int(RATE * rng.uniform(0.1, 1.0)), np.float32)]
        while (at := sum(map(len, parts)) / RATE) < length:
            sentence = next(lines).split()
            cut = rng.randint(2, len(sentence) - 2) if len(sentence) > 5 and rng.random() < 0.5 else len(sentence)
            for phrase in filter(None, (sentence[:cut], sentence[cut:])):
                spoken = _voice().say(phrase, voice, rate, pitch)
                if spoken is None:
                    break
                audio, spans = spoken
                audio = audio[: int(RATE * (spans[-1][1] + 0.03))].astype(np.float32)
                gap = rng.uniform(0.3, 2.0) if rng.random() < 0.6 else rng.uniform(0.05, 0.3)
                at = sum(map(len, parts)) / RATE
                if at + len(audio) / RATE + gap > 29:
                    break
                words += [Word(text, at + start, at + end) for text, (start, end) in zip(phrase, spans, strict=True)]
                parts += [audio, np.zeros(int(RATE * gap), np.float32)]
            else:
                continue
            if at > 15:
                break
        audio = np.concatenate(parts)[: 30 * RATE]
        noise = np.convolve(noises.normal(size=len(audio)), np.ones(4) / 4, "same")
        scale = np.sqrt((audio**2).mean() / (noise**2).mean()) * 10 ** (-rng.uniform(15, 30) / 20)
        yield SpokenWindow((audio + scale * noise).astype(np.float32), words)
