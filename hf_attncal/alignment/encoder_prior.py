"""What a pretrained encoder knows of two languages, under an aligner that has little text to count.

Words i and j of the two sides have states `h_i` and `g_j`, the means of their tokens in one layer, less the mean over
all words of their side, which says only which language it is. With the cosine `c_ij` of these and `t = TEMPERATURE`,

    f_ij = softmax_j(c_ij / t),  b_ij = softmax_i(c_ij / t),  e_ij = 2 f_ij b_ij / (f_ij + b_ij).

`belief.py` says how far e is believed: as far as it agrees with what the counts link. Where the words of two sentences
that are no translations of each other are as much alike (`known`), not at all (d = 0).

The states are those of Jalili Sabet et al. 2020 (SimAlign) and Dou and Neubig 2021; the factor is ours.
"""

import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel

from hf_attncal.data.languages import codes_of, codes_of_sides, set_languages
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.inference.files import file_beside
from hf_attncal.inference.loading import load_whole
from hf_attncal.inference.opening import bf16_is_fast
from hf_attncal.io.messages import LOG
from hf_attncal.layouts import AUTO_ENCODER, DEFAULT_ENCODER, WEIGHTS
from hf_attncal.models.loading import check_finite

from .belief import Belief, Witness
from .encoder_reader import EncoderReader, rows_in_file
from .sources import Words

TEMPERATURE = 0.07
_HEIGHT = 0.6  # of an encoder's layers that are run: the 7th of 12 is better than the 8th on every dev set
# Pairs that tell the means of the languages and whether the encoder knows them, and that are read at once.
PAIRS_MET = 512
_TOKENS = 2048  # of a batch of sentences
# Share of the words, beyond chance, whose partner is recognised, from which on the encoder is believed at all, wholly.
_UNKNOWN, _KNOWN = 0.02, 0.1
_SHARE = 0.5
LEARNED_FILE = Path(__file__).with_name("encoder_adapter.safetensors")
_LAYER, _PROBE = "layer", "probe"
_ALIKE = 0.9  # cosine of the weights that tell the encoder, between it and what it was learned for; 4 bits have 0.99


