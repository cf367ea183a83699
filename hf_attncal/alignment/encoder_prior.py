"""A pretrained encoder that helps an aligner with little text to count.

Words i and j of the two sides have states `h_i` and `g_j`: the means of their tokens in one layer, minus the mean over
all words of their side, which only represents the language. With the cosine `c_ij` of these and `t = TEMPERATURE`,

    f_ij = softmax_j(c_ij / t),  b_ij = softmax_i(c_ij / t),  e_ij = 2 f_ij b_ij / (f_ij + b_ij).

`likelihood_ratio.py` learns the weight of e from its agreement with the links of the counts. The strength d is 0 if
translations are no more similar than mismatched sentences (`known`).

The states follow SimAlign (Jalili Sabet et al. 2020) and Dou and Neubig 2021; the weight is ours.
"""

import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

from hf_attncal.data.segmentation import characters
from hf_attncal.data.word_tokens import tokenize_words
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.io.messages import LOG

from .encoder_reader import EncoderLayer
from .likelihood_ratio import EncoderFactors, LikelihoodRatio
from .sources import Words
from .token_vectors import TokenVectors

TEMPERATURE = 0.07
# Maximum number of pairs to learn the statistics of the languages from, and to read at once.
SAMPLE_PAIRS = 512
_BATCH_TOKENS = 2048
# Shares of words recognised beyond chance at which the strength d starts to rise from 0, and reaches 1.
_MIN_RECOGNISED, _ENOUGH_RECOGNISED = 0.02, 0.1
_MAX_SHARE = 0.5
_MAX_CHARACTERS = 200  # a longer word, such as an image in base64, is read up to here
_MAX_CAPITALS = 0.75  # share of capitals above which a sentence is lower-cased
LEARNED_FILE = Path(__file__).with_name("encoder_adapter.safetensors")
_LAYER, _PROBE = "layer", "probe"
_MIN_COSINE = 0.9  # between the encoder's probe weights and those in the file; 0.99 after 4-bit quantisation


