"""Words with times, and windows of speech that have them."""

from typing import Literal, NamedTuple

import numpy as np

RATE = 16_000  # samples per second of Whisper
FRAMES = 50  # states of the encoder per second


class Word(NamedTuple):
    """Word of a transcript.

    Args:
        text: word, with its punctuation.
        start, end: seconds from the beginning of the audio.
        probability: probability that somebody said it. Default: 1.
        kind: "said"; "unspoken" for a word of the text that nobody said; "unwritten" for a word that the text lacks.
    """

    text: str
    start: float
    end: float
    probability: float = 1.0
    kind: Literal["said", "unspoken", "unwritten"] = "said"


class SpokenWindow(NamedTuple):
    """At most 30 seconds of audio at 16 kHz, and its spoken words."""

    audio: np.ndarray
    words: list[Word]