class EncoderPrior:
    """An encoder that helps a `WordAligner`.

    The means of the languages and what it is believed are learned from the first text that is read; make another for
    another pair of languages.

    Args:
        model: an encoder, or a model with one. Layers above the one that is read are taken out of it, and the others
            are put into `dtype`.
        tokenizer: its tokenizer.
        layer: 0 for the input of the first layer, n for the output of the nth; a negative one counts from the top.
            None: `default_layer`.
        languages: codes of source and target, see `EncoderReader`.
        dtype: None: bfloat16 where the processor multiplies it fast.

    Attributes:
        known: of each side, the share of the words whose partner is recognised beyond chance; None before any text.
        adapted: whether its weights are those that have learned from links.

    Raises:
        ValueError: see `EncoderReader`; also a layer that there is not.

    Warns:
        UserWarning: it does not know the languages of the text that it reads first.
    """

    def __init__(
        self,
        model,
        tokenizer,
        layer: int | None = None,
        languages: tuple[str | None, str | None] = (None, None),
        dtype: torch.dtype | None = None,
    ):
        self.reader = EncoderReader(model.eval(), tokenizer, languages)
        if dtype is None and model.device.type == "cpu" and bf16_is_fast():
            dtype = torch.bfloat16
        self.dtype = dtype or model.dtype
        self.layer = lowered(self.reader, default_layer(model) if layer is None else layer, dtype)
        self.adapted = False
        self.forget()

    def forget(self) -> None:
        """Be as one that has read no text yet."""
        self.known: tuple[float, float] | None = None
        self.belief = Belief()
        self._means: list[Tensor] = []
        self._remembered: dict[Words, np.ndarray] = {}

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = DEFAULT_ENCODER[0],
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        adapted: bool = True,
        languages: str | Sequence[str] | None = None,
    ) -> "EncoderPrior":
        """Load an encoder from a folder or the Hub; other arguments are those of `WordAligner.from_pretrained`.

        Args:
            adapted: change the weights of the default encoder as it has learned from links (`adapt_encoder`).
            languages: of the text, SOURCE-TARGET, if the tokenizer has codes of languages; others need none.

        Raises:
            OSError, ValueError: there is none, or see the class.
        """
        if name == AUTO_ENCODER:
            name = DEFAULT_ENCODER[0]
        if name == DEFAULT_ENCODER[0] and revision is None and not Path(name).is_dir():
            revision = DEFAULT_ENCODER[1]
        model, tokenizer = load_whole(
            AutoModel, name, finite=False, trust_remote_code=trust_remote_code, revision=revision
        )
        if languages is not None and codes_of(tokenizer):
            set_languages(None, tokenizer, languages)
        layer, codes = default_layer(model), codes_of_sides(tokenizer)
        changed = adapted and adapt_encoder(model.base_model, layer)
        sides = codes.get("source_language"), codes.get("target_language")
        made = cls(model.to(device), tokenizer, layer, sides, dtype)
        made.adapted = changed
        words = made.reader.encoder.get_input_embeddings()
        rows = rows_in_file(file_beside(name, WEIGHTS, revision), words, made.dtype)
        if rows is not None:
            made.reader.encoder.set_input_embeddings(rows)
        return made

    def remember(self, pairs: Sequence[Words]) -> list[np.ndarray]:
        """Read pairs, and keep what was read until others are remembered; returns as `cells`."""
        cells = self.cells(pairs)
        self._remembered = dict(zip(pairs, cells, strict=True))
        return cells

    def cells(self, pairs: Sequence[Words]) -> list[np.ndarray]:
        """Return e of each pair, (source words, target words) float16.

        Args:
            pairs: (source words, target words), tuples of any length.
        """
        found: list[np.ndarray | None] = [self._remembered.get(pair) for pair in pairs]
        new = [n for n, cells in enumerate(found) if cells is None and all(pairs[n])]
        read: dict[int, np.ndarray] = {}
        if new and not self._means:
            read = self._meet([pairs[n] for n in new], new)
        new = [n for n in new if n not in read]
        for start in range(0, len(new), PAIRS_MET):
            some = new[start : start + PAIRS_MET]
            states = [self._states([pairs[n][side] for n in some], side) for side in (0, 1)]
            read |= zip(some, map(_harmonic, *map(self._centred, states, (0, 1))), strict=True)
        return [
            read[n] if n in read else np.zeros((len(pair[0]), len(pair[1])), np.float16) if cells is None else cells
            for n, (pair, cells) in enumerate(zip(pairs, found, strict=True))
        ]

    def _meet(self, pairs: Sequence[Words], numbers: Sequence[int]) -> dict[int, np.ndarray]:
        """Learn the means from some pairs, evenly spread, and whether words are recognised; return their e."""
        chosen = range(0, len(pairs), -(-len(pairs) // PAIRS_MET))
        states = [self._states([pairs[n][side] for n in chosen], side) for side in (0, 1)]
        for side in states:
            total = sum((of_text.sum(dim=0, dtype=torch.float32) for of_text in side), torch.zeros(()))
            # A word or two have no mean of their own.
            self._means.append(total / (sum(map(len, side)) + 10))
        sources, targets = map(self._centred, states, (0, 1))
        own = list(map(_harmonic, sources, targets))
        order = sorted(range(len(own)), key=lambda n: own[n].shape)
        others = [_harmonic(sources[n], targets[other]) for n, other in pairwise(order)]
        if others:
            self.known = recognised([own[n] for n in order], others)
            beyond = (min(self.known) - _UNKNOWN) / (_KNOWN - _UNKNOWN)
            self.belief.strength = min(1.0, max(0.0, beyond))
            LOG.info("%s", self.told())
            if not self.belief.strength:
                warnings.warn(f"{self.told()}: the text is aligned without it.", stacklevel=2)
        return {numbers[n]: cells for n, cells in zip(chosen, own, strict=True)}

    @property
    def share(self) -> float:
        """Weight of the encoder in the mean of both."""
        return _SHARE * self.belief.trust

    def witness(self, pairs: Sequence[Words], sides: Sequence[WordTokens]) -> Witness:
        """Remember a text, and return what the encoder says of it; `sides` as of `Witness`."""
        return Witness(self.belief, self.remember(pairs), sides)

    def told(self) -> str:
        """Return in one line what the encoder knows of the text that it has met."""
        if self.known is None:
            return "the encoder has read too little to tell what it knows"
        source, target = (f"{share:.0%}" for share in self.known)
        how = "not at all" if not self.belief.strength else "in part" if self.belief.strength < 1 else "as it earns it"
        return (
            f"the encoder recognises the partners of {source} of the source words and of {target} of the target words "
            f"beyond chance, and is believed {how}"
        )

    def _centred(self, texts: Sequence[Tensor], side: int) -> Sequence[Tensor]:
        """Return states of a side without their mean, each of length 1; 0 for a word without tokens."""
        states = torch.cat(list(texts))
        states = (states.float() - self._means[side]) * (states != 0).any(dim=1, keepdim=True)
        return F.normalize(states, dim=1).split([len(text) for text in texts])

    @torch.no_grad()
    def _states(self, texts: Sequence[Sequence[str]], side: int) -> list[Tensor]:
        """Return the state of each word of each text, (words, size) float16; each different text is read once."""
        different = list(dict.fromkeys(texts))
        tokens = self.reader.tokenize([" ".join(text) for text in different], side)
        found: dict[Sequence[str], Tensor] = {}
        around = sum(map(len, self.reader.frames[side]))
        order = sorted(range(len(tokens)), key=lambda n: -len(tokens[n].ids))
        while order:
            longest = len(tokens[order[0]].ids) + around
            batch, order = order[: max(1, _TOKENS // longest)], order[max(1, _TOKENS // longest) :]
            some = [tokens[n] for n in batch]
            if len(some[0].ids):
                states = self.reader.states([one.ids for one in some if len(one.ids)], side)[self.layer].cpu()
            for row, (n, one) in enumerate(zip(batch, some, strict=True)):
                of_tokens = states[row, : len(one.ids)] if len(one.ids) else torch.zeros(0, 1)
                found[different[n]] = _word_means(of_tokens, one)
        size = max((states.shape[1] for states in found.values()), default=1)
        if not all(bool(states.isfinite().all()) for states in found.values()):
            raise ValueError("The states of the encoder are not finite: its checkpoint is damaged.")
        return [found[text] if found[text].shape[1] == size else torch.zeros(len(text), size) for text in texts]


def recognised(pairs: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the share of the words of each side whose partner is recognised beyond chance (Cohen's kappa).

    Args:
        pairs: e of translations. others: e of sentences that are no translations of each other.
    """
    best, words = np.zeros((2, 2)), np.zeros((2, 2))
    for kind, some in enumerate((pairs, others)):
        for cells in some:
            best[kind] += [cells.max(axis).sum(dtype=np.float64) for axis in (1, 0)]
            words[kind] += cells.shape
    share, chance = best / np.maximum(words, 1)
    return tuple(((share - chance) / np.maximum(1 - chance, 1e-9)).tolist())


def default_layer(model) -> int:
    """Return the layer to read: three fifths of the way up, or the top, which a decoder has been made to read."""
    if model.config.is_encoder_decoder:
        return -1
    return round(_HEIGHT * model.config.get_text_config().num_hidden_layers)


def lowered(reader: EncoderReader, layer: int, dtype: torch.dtype | None = None) -> int:
    """Take the layers above one out of an encoder, and put the others into a type; return the layer, from 0.

    The embeddings of the words stay where they are, in the file: only those of words that occur are read.

    Raises:
        ValueError: there is no such layer, or its weights are not finite.
    """
    count = reader.model.config.get_text_config().num_hidden_layers
    if not -count <= layer + (layer < 0) <= count:
        raise ValueError(f"`layer` must be from {-count - 1} to {count} of the encoder, got {layer}.")
    layer += (count + 1) * (layer < 0)
    encoder = reader.encoder
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            del module[max(layer, 1) :]  # what enters the first is told by the first
            break
    words = encoder.get_input_embeddings()
    for module in encoder.children() if dtype is not None else ():
        if module is words:
            continue
        if words not in module.modules():
            module.to(dtype)
            continue
        for part in module.children():
            if part is not words:
                part.to(dtype)
    if dtype is not None:
        words.register_forward_hook(lambda _, __, states: states.to(dtype))
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList):
            check_finite(module)
    return layer


def _harmonic(source: Tensor, target: Tensor) -> np.ndarray:
    """Return e of two sides of states of length 1, (source words, target words) float16."""
    scores = source @ target.mT / TEMPERATURE
    forward, backward = scores.softmax(dim=1), scores.softmax(dim=0)
    return (2 * forward * backward / (forward + backward).clamp(min=1e-30)).half().numpy()


def _word_means(states: Tensor, tokens: WordTokens) -> Tensor:
    """Return the mean state of the tokens of each word, (words, size) float16; 0 for a word without tokens."""
    inside = torch.from_numpy(tokens.word_ids != NO_WORD)
    words = torch.from_numpy(tokens.word_ids)[inside]
    total = torch.zeros(tokens.words, states.shape[1]).index_add_(0, words, states[inside].float())
    number = torch.bincount(words, minlength=tokens.words)
    return (total / number.clamp(min=1)[:, None]).half()


# ---- what the default encoder has learned of word alignment ----

# A small change of its weights, which comes with the package: `W' = W + B A` of each linear map of the layers that are
# read (LoRA, Hu et al. 2022), in 8 bits. `experiments/encoder_adapter.py` says what from: links that counts and the
# encoder itself gave to 31,928 pairs of German, Japanese and French with English, of Tatoeba, the Tanaka corpus and
# Europarl. Their terms let anybody use them, and the file's metadata names each with its licence. No link was drawn by
# a person.


def adapt_encoder(encoder, layer: int) -> bool:
    """Change the weights of an encoder in place, if it is the one that the file is for.

    Args:
        encoder: with all of its layers, in float32 and on the CPU.
        layer: which will be read.

    Returns:
        whether it was.
    """
    modules = dict(encoder.named_modules())
    with safe_open(LEARNED_FILE, "pt") as file:
        names, said = file.keys(), file.metadata()
        probe = modules.get(said[_PROBE])
        if int(said[_LAYER]) != layer or probe is None or not _alike(probe.weight, file.get_tensor(_PROBE).float()):
            return False
        for name in (name.removesuffix(".a") for name in names if name.endswith(".a")):
            a, b = (_exact(file, f"{name}.{half}") for half in "ab")
            weight = modules[name].weight
            weight.data.add_((b @ a).to(weight))
    return True


def halves(name: str, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Return what the file holds of a map: A (rank, inputs) and B (outputs, rank) in 8 bits, scaled by rank."""
    found: dict[str, Tensor] = {}
    for half, values, dim in (("a", a, 1), ("b", b, 0)):
        scale = values.abs().amax(dim=dim, keepdim=True).clamp(min=1e-12) / 127
        found |= {f"{name}.{half}": (values / scale).round().to(torch.int8), f"{name}.{half}.scale": scale.float()}
    return found


def _exact(file, name: str) -> Tensor:
    return file.get_tensor(name).float() * file.get_tensor(f"{name}.scale")


def _alike(weight: Tensor, probe: Tensor) -> bool:
    """Return whether the first row of a weight is the one that the file remembers."""
    row = weight[0].detach().float().cpu()
    return row.shape == probe.shape and float(F.cosine_similarity(row, probe, dim=0)) > _ALIKE