class EncoderPrior(EncoderLayer):
    """Pretrained encoder that helps a `WordAligner`; arguments and attributes as for `EncoderLayer`.

    The means of the languages and the weight of the encoder are learned from the first text; use a new object for
    other languages.

    Attributes:
        known: Share of words recognised beyond chance, per side; None before the first text.

    Warns:
        UserWarning: an encoder that does not cover the languages of the first text.
    """

    def __init__(self, model, tokenizer, layer: int | None = None, dtype: torch.dtype | None = None):
        super().__init__(model, tokenizer, layer, dtype)
        self.forget()

    @staticmethod
    def adapt(encoder, layer: int) -> bool:
        return adapt_encoder(encoder, layer)

    def forget(self) -> None:
        """Forget the statistics of the last text."""
        self.recognised_shares: tuple[float, float] | None = None
        self.likelihood = LikelihoodRatio()
        self._means: list[Tensor] = []
        self._cache: dict[Words, np.ndarray] = {}

    def remember(self, pairs: Sequence[Words], vectors: TokenVectors | None = None) -> list[np.ndarray]:
        """Return `cells` of pairs, and replace the cache by them."""
        cells = self.cells(pairs, vectors)
        self._cache = dict(zip(pairs, cells, strict=True))
        return cells

    def cells(self, pairs: Sequence[Words], vectors: TokenVectors | None = None) -> list[np.ndarray]:
        """Return e of each pair, (source words, target words) float16.

        Args:
            pairs: (source words, target words), tuples of any length.
            vectors: Sums to add the states of the pairs to that are not in the cache. Default: None.
        """
        computed = {n: cells for n, pair in enumerate(pairs) if (cells := self._cache.get(pair)) is not None}
        new = [n for n, pair in enumerate(pairs) if n not in computed and all(pair)]
        if new and not self._means:
            computed |= self._learn_statistics([pairs[n] for n in new], new, vectors)
        new = [n for n in new if n not in computed]
        for start in range(0, len(new), SAMPLE_PAIRS):
            batch = new[start : start + SAMPLE_PAIRS]
            states = [self._states([pairs[n][side] for n in batch]) for side in (0, 1)]
            sources, targets = map(self._centred, states, (0, 1))
            if vectors is not None:
                vectors.add(batch, sources, targets)
            computed |= zip(batch, map(_harmonic, sources, targets), strict=True)
        return [
            computed[n] if n in computed else np.zeros((len(source), len(target)), np.float16)
            for n, (source, target) in enumerate(pairs)
        ]

    def _learn_statistics(
        self, pairs: Sequence[Words], numbers: Sequence[int], vectors: TokenVectors | None
    ) -> dict[int, np.ndarray]:
        """Learn means and recognition from a sample of pairs, evenly spread; return the cells of the sample."""
        chosen = range(0, len(pairs), -(-len(pairs) // SAMPLE_PAIRS))
        states = [self._states([pairs[n][side] for n in chosen]) for side in (0, 1)]
        for side in states:
            total = sum((of_text.sum(dim=0, dtype=torch.float32) for of_text in side), torch.zeros(()))
            # The constant keeps the mean of a few words near 0.
            self._means.append(total / (sum(map(len, side)) + 10))
        sources, targets = map(self._centred, states, (0, 1))
        if vectors is not None:
            vectors.add([numbers[n] for n in chosen], sources, targets)
        own = list(map(_harmonic, sources, targets))
        order = sorted(range(len(own)), key=lambda n: own[n].shape)
        mismatched = [
            _harmonic(sources[n], targets[other])
            for n, other in pairwise(order)
            # Versions of one sentence would look as if chance recognised it.
            if all(mine != theirs for mine, theirs in zip(pairs[chosen[n]], pairs[chosen[other]], strict=True))
        ]
        if mismatched:
            self.recognised_shares = recognised([own[n] for n in order], mismatched)
            strength = (min(self.recognised_shares) - _MIN_RECOGNISED) / (_ENOUGH_RECOGNISED - _MIN_RECOGNISED)
            self.likelihood.strength = min(1.0, max(0.0, strength))
            LOG.info("%s", self.summary())
            if not self.likelihood.strength:
                warnings.warn(
                    f"{self.summary()}: the text is aligned without it. Either the encoder does not cover a language, "
                    "or the lines are not translations of each other, or their words are not separated.",
                    stacklevel=2,
                )
        return {numbers[n]: cells for n, cells in zip(chosen, own, strict=True)}

    def pieces(self, run: str) -> list[str]:
        """Cut a run of letters without spaces into the pieces of the tokenizer, which are words of frequent text."""
        backend = getattr(self.reader.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return characters(run)
        starts = sorted({0, *(start for start, _ in backend.encode(run, add_special_tokens=False).offsets)})
        return [run[start:stop] for start, stop in pairwise([*starts, len(run)]) if start < stop]

    @property
    def share(self) -> float:
        """Weight of the encoder in the mean with the model."""
        return _MAX_SHARE * self.likelihood.trust

    def factors(
        self, pairs: Sequence[Words], sides: Sequence[WordTokens], vocabulary: int | None = None
    ) -> EncoderFactors:
        """Read and cache a text, and return its emission factors.

        Args:
            pairs: Words of each pair.
            sides: Tokens of each pair, see `EncoderFactors`.
            vocabulary: Number of token ids, to gather their vectors as well.
        """
        vectors = None if vocabulary is None else TokenVectors(sides, vocabulary)
        cells = self.remember(pairs, vectors)
        return EncoderFactors(self.likelihood, cells, sides, vectors if self.likelihood.strength else None)

    def summary(self) -> str:
        """Return one line about the words that the encoder recognises."""
        if self.recognised_shares is None:
            return "the encoder has read too little text to be assessed"
        source, target = (f"{share:.0%}" for share in self.recognised_shares)
        strength = self.likelihood.strength
        use = "not used" if not strength else "used with less weight" if strength < 1 else "used"
        return (
            f"the encoder recognises {source} of the source words and {target} of the target words beyond chance, "
            f"and is {use}"
        )

    def _centred(self, texts: Sequence[Tensor], side: int) -> Sequence[Tensor]:
        """Return the states of a side without their mean, normalised to length 1; 0 for a word without tokens."""
        states = torch.cat(list(texts))
        states = (states.float() - self._means[side]) * (states != 0).any(dim=1, keepdim=True)
        return F.normalize(states, dim=1).split([len(text) for text in texts])

    @torch.no_grad()
    def _states(self, texts: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return the state of each word of each text, (words, size) float16; repeated texts are read once."""
        unique = list(dict.fromkeys(texts))
        tokens = tokenize_words(self.reader.tokenizer, list(map(_readable, unique)), special_tokens=False)
        read = self.reader.states_by_length([of_text.ids for of_text in tokens], self.layer, _BATCH_TOKENS)
        states = {unique[n]: _word_means(of_text, tokens[n]) for n, of_text in read}
        size = max((of_text.shape[1] for of_text in states.values()), default=1)
        if not all(bool(of_text.isfinite().all()) for of_text in states.values()):
            raise ValueError(
                "The states of the encoder are not finite, so its checkpoint is damaged. Download it again."
            )
        return [states[text] if states[text].shape[1] == size else torch.zeros(len(text), size) for text in texts]


def _readable(words: Sequence[str]) -> str:
    """Return a sentence as an encoder reads it: mostly capitals in lower case, very long words truncated."""
    text = " ".join(word[:_MAX_CHARACTERS] for word in words)
    capitals, small = (sum(map(test, text)) for test in (str.isupper, str.islower))
    return text.lower() if capitals > _MAX_CAPITALS * (capitals + small) else text


def recognised(pairs: Sequence[np.ndarray], mismatched: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the share of words recognised beyond chance, per side (Cohen's kappa).

    Args:
        pairs: e of translations.
        mismatched: e of sentences that are not translations of each other.
    """
    best, words = np.zeros((2, 2)), np.zeros((2, 2))
    for kind, of_kind in enumerate((pairs, mismatched)):
        for cells in of_kind:
            best[kind] += [cells.max(axis).sum(dtype=np.float64) for axis in (1, 0)]
            words[kind] += cells.shape
    share, chance = best / np.maximum(words, 1)
    return tuple(((share - chance) / np.maximum(1 - chance, 1e-9)).tolist())


def _harmonic(source: Tensor, target: Tensor) -> np.ndarray:
    """Return e from the normalised states of both sides, (source words, target words) float16."""
    scores = source @ target.mT / TEMPERATURE
    forward, backward = scores.softmax(dim=1), scores.softmax(dim=0)
    return (2 * forward * backward / (forward + backward).clamp(min=1e-30)).half().numpy()


def _word_means(states: Tensor, tokens: WordTokens) -> Tensor:
    """Return the mean token state of each word, (words, size) float16; 0 for a word without tokens."""
    inside = torch.from_numpy(tokens.word_ids != NO_WORD)
    words = torch.from_numpy(tokens.word_ids)[inside]
    total = torch.zeros(tokens.words, states.shape[1]).index_add_(0, words, states[inside].float())
    number = torch.bincount(words, minlength=tokens.words)
    return (total / number.clamp(min=1)[:, None]).half()


# ---- adapter of the default encoder ----

# A LoRA adapter (Hu et al. 2022) for word alignment comes with the package: `W' = W + B A` for each linear map of the
# layers that are read, in 8 bits. `experiments/encoder_adapter.py` trained it on automatic links, from counts and the
# encoder itself, of 31,928 pairs of German, Japanese and French with English from Tatoeba, the Tanaka corpus and
# Europarl. Their licences are in the file's metadata.


def adapt_encoder(encoder, layer: int) -> bool:
    """Apply the adapter to the default encoder, in place.

    Args:
        encoder: Encoder with all of its layers, in float32 on the CPU.
        layer: Layer that will be read.

    Returns:
        True if it is the default encoder, False if nothing changed.
    """
    modules = dict(encoder.named_modules())
    with safe_open(LEARNED_FILE, "pt") as file:
        names, metadata = file.keys(), file.metadata()
        probe = modules.get(metadata[_PROBE])
        if (
            int(metadata[_LAYER]) != layer
            or probe is None
            or not _alike(probe.weight, file.get_tensor(_PROBE).float())
        ):
            return False
        for name in (name.removesuffix(".a") for name in names if name.endswith(".a")):
            a, b = (_exact(file, f"{name}.{half}") for half in "ab")
            weight = modules[name].weight
            weight.data.add_((b @ a).to(weight))
    return True


def halves(name: str, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Quantise A (rank, inputs) and B (outputs, rank) of a map to 8 bits, with a scale per rank."""
    tensors: dict[str, Tensor] = {}
    for half, values, dim in (("a", a, 1), ("b", b, 0)):
        scale = values.abs().amax(dim=dim, keepdim=True).clamp(min=1e-12) / 127
        tensors |= {f"{name}.{half}": (values / scale).round().to(torch.int8), f"{name}.{half}.scale": scale.float()}
    return tensors


def _exact(file, name: str) -> Tensor:
    return file.get_tensor(name).float() * file.get_tensor(f"{name}.scale")


def _alike(weight: Tensor, probe: Tensor) -> bool:
    """Return True if the first row of a weight is similar to the one in the file."""
    row = weight[0].detach().float().cpu()
    return row.shape == probe.shape and float(F.cosine_similarity(row, probe, dim=0)) > _MIN_COSINE
