"""Word alignment from the cross-attention of any encoder-decoder of transformers, stock or ours.

The model reads the source, is given the target (teacher forcing), and each target token is aligned with what a decoder
step attended to. With labels y_0 ... y_n-1 (end of sentence included) and decoder inputs start, y_0 ... y_n-2, step t
has y_t as its output and y_t-1 as its input. Two steps may speak for y_t:

- Naive-Att: step t, where y_t is the output. The model does not know y_t yet.
- Shift-Att (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation"): step t + 1, where
  y_t is the input.

Which layer and heads align best differs from model to model: `select_attention` finds out on annotated pairs.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from difflib import SequenceMatcher
from pathlib import Path

import torch
from torch import Tensor

from hf_attncal.analysis.corpus import layer_contributions
from hf_attncal.data.pharaoh import GoldAlignment, check_index_base
from hf_attncal.data.words import subword_word_ids
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate
from hf_attncal.models.cross_attention import calibrated_layers
from hf_attncal.models.objective import shift_labels

from .links import argmax_links, word_attention_stack

SETTINGS_FILE = "alignment.json"  # beside the weights of a checkpoint
# What of a cross-attention is read: the weights that are used, or what each token contributes (Lu et al., eq. 6).
WEIGHTS = ("attention", "contribution")
_IGNORE_INDEX = -100


# ---- settings ----


@dataclass(frozen=True)
class Seq2SeqAttention:
    """Which attention of an encoder-decoder is its word alignment.

    Args:
        layer: decoder layer from 0; a negative one counts from the top.
        heads: the heads that are averaged, from 0; None for all.
        shift: Shift-Att if True, Naive-Att if False.
        source_prefix: what the model wants in front of every source (">>deu<< ", "translate English to German: ").
        weights: `"attention"`, or `"contribution"` (Lu et al., eq. 6) for a model or adapter with `calibration`, whose
            masks say what each source token contributes.

    Raises:
        ValueError: a value of the wrong kind, no head, a negative head, or a head named twice.
    """

    layer: int
    heads: tuple[int, ...] | None = None
    shift: bool = True
    source_prefix: str = ""
    weights: str = "attention"

    def __post_init__(self):
        check_weights(self.weights)
        if not _is_index(self.layer):
            raise ValueError(f"`layer` must be a whole number, got {self.layer!r}.")
        if not isinstance(self.shift, bool):
            raise ValueError(f"`shift` must be True or False, got {self.shift!r}.")
        if not isinstance(self.source_prefix, str):
            raise ValueError(f"`source_prefix` must be text, got {self.source_prefix!r}.")
        if self.heads is not None:
            heads = self.heads if isinstance(self.heads, tuple | list) else ()
            if not heads or not all(_is_index(h) and h >= 0 for h in heads) or len(set(heads)) < len(heads):
                raise ValueError(
                    "`heads` must be different head numbers from 0, at least one, or None for all, got "
                    f"{self.heads!r}."
                )
            object.__setattr__(self, "heads", tuple(heads))

    @classmethod
    def default(cls, layers: int) -> "Seq2SeqAttention":
        """What to try on a decoder of `layers` layers about which nothing is known.

        Shift-Att on the average of all heads in the last layer of the lower half: the third of six, as in Chen et al.
        """
        return cls(layer=max(0, layers // 2 - 1))

    def check(self, layers: int, heads: int) -> None:
        """Raises ValueError unless a decoder of `layers` layers with `heads` heads has this layer and these heads."""
        if not -layers <= self.layer < layers:
            raise ValueError(
                f"`layer` must be from {-layers} to {layers - 1} (the decoder has {layers} layers), got {self.layer}."
            )
        if self.heads is not None and max(self.heads) >= heads:
            raise ValueError(
                f"`heads` must be from 0 to {heads - 1} (each layer has {heads} heads), got {self.heads}."
            )

    def pick(self, layers: Sequence[Tensor | None]) -> Tensor:
        """The average of the chosen heads of the chosen layer: layers of (..., heads, steps, source) -> (..., steps,
        source). Raises ValueError where there is no such layer or head, or the layer has no contributions (None)."""
        present = {number: layer for number, layer in enumerate(layers) if layer is not None}
        self.check(len(layers), next(iter(present.values())).shape[-3])
        layer = layers[self.layer]
        if layer is None:
            raise ValueError(
                f"`layer` must be one with masks, {list(present)}, to read contributions, got {self.layer}: the "
                "adapter leaves the others as they are."
            )
        return (layer if self.heads is None else layer[..., list(self.heads), :, :]).mean(dim=-3)

    def to_dict(self) -> dict:
        """Plain data, for JSON."""
        heads = None if self.heads is None else list(self.heads)
        return asdict(self) | {"heads": heads}

    @classmethod
    def from_dict(cls, values: dict) -> "Seq2SeqAttention":
        """The settings that `to_dict` gave.

        Raises:
            ValueError: an unknown key, no `layer`, or a wrong value.
        """
        known = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or "layer" not in values or not set(values) <= known:
            raise ValueError(
                f"Alignment settings must have the key `layer` and no keys but {sorted(known)}: {values!r}"
            )
        return cls(**values)

    def save(self, folder: str | Path) -> Path:
        """Write the settings beside the checkpoint in `folder`; returns the path of the file."""
        path = Path(folder) / SETTINGS_FILE
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: str | Path | None) -> "Seq2SeqAttention | None":
        """The settings saved in `folder`; None without a folder, or where it holds none.

        Raises:
            ValueError: the file does not hold settings; the message names it.
        """
        path = None if folder is None else Path(folder) / SETTINGS_FILE
        if path is None or not path.is_file():
            return None
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def check_weights(weights: object) -> None:
    """Raises ValueError unless `weights` is one of `WEIGHTS`."""
    if weights not in WEIGHTS:
        raise ValueError(f"`weights` must be one of {WEIGHTS}, got {weights!r}.")


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# ---- subwords and their words ----


@dataclass(frozen=True)
class WordTokens:
    """A tokenised sentence: `ids` with special tokens, the word of each (None for a special token), all `words`."""

    ids: list[int]
    word_ids: list[int | None]
    words: int


def tokenize_words(tokenizer, texts: Sequence[str], target: bool = False, prefix: str = "") -> list[WordTokens]:
    """Tokens of each text and the whitespace-separated word that each token belongs to.

    A fast tokenizer tells by character offsets. A slow one (Marian's SentencePiece) has none: its words are tokenised
    one by one, which almost always gives the tokens of the sentence. Where it does not, the two token sequences are
    matched, and the tokens between two matches are shared out in proportion.

    Args:
        tokenizer: of the model.
        texts: sentences.
        target: tokenise as target text (`text_target`), for tokenizers whose two languages differ.
        prefix: put in front of each text; its tokens belong to no word.
    """
    if not texts:
        return []
    whole = [prefix + text for text in texts]
    skipped = len((prefix + "x").split()) - 1  # words of the prefix alone; "x" tells whether it ends in white space
    if tokenizer.is_fast:
        encoded = _call(tokenizer, whole, target, return_offsets_mapping=True)
        ids = encoded["input_ids"]
        word_ids = [subword_word_ids(*pair) for pair in zip(whole, encoded["offset_mapping"], strict=True)]
    else:
        ids = _call(tokenizer, whole, target)["input_ids"]
        word_ids = _word_ids_without_offsets(tokenizer, whole, ids, target)
    return [
        WordTokens(
            ids=list(tokens),
            word_ids=[None if word is None or word < skipped else word - skipped for word in words],
            words=len(text.split()),
        )
        for text, tokens, words in zip(texts, ids, word_ids, strict=True)
    ]


def _call(tokenizer, texts: list[str], target: bool, **options) -> dict:
    return tokenizer(**{"text_target" if target else "text": texts}, verbose=False, **options)


def _word_ids_without_offsets(
    tokenizer, texts: list[str], ids: list[list[int]], target: bool
) -> list[list[int | None]]:
    words = sorted({word for text in texts for word in text.split()})
    alone = _call(tokenizer, words, target, add_special_tokens=False)["input_ids"] if words else []
    word_tokens = dict(zip(words, alone, strict=True))
    plain = _call(tokenizer, texts, target, add_special_tokens=False)["input_ids"]
    result = []
    for text, tokens, inner in zip(texts, ids, plain, strict=True):
        expected = [(token, n) for n, word in enumerate(text.split()) for token in word_tokens[word]]
        # Special tokens surround the others: find where those begin.
        start = next(n for n in range(len(tokens) - len(inner) + 1) if tokens[n : n + len(inner)] == inner)
        found = _matched_words([token for token, _ in expected], [word for _, word in expected], inner)
        result.append([None] * start + found + [None] * (len(tokens) - start - len(inner)))
    return result


def _matched_words(expected: list[int], words: list[int], tokens: list[int]) -> list[int | None]:
    """The word of each of `tokens`, where the words on their own gave the tokens `expected` of `words`."""
    if expected == tokens:
        return list(words)
    result: list[int | None] = []
    for _, first, last, begin, end in SequenceMatcher(None, expected, tokens, autojunk=False).get_opcodes():
        for n in range(end - begin):
            place = min(first + n * (last - first) // (end - begin), len(words) - 1)
            result.append(words[place] if words else None)
    return result


# ---- teacher-forced attention ----


def teacher_forced_attention(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    batch_size: int = 32,
    source_prefix: str = "",
    weights: str = "attention",
) -> list[Tensor]:
    """Cross-attention of every layer and head while the model is given the targets.

    Args:
        model: an encoder-decoder of transformers, on the device to use. It is put into evaluation mode and, where its
            kernel does not form weights, to eager attention; and back.
        tokenizer: its tokenizer.
        sources: source sentences.
        targets: their translations.
        batch_size: most pairs at once. Pairs are batched by length.
        source_prefix, weights: see `Seq2SeqAttention`.

    Returns:
        For every pair (layers, heads, steps, source tokens) on the CPU, without padding. Step t predicts target token
        t; see `token_rows`. Empty where a side has no word; contributions are 0 in layers without masks. For many
        pairs this is a lot of memory: `seq2seq_weights` keeps only what it needs.

    Raises:
        ValueError: unequal numbers of sources and targets, a pair with more tokens than the model has positions (the
            message names its index), a model that returns no cross-attention, or contributions of a model that is not
            calibrated.
    """
    check_weights(weights)
    result = [torch.zeros(0, 0, 0, 0)] * len(sources)
    for index, layers, _, _ in _attention_of_pairs(
        model, tokenizer, sources, targets, batch_size, source_prefix, weights
    ):
        result[index] = _stacked(layers)
    return result


def token_rows(steps: Tensor, shift: bool) -> Tensor:
    """Attention of each target token from attention of each decoder step.

    Args:
        steps: (..., steps, source); step t predicts token t.
        shift: row t is that of step t + 1, where token t is the input. The last token never is: it keeps its own row.

    Returns:
        (..., target tokens, source), as many rows as steps.
    """
    return torch.cat([steps[..., 1:, :], steps[..., -1:, :]], dim=-2) if shift else steps


def seq2seq_weights(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    settings: Seq2SeqAttention | None = None,
    *,
    batch_size: int = 32,
) -> list[Tensor]:
    """Attention between the words of every pair, in the layer and heads of `settings`.

    Args:
        model, tokenizer, sources, targets, batch_size: see `teacher_forced_attention`.
        settings: None for `Seq2SeqAttention.default`.

    Returns:
        For every pair (target words, source words) on the CPU: summed over the subwords of a source word, averaged
        over those of a target word. One of the two numbers is 0 where a side has no word.

    Raises:
        ValueError: see `teacher_forced_attention`; also a layer or head that the model does not have.
    """
    result = [torch.zeros(len(t.split()), len(s.split())) for s, t in zip(sources, targets, strict=False)]
    read = (settings.source_prefix, settings.weights) if settings else ("", WEIGHTS[0])
    for index, layers, source, target in _attention_of_pairs(model, tokenizer, sources, targets, batch_size, *read):
        settings = settings or Seq2SeqAttention.default(len(layers))
        result[index] = _between_words(_on_cpu(settings.pick(layers)), source, target, settings.shift)
    return result


def select_attention(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[GoldAlignment],
    *,
    batch_size: int = 32,
    source_prefix: str = "",
    weights: str = "attention",
) -> list[tuple[Seq2SeqAttention, AlignmentScore]]:
    """Try every layer, both Naive-Att and Shift-Att, and several sets of heads on annotated pairs.

    The sets of heads are all, each alone, and a greedy one: the best head, then again and again the head that lowers
    the error most, until none does. Every target word is linked to the source word with the largest weight. The
    attention is computed once and kept between words: 4 bytes x 2 x layers x heads x words x words for each pair.

    Args:
        model, tokenizer, sources, targets, batch_size: see `teacher_forced_attention`.
        gold: annotated links of every pair. Use other pairs than those that are reported on.
        source_prefix, weights: see `Seq2SeqAttention`.

    Returns:
        Settings and their score, the lowest alignment error rate first; of equals lower layers, Naive-Att and larger
        sets of heads come first.

    Raises:
        ValueError: see `teacher_forced_attention`; also annotations that do not fit the pairs, or no pair with words.
    """
    check_weights(weights)
    check_index_base(gold, [(len(s.split()), len(t.split())) for s, t in zip(sources, targets, strict=False)])
    readable: list[int] = []
    words: list[Tensor | None] = [None] * len(sources)  # (2, layers, heads, target words, source words)
    for index, layers, source, target in _attention_of_pairs(
        model, tokenizer, sources, targets, batch_size, source_prefix, weights
    ):
        readable = [number for number, layer in enumerate(layers) if layer is not None]
        steps = _stacked(layers)
        words[index] = torch.stack([_between_words(steps, source, target, shift) for shift in (False, True)])
    heads = next((pair.shape[2] for pair in words if pair is not None), 0)
    if not heads:
        raise ValueError("`sources` and `targets` must have at least one pair with words on both sides, got none.")

    def score(layer: int, chosen: tuple[int, ...], shift: bool) -> AlignmentScore:
        links = [set() if p is None else argmax_links(p[int(shift), layer, list(chosen)].mean(dim=0)) for p in words]
        return alignment_error_rate(gold, links)

    ranked = []
    everything = tuple(range(heads))
    for layer in readable:
        for shift in (False, True):
            found = {chosen: score(layer, chosen, shift) for chosen in (everything, *((h,) for h in everything))}
            best = min(((h,) for h in everything), key=lambda chosen, found=found: found[chosen].aer)
            while len(best) < heads:
                for added in set(everything) - set(best):
                    chosen = tuple(sorted({*best, added}))
                    if chosen not in found:
                        found[chosen] = score(layer, chosen, shift)
                larger = [chosen for chosen in found if len(chosen) == len(best) + 1 and set(best) < set(chosen)]
                lowest = min(larger, key=lambda chosen, found=found: (found[chosen].aer, chosen))
                if found[lowest].aer >= found[best].aer:
                    break
                best = lowest
            # What the greedy search tried and left behind is not listed.
            for chosen in dict.fromkeys((everything, best, *((h,) for h in everything))):
                setting = Seq2SeqAttention(layer, chosen, shift, source_prefix, weights)
                ranked.append((replace(setting, heads=None) if chosen == everything else setting, found[chosen]))
    return sorted(ranked, key=lambda entry: entry[1].aer)


def _between_words(steps: Tensor, source: WordTokens, target: WordTokens, shift: bool) -> Tensor:
    """(..., steps, source) -> (..., target words, source words)."""
    rows = token_rows(steps, shift)
    return word_attention_stack(rows, source.word_ids, target.word_ids, source.words, target.words)


def _stacked(layers: Sequence[Tensor | None]) -> Tensor:
    """(heads, steps, source) of each layer -> (layers, heads, steps, source) on the CPU; 0 for layers without."""
    nothing = torch.zeros_like(next(layer for layer in layers if layer is not None))
    return torch.stack([_on_cpu(nothing if layer is None else layer) for layer in layers])


def _on_cpu(weights: Tensor) -> Tensor:
    return weights.to("cpu", torch.promote_types(weights.dtype, torch.float32))


def _attention_of_pairs(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    batch_size: int,
    source_prefix: str,
    weights: str,
) -> Iterator[tuple[int, list[Tensor | None], WordTokens, WordTokens]]:
    """Index, (heads, steps, source tokens) of each layer, and tokens, of every pair with words on both sides."""
    if len(sources) != len(targets):
        raise ValueError(f"`sources` and `targets` must be pairs, got {len(sources)} and {len(targets)} sentences.")
    if not model.config.is_encoder_decoder:
        raise ValueError(f"`model` must be an encoder-decoder, got one of type {model.config.model_type!r}.")
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be >= 1, got {batch_size}.")
    indices = [n for n, pair in enumerate(zip(sources, targets, strict=True)) if all(side.strip() for side in pair)]
    source_tokens = dict(
        zip(indices, tokenize_words(tokenizer, [sources[n] for n in indices], prefix=source_prefix), strict=True)
    )
    target_tokens = {
        n: _with_end(tokenizer, tokens)
        for n, tokens in zip(
            indices, tokenize_words(tokenizer, [targets[n] for n in indices], target=True), strict=True
        )
    }
    _check_lengths(model, tokenizer, source_tokens, target_tokens)
    indices.sort(key=lambda n: (len(target_tokens[n].ids), len(source_tokens[n].ids)), reverse=True)
    with _weights_can_be_read(model):
        for start in range(0, len(indices), batch_size):
            batch = indices[start : start + batch_size]
            layers = _cross_attentions(
                model, tokenizer, [source_tokens[n] for n in batch], [target_tokens[n] for n in batch], weights
            )
            for row, n in enumerate(batch):
                source, target = source_tokens[n], target_tokens[n]
                size = (row, slice(None), slice(len(target.ids)), slice(len(source.ids)))
                real = [None if layer is None else layer[size] for layer in layers]
                yield n, real, source, target


def _with_end(tokenizer, target: WordTokens) -> WordTokens:
    """A target that ends in a special token: with it the last word is a decoder input, too, as Shift-Att needs it."""
    if target.word_ids[-1] is None:
        return target
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.pad_token_id
    return replace(target, ids=[*target.ids, end], word_ids=[*target.word_ids, None])


def _check_lengths(model, tokenizer, sources: dict[int, WordTokens], targets: dict[int, WordTokens]) -> None:
    limit = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    for side, tokenized in (("source", sources), ("target", targets)):
        for index, tokens in tokenized.items():
            if len(tokens.ids) > limit:
                raise ValueError(
                    f"pair {index} (counted from 0) has {len(tokens.ids)} {side} tokens, the model takes at most "
                    f"{limit}. Split the pair."
                )


@contextmanager
def _weights_can_be_read(model) -> Iterator[None]:
    """Evaluation mode, and attention that forms its weights; both are put back."""
    training, kernel = model.training, model.config._attn_implementation
    # Ours forms them under every kernel. Others need eager attention: with sdpa they would return nothing.
    switch = kernel != "eager" and not model.config.model_type.startswith("attncal_")
    model.eval()
    if switch:
        model.set_attn_implementation("eager")
    try:
        yield
    finally:
        if switch:
            model.set_attn_implementation(kernel)
        model.train(training)


@torch.no_grad()
def _cross_attentions(
    model, tokenizer, sources: list[WordTokens], targets: list[WordTokens], weights: str
) -> list[Tensor | None]:
    """(batch, heads, steps, source) of every layer, right-padded; None for a layer without contributions."""
    config = model.config
    padding = tokenizer.pad_token_id or config.pad_token_id or 0
    input_ids = _padded([source.ids for source in sources], padding, model.device)
    lengths = torch.tensor([len(source.ids) for source in sources], device=model.device)
    attention_mask = (torch.arange(input_ids.shape[1], device=model.device) < lengths[:, None]).long()
    labels = _padded([target.ids for target in targets], _IGNORE_INDEX, model.device)
    decoder_input_ids = shift_labels(model, labels)
    inputs = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "decoder_input_ids": decoder_input_ids,
        "use_cache": False,
        "return_dict": True,
    }
    if weights == "contribution":
        numbers = calibrated_layers(model)
        if not numbers:
            raise ValueError(
                "`weights='contribution'` needs a model or an active adapter with `calibration`, got None: without "
                "masks there are no contributions."
            )
        found = layer_contributions(model(**inputs, output_attention_details=True), attention_mask)
        return [found[numbers.index(n)] if n in numbers else None for n in range(config.decoder_layers)]
    # Without the layer of the vocabulary, which costs as much as many others.
    outputs = model.base_model(**inputs, output_attentions=True)
    attentions = getattr(outputs, "cross_attentions", None)
    if not attentions or any(layer is None for layer in attentions):
        raise ValueError(
            f"A model of type {config.model_type!r} returned no cross-attention with "
            f"attn_implementation={config._attn_implementation!r}. Load an encoder-decoder, with "
            "`attn_implementation='eager'`."
        )
    return list(attentions)


def _padded(rows: list[list[int]], value: int, device: torch.device) -> Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows], device=device)
