"""One pass of an observer over the words of a window: the path of its tokens, and whether anybody said them.

The probability that nobody said a word is learned from words planted into spoken text.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from hf_attncal.inference.reading import observer_of
from hf_attncal.inference.seals import sealed, write_sealed
from hf_attncal.io.messages import silenced_libraries
from hf_attncal.layouts import TIMES_FILE
from hf_attncal.models.functional import token_rows

from .sound import FRAMES, RATE

EVIDENCE = ("null", "null of the word before", "null of the word after")  # log-odds
_FLOOR, _MIN_SCORE = 1e-9, 0.0025
_NEVER = -1e30
ALARMS = 0.01  # share of spoken words that are marked
_PENALTY = 1e-3


class Listener:
    """Whisper with an observer, and its processor.

    Args:
        model: Whisper with an active observer that has a NULL.
        processor: processor of the model.
        language: language of the speech, such as "de". Default: None, the model detects it.

    Raises:
        ValueError: the model is no Whisper, or has no such observer.
    """

    def __init__(self, model: Any, processor: Any, language: str | None = None, *, observing: bool = True) -> None:
        self.model = getattr(model, "get_base_model", lambda: model)()
        if self.model.config.model_type != "whisper":
            raise ValueError(f"`model` must be a Whisper, got {self.model.config.model_type!r}.")
        settings = observer_of(self.model)
        if observing and (settings is None or not settings.leaky):
            raise ValueError(
                "`model` has no observer with a NULL. Load one with `PeftModel.from_pretrained(model, folder)`; "
                "`learn_word_times` makes it."
            )
        self.shift = settings is not None and settings.guided_shift
        self.processor, self.language = processor, language
        self.longest = processor.feature_extractor.chunk_length

    @torch.no_grad()
    def encode(self, audio: np.ndarray) -> Tensor:
        """Return the states of the encoder for the samples of a window, (1, S, d_model)."""
        features = self.processor.feature_extractor(audio, sampling_rate=RATE, return_tensors="pt").input_features
        features = features.to(self.model.device, self.model.dtype)
        return self.model.get_encoder()(features).last_hidden_state

    def transcribe(self, encoded: Tensor) -> list[str]:
        """Transcribe a window; return its words."""
        options = {} if self.language is None else {"language": self.language}
        with silenced_libraries():  # Whisper's own `generate` logs that it uses deprecated arguments
            ids = self.model.generate(encoder_outputs=BaseModelOutput(encoded), **options)
        return self.processor.tokenizer.decode(ids[0], skip_special_tokens=True).split()

    def prompt(self, encoded: Tensor) -> list[int]:
        """Return the tokens before the text: the start, language and task of a multilingual model, no timestamps."""
        config = self.model.generation_config
        prompt = [config.decoder_start_token_id]
        if getattr(config, "is_multilingual", False):
            if self.language is None:
                prompt.append(int(self.model.detect_language(encoder_outputs=BaseModelOutput(encoded))[0]))
            else:
                prompt.append(self.processor.tokenizer.convert_tokens_to_ids(f"<|{self.language}|>"))
            prompt.append(config.task_to_id["transcribe"])
        return [*prompt, config.no_timestamps_token_id]

    def tokens(self, words: Sequence[str]) -> tuple[list[int], np.ndarray]:
        """Return the tokens of words, and the number of the word of each."""
        ids = [self.processor.tokenizer.encode(f" {word}", add_special_tokens=False) for word in words]
        return [token for word in ids for token in word], np.repeat(np.arange(len(ids)), [len(word) for word in ids])

    @torch.no_grad()
    def observe(self, encoded: Tensor, seconds: float, words: Sequence[str]) -> "Observation":
        """Return the observation of a window, given its words.

        Args:
            encoded: states of `encode`.
            seconds: length of the audio.
            words: words, at least one.

        Raises:
            ValueError: there are more tokens than the model has positions.
        """
        prompt = self.prompt(encoded)
        ids, owners = self.tokens(words)
        inputs, limit = torch.tensor([[*prompt, *ids]]), self.model.config.max_target_positions
        if inputs.shape[1] > limit:
            raise ValueError(
                f"The text has {inputs.shape[1]} tokens for a window of {seconds:.0f} seconds, and the model takes at "
                f"most {limit}: the text does not fit the audio."
            )
        outputs = self.model(
            encoder_outputs=BaseModelOutput(encoded),
            decoder_input_ids=inputs.to(self.model.device),
            output_attention_details=True,
        )
        columns = torch.cat([outputs.guided_null.unsqueeze(-1), outputs.guided_attention], dim=-1)[0]
        rows = token_rows(columns, self.shift)[len(prompt) - 2 :].double().cpu().numpy()
        rows = rows[: len(ids) + 1]
        frames = max(1, min(rows.shape[1] - 1, round(seconds * FRAMES)))
        return Observation(rows[1:, 1 : frames + 1], rows[0, 1 : frames + 1], rows[1:, 0], owners)


class Observation(NamedTuple):
    """Observation of the T tokens of a window of S frames.

    Args:
        attention: weights of the frames, (T, S).
        pause: weights of the frames in the row of a pause, (S,).
        null: weight of NULL, (T,).
        owners: number of the word of each token, (T,).
    """

    attention: np.ndarray
    pause: np.ndarray
    null: np.ndarray
    owners: np.ndarray

    def evidence(self) -> np.ndarray:
        """Return the evidence that words were not said, (words, `EVIDENCE`); unspoken words are adjacent."""
        odds = np.log(self.null + _FLOOR) - np.log(1 + _FLOOR - self.null)
        own = np.bincount(self.owners, odds) / np.bincount(self.owners)
        around = np.pad(own, 1, mode="edge")
        return np.column_stack([own, around[:-2], around[2:]])

    def spans(self, spoken: np.ndarray) -> np.ndarray:
        """Return start and end of the words that were said in seconds, (words, 2), by the best path.

        Args:
            spoken: True for the words that are on the path; the others end where the word before them ends, (words,).

        Raises:
            ValueError: there are more tokens than frames.
        """
        on_path = spoken[self.owners]
        spans, end = np.zeros((len(spoken), 2)), 0.0
        owners, frames = self.owners[on_path], np.zeros((0, 2))
        if on_path.any():
            scores = path_scores(np.vstack([self.pause, self.attention[on_path]]))
            frames = monotone_path(scores[1:], scores[0], np.diff(owners, prepend=-1) > 0) / FRAMES
        for word, is_spoken in enumerate(spoken):
            own = frames[owners == word]
            spans[word] = (own[0, 0], own[-1, 1]) if is_spoken else (end, end)
            end = spans[word, 1]
        return spans


def path_scores(weights: np.ndarray) -> np.ndarray:
    """Return the scores of the rows in each frame, `log((n_t a_ts + e) / sum_t' (n_t' a_t's + e))`, (T, S).

    The weights of a row are scaled by the number of frames that it attends to, `n_t = exp(entropy of a_t)`, so that a
    long pause and a short token have the same score where each is certain.

    Args:
        weights: weights of the frames in each row, (T, S).
    """
    weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), _FLOOR)
    sizes = np.exp(-(weights * np.log(weights + _FLOOR)).sum(axis=1, keepdims=True))
    scaled = sizes * weights + _MIN_SCORE
    return np.log(scaled / scaled.sum(axis=0))


def monotone_path(tokens: np.ndarray, pause: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the first frame of each token and the one after its last, (T, 2), on the best path.

    Each token has one frame or more, in the order of the text. Between words, and at both ends, frames may be a pause.
    The path has the largest sum of scores: `max over paths of the sum over frames s of tokens[t(s), s] or pause[s]`.

    Args:
        tokens: scores of the tokens, (T, S).
        pause: scores of a pause, (S,).
        first: True for the first token of a word, (T,).

    Raises:
        ValueError: there are more tokens than frames.
    """
    count, frames = tokens.shape
    if count > frames:
        raise ValueError(
            f"The text has {count} tokens, more than the {frames} frames of the audio: it does not fit the audio."
        )
    # A column holds the best sums of the paths that are, in this frame, in token t, or in the pause before token t.
    spoken, silent = np.full(count, _NEVER), np.full(count + 1, _NEVER)
    spoken[0], silent[0] = tokens[0, 0], pause[0]
    may_pause = np.append(first, True)
    entered = np.zeros((frames, count), np.int8)  # 1: from the token before, 2: from the pause before it
    stopped = np.zeros((frames, count + 1), bool)  # from the token before
    for frame in range(1, frames):
        before = np.append(_NEVER, spoken)
        choices = np.stack([spoken, before[:-1], np.where(first, silent[:-1], _NEVER)])
        rests = np.stack([silent, np.where(may_pause, before, _NEVER)])
        entered[frame], stopped[frame] = choices.argmax(axis=0), rests.argmax(axis=0)
        spoken, silent = choices.max(axis=0) + tokens[:, frame], rests.max(axis=0) + pause[frame]
    spans = np.zeros((count, 2), int)
    token, in_pause = (count, True) if silent[-1] > spoken[-1] else (count - 1, False)
    if not in_pause:
        spans[token, 1] = frames
    for frame in range(frames - 1, 0, -1):
        if in_pause and stopped[frame, token]:
            token, in_pause = token - 1, False
            spans[token, 1] = frame
        elif not in_pause and entered[frame, token]:
            spans[token, 0] = frame
            in_pause = entered[frame, token] == 2
            if not in_pause:
                token -= 1
                spans[token, 1] = frame
    return spans


