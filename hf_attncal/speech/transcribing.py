"""Words of speech with their times: transcribed by Whisper, or given as a text."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from transformers import AutoFeatureExtractor, AutoModelForSpeechSeq2Seq

from hf_attncal.adapters.loading import adapter_config, with_adapter
from hf_attncal.inference.files import blamed
from hf_attncal.inference.loading import load_whole
from hf_attncal.inference.opening import choose_device, load_errors, log_model
from hf_attncal.inference.running import Running
from hf_attncal.layouts import TIMES_FILE

from .observed import Listener
from .sound import check_audio, cut
from .timed_words import RATE, Word
from .unspoken import BY_NULL, Unspoken

_MOST_COVERED = 0.5  # share of an unwritten word's time that written words may have


class _Window(NamedTuple):
    """Window of an audio, with its start in seconds and its transcript by the model."""

    start: float
    seconds: float
    encoded: Tensor
    heard: list[str]


def word_times(
    model: Any,
    processor: Any,
    audio: np.ndarray,
    text: str | None = None,
    *,
    unspoken: Unspoken = BY_NULL,
    language: str | None = None,
) -> list[Word]:
    """Return the words of an audio with their times and the probability that they were said.

    The model transcribes windows of at most 30 seconds, cut in pauses, as it does without an observer. Then it reads
    the transcript or the text once more with its observer.

    Args:
        model: Whisper with an observer of `learn_word_times` as its active adapter.
        processor: processor of the model.
        audio: samples at 16 kHz, one channel (`read_audio`).
        text: text of the audio, its words separated by white space. Default: None, the transcript of the model.
        unspoken: learned probability that nobody said a word (`Unspoken.load(folder)`). Default: the weight of NULL.
        language: language of the audio, such as "de". Default: None, the model detects it.

    Returns:
        Words in the order of the text; those with the kind "unspoken" have no length, and those with "unwritten" were
        heard and are not in the text. `transcript(words)` has the form of transformers' pipeline.

    Raises:
        ValueError: the model has no observer, the audio is empty, or the text does not fit the audio.
    """
    listener = Listener(model, processor, language)
    windows = []
    for start, samples in cut(check_audio(audio), listener.longest):
        encoded = listener.encode(samples)
        windows.append(_Window(start, len(samples) / RATE, encoded, listener.transcribe(encoded)))
    if text is None:
        texts = [window.heard for window in windows]
    elif not text.split():
        raise ValueError("`text` must have words, got none.")
    else:
        texts = assigned(text.split(), [window.heard for window in windows])
    words: list[Word] = []
    for window, own in zip(windows, texts, strict=True):
        timed = _timed(listener, window, own, unspoken)
        if new := unmatched(own, window.heard):
            heard = _timed(listener, window, window.heard, unspoken)
            timed = [*_merged(timed, {heard[number]: replaces for number, replaces in new.items()})]
        words += [word._replace(start=window.start + word.start, end=window.start + word.end) for word in timed]
    if text is not None and not any(word.kind == "said" for word in words):
        raise ValueError("No word of the text was heard. The text does not fit the audio.")
    return words


def _timed(listener: Listener, window: _Window, words: Sequence[str], unspoken: Unspoken) -> list[Word]:
    """Return the words of a window with times from its start."""
    if not words:
        return []
    observation = listener.observe(window.encoded, window.seconds, words)
    wrong = unspoken.probabilities(observation.evidence())
    spans = observation.spans(wrong <= unspoken.alarm).clip(max=window.seconds)
    return [
        Word(word, float(start), float(end), 1 - float(p), "unspoken" if p > unspoken.alarm else "said")
        for word, (start, end), p in zip(words, spans, wrong, strict=True)
    ]


def _normal(words: Sequence[str]) -> list[str]:
    """Return words without case and punctuation."""
    return ["".join(filter(str.isalnum, word.casefold())) or word for word in words]


def unmatched(words: Sequence[str], heard: Sequence[str]) -> dict[int, bool]:
    """Return the numbers of the heard words that the text lacks, in order; True where it has others in their place."""
    codes = SequenceMatcher(None, _normal(words), _normal(heard), autojunk=False).get_opcodes()
    return {
        number: tag == "replace"
        for tag, _, _, first, last in codes
        if tag in ("insert", "replace")
        for number in range(first, last)
    }


def assigned(words: Sequence[str], heard: Sequence[Sequence[str]]) -> list[list[str]]:
    """Divide the words of a text among windows, by the words that were heard in each.

    A word that was not heard belongs to the window of the word before it; before the first heard one, to its window.
    """
    owners = np.repeat(np.arange(len(heard)), [len(own) for own in heard])
    every = [word for own in heard for word in own]
    texts: list[list[str]] = [[] for _ in heard]
    window = 0
    for tag, begin, end, first, last in SequenceMatcher(
        None, _normal(words), _normal(every), autojunk=False
    ).get_opcodes():
        for number in range(begin, end):
            if tag != "delete":
                window = int(owners[first + (number - begin) * (last - first) // (end - begin)])
            texts[window].append(words[number])
    return texts


def _merged(words: Sequence[Word], heard: Mapping[Word, bool]) -> Iterator[Word]:
    """Insert the heard words that the text lacks; a word before one ends where it starts.

    A word that may replace words of the text is inserted only if their time leaves room for it.
    """
    spoken = [word for word in words if word.kind == "said"]
    unwritten = []
    for word, replaces in heard.items():
        covered = sum(max(0.0, min(word.end, own.end) - max(word.start, own.start)) for own in spoken)
        has_room = not replaces or covered < _MOST_COVERED * (word.end - word.start)
        if word.kind == "said" and has_room:
            unwritten.append(word._replace(kind="unwritten"))
    for word in words:
        while unwritten and unwritten[0].start <= word.start:
            yield unwritten.pop(0)
        yield word._replace(end=min(word.end, unwritten[0].start)) if unwritten else word
    yield from unwritten


class Processor(NamedTuple):
    """Feature extractor and tokenizer of Whisper, under the names of transformers' processor."""

    feature_extractor: Any
    tokenizer: Any


def load_speech(name: str, observer: str, running: Running) -> tuple[Any, Processor, Unspoken]:
    """Load Whisper, its processor, and an observer with its learned probability.

    Args:
        name: folder or Hub name of the model.
        observer: folder of the observer.
        running: device and precision.

    Raises:
        CommandError: a folder is missing or of another kind, or the device cannot be used.
    """
    with load_errors(name):
        model, processor = load_whisper(name, running.dtype)
    with load_errors(observer):
        with_adapter(model, adapter_config(observer), observer)
        unspoken = Unspoken.load(observer) if (Path(observer) / TIMES_FILE).exists() else BY_NULL
    device: Any = choose_device(running)
    model.to(device).eval()
    log_model(name, model)
    return model, processor, unspoken


def load_whisper(name: str | Path, dtype: Any = None) -> tuple[Any, Processor]:
    """Load Whisper and its processor on the CPU.

    Raises:
        OSError, ValueError: see `load_whole`; or there is no feature extractor.
    """
    model, tokenizer = load_whole(AutoModelForSpeechSeq2Seq, name, dtype=dtype)
    with blamed(f"preprocessor_config.json in {name}"):
        return model, Processor(AutoFeatureExtractor.from_pretrained(name), tokenizer)
