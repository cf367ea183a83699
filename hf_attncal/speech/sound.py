"""Audio as one channel at 16 kHz, cut into windows between words, and words with times."""

from collections.abc import Iterator
from os import PathLike
from typing import Literal, NamedTuple

import numpy as np

from hf_attncal.io.extras import need

RATE = 16_000  # samples per second of Whisper
FRAMES = 50  # states of the encoder per second
_SHORTEST, _QUIET = 20.0, 0.2  # seconds of a window that is cut, and over which loudness is averaged


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


def read_audio(path: str | PathLike[str]) -> np.ndarray:
    """Read an audio file (WAV, FLAC, OGG, MP3) as mono samples at 16 kHz, float32.

    Raises:
        ValueError: the file is no audio, or has no samples.
    """
    need("speech")
    import soundfile
    import soxr

    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"{path} cannot be read as audio: {error.error_string} Convert it to WAV, FLAC, OGG or MP3."
        ) from error
    return check_audio(soxr.resample(samples.mean(axis=1), rate, RATE), str(path))


def check_audio(audio: np.ndarray, name: str = "`audio`") -> np.ndarray:
    """Return mono samples at 16 kHz as float32.

    Raises:
        ValueError: the array has no samples, several channels, or values that are not finite.
    """
    audio = np.asarray(audio)
    if audio.ndim != 1 or not len(audio):
        raise ValueError(
            f"{name} must be a sequence of samples at {RATE} Hz with one channel, got shape {audio.shape}."
        )
    if not np.isfinite(audio).all():
        raise ValueError(f"{name} must have finite samples, got NaN or infinity. Decode it again.")
    return audio.astype(np.float32)


def cut(audio: np.ndarray, longest: float) -> Iterator[tuple[float, np.ndarray]]:
    """Yield the start in seconds and the samples of windows of at most `longest` seconds.

    A window ends where the last third of it is quietest, which is seldom inside a word.
    """
    start, size = 0, int(longest * RATE)
    while len(audio) - start > size:
        begin = start + int(_SHORTEST / 30 * size)
        power = np.convolve(audio[begin : start + size] ** 2, np.ones(int(_QUIET * RATE)), "valid")
        end = begin + int(power.argmin()) + int(_QUIET * RATE) // 2
        yield start / RATE, audio[start:end]
        start = end
    yield start / RATE, audio[start:]