# ---- words that nobody said ----


@dataclass(frozen=True)
class Unspoken:
    """Logistic regression from the evidence of `Observation.evidence` to the probability that nobody said a word.

    Args:
        mean, deviation: mean and standard deviation of the evidence.
        weights: bias and weights of the standardised evidence.
        alarm: probability above which a word is marked; 1 in 100 spoken words of held-out speech exceed it.
    """

    mean: Sequence[float]
    deviation: Sequence[float]
    weights: Sequence[float]
    alarm: float = 0.5

    @classmethod
    def learn(cls, evidence: np.ndarray, planted: np.ndarray) -> "Unspoken":
        """Learn from the evidence of words, (words, `EVIDENCE`), and which of them were planted, (words,)."""
        mean, deviation = evidence.mean(axis=0), evidence.std(axis=0) + 1e-6
        values, truths = torch.from_numpy((evidence - mean) / deviation), torch.from_numpy(planted).double()
        weights = torch.zeros(values.shape[1] + 1, dtype=torch.double, requires_grad=True)
        optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            odds = values @ weights[1:] + weights[0]
            entropy = torch.nn.functional.binary_cross_entropy_with_logits(odds, truths)
            total = entropy + _PENALTY * weights[1:].square().sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(loss)
        return cls(mean.tolist(), deviation.tolist(), weights.tolist())

    def probabilities(self, evidence: np.ndarray) -> np.ndarray:
        """Return the probability of each word that nobody said it, (words,)."""
        odds = (evidence - self.mean) / self.deviation @ np.array(self.weights[1:]) + self.weights[0]
        return 1 / (1 + np.exp(-np.clip(odds, -30, 30)))

    def save(self, folder: str | Path) -> None:
        """Write the file into the folder of the observer."""
        write_sealed(asdict(self), Path(folder) / TIMES_FILE)

    @classmethod
    def load(cls, folder: str | Path) -> "Unspoken":
        """Read the file from the folder of the observer.

        Raises:
            ValueError: the file is missing or was changed, or belongs to another observer.
        """
        with sealed(Path(folder) / TIMES_FILE) as values:
            loaded = cls(**values)
            if len(loaded.weights) != len(EVIDENCE) + 1 or len(loaded.mean) != len(EVIDENCE):
                raise ValueError(f"`weights` must have {len(EVIDENCE) + 1} values, got {len(loaded.weights)}")
            return loaded


BY_NULL = Unspoken((0, 0, 0), (1, 1, 1), (0, 1, 0, 0))  # the weight of NULL, in place of a learned probability
