"""Learn word times: an observer of Whisper, from speech whose words have times.

The observer learns, at each token of a word, the frames of the token; at the last token of the prompt, the frames of
pauses; and at words that were planted into the text, NULL.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from hf_attncal.adapters.observer_learning import Lesson, learn_observer
from hf_attncal.models.losses import IGNORE_INDEX

from .observed import ALARMS, Listener, Unspoken
from .sound import FRAMES, RATE, SpokenWindow, Word

_RUNS, _MOST_WORDS = 3, 5  # number of runs of planted words in a window, and the words of a run
_LEARNED_RUNS, _WORDS_PER_RUN = 6, 5  # most runs, and words for each: better than twice the speech
Text = list[tuple[str, Word | None]]  # words, and where they were said; None for planted ones


class PreparedWindow(NamedTuple):
    """Window of speech, ready to learn from.

    Args:
        encoded: states of the encoder.
        seconds: length of the audio.
        texts: two texts with planted words; the first is as it was said, unless it is learned.
    """

    encoded: Tensor
    seconds: float
    texts: tuple[Text, Text]


def learn_word_times(
    model: Any,
    processor: Any,
    windows: Sequence[SpokenWindow],
    held_out: Sequence[SpokenWindow],
    *,
    language: str | None = None,
    seed: int = 0,
    **learning: Any,
) -> tuple[Any, Unspoken, Lesson]:
    """Learn an observer of word times, and the probability that nobody said a word.

    Args:
        model: Whisper, on the device to use; it stays as it is.
        processor: processor of the model.
        windows: speech with the times of its words; ten minutes are enough.
        held_out: other speech, which chooses the head and the alarm.
        language: language of the speech. Default: None, the model detects it.
        seed: seed of the planted words and of learning.
        **learning: `places`, `epochs`, `learning_rate` and `adapter_name` of `learn_observer`.

    Returns:
        The model with its observer, the learned probability, and the lesson of `learn_observer`.

    Raises:
        ValueError: fewer than two windows on a side, or words outside of their window.
    """
    listener = Listener(model, processor, language, observing=False)
    rng = random.Random(seed)
    text = list(prepared(listener, windows, "windows", rng, learned=True))
    second = list(prepared(listener, held_out, "held_out", rng))
    adapted, lesson = learn_observer(
        model, _batches(listener, text), _batches(listener, second), seed=seed, **learning
    )
    listener = Listener(adapted, processor, language)
    unspoken = Unspoken.learn(*planted_evidence(listener, text))
    evidence, planted = planted_evidence(listener, second)
    alarm = float(np.quantile(unspoken.probabilities(evidence[~planted]), 1 - ALARMS))
    return adapted, Unspoken(unspoken.mean, unspoken.deviation, unspoken.weights, alarm), lesson


def with_planted(words: Sequence[Word], others: Sequence[Sequence[Word]], rng: random.Random, runs: int) -> Text:
    """Return a text with runs of two to five words of other windows."""
    text: Text = [(word.text, word) for word in words]
    for _ in range(runs):
        source = rng.choice(others)
        size = min(rng.randint(2, _MOST_WORDS), len(source))
        begin, place = rng.randrange(len(source) - size + 1), rng.randint(0, len(text))
        text[place:place] = [(word.text, None) for word in source[begin : begin + size]]
    return text


def planted_evidence(listener: Listener, windows: Sequence[PreparedWindow]) -> tuple[np.ndarray, np.ndarray]:
    """Return the evidence of the words of each window's second text, and which of them were planted."""
    evidence, planted = [], []
    for window in windows:
        text = window.texts[1]
        evidence.append(listener.observe(window.encoded, window.seconds, [word for word, _ in text]).evidence())
        planted += [said is None for _, said in text]
    return np.concatenate(evidence), np.array(planted)


def prepared(
    listener: Listener,
    windows: Sequence[SpokenWindow],
    name: str,
    rng: random.Random,
    encoded: Sequence[Tensor] | None = None,
    learned: bool = False,
) -> Iterator[PreparedWindow]:
    """Yield windows with planted words and the states of the encoder; `encoded` saves computing these.

    Args:
        listener, windows, name, rng: see `learn_word_times`.
        encoded: states of the encoder. Default: None, computed.
        learned: True to plant words into both texts, six runs at most. Default: False, three runs in the second.

    Raises:
        ValueError: fewer than two windows, no words, or words outside of their window; the message begins with `name`.
    """
    if len(windows) < 2 or not all(window.words for window in windows):
        raise ValueError(f"`{name}` must have two windows or more, each with words, got {len(windows)}.")
    for number, window in enumerate(windows):
        seconds = len(window.audio) / RATE
        for word in window.words:
            if not 0 <= word.start < word.end <= seconds + 1 / FRAMES:
                raise ValueError(
                    f"`{name}`: window {number} (counted from 0) has {seconds:.2f} seconds and {word.text!r} from "
                    f"{word.start} to {word.end}. Give times in seconds from the start of the window."
                )
        others = [other.words for other in windows if other is not window]
        states = listener.encode(window.audio) if encoded is None else encoded[number]
        runs = min(_LEARNED_RUNS, len(window.words) // _WORDS_PER_RUN) if learned else 0
        first, second = (with_planted(window.words, others, rng, count) for count in (runs, max(runs, _RUNS)))
        yield PreparedWindow(states, seconds, (first, second))


def _batches(listener: Listener, windows: Sequence[PreparedWindow]) -> Iterator[dict[str, Any]]:
    for window in windows:
        prompt = listener.prompt(window.encoded)
        for text in window.texts:
            ids, links = token_links(listener, text, window.seconds, window.encoded.shape[1])
            unseen = torch.zeros(len(prompt) - 2, links.shape[1])
            end = listener.model.generation_config.eos_token_id
            yield {
                "encoder_outputs": BaseModelOutput(window.encoded),
                "decoder_input_ids": torch.tensor([[*prompt, *ids]]),
                "labels": torch.tensor([[IGNORE_INDEX] * (len(prompt) - 2) + [prompt[-1], *ids, end]]),
                # The step that reads the last token is the one that predicts the end.
                "links": torch.cat([unseen, links, links[-1:]]).unsqueeze(0),
            }


def token_links(listener: Listener, text: Text, seconds: float, frames: int) -> tuple[list[int], Tensor]:
    """Return the tokens of a text, and the links of a pause and of each token to frames, (1 + T, `frames`).

    A token has its part of the word's time, by its characters.
    """
    ids, owners = listener.tokens([word for word, _ in text])
    sizes = np.array([max(1, len(listener.processor.tokenizer.decode([token]).strip())) for token in ids])
    links = torch.zeros(1 + len(ids), frames)
    for number, (_, said) in enumerate(text):
        if said is None:
            continue
        tokens = np.flatnonzero(owners == number)
        shares = np.append(0, sizes[tokens].cumsum()) / sizes[tokens].sum()
        bounds = np.round(FRAMES * (said.start + shares * (said.end - said.start))).astype(int)
        for token, start, end in zip(tokens, bounds[:-1], bounds[1:], strict=True):
            links[1 + token, start : max(end, start + 1)] = 1
    links[0, : round(seconds * FRAMES)] = 1
    links[0, links[1:].any(dim=0)] = 0
    return ids, links
