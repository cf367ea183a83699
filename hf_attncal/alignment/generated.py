"""Word alignment of what `generate` wrote, from the attention that it wrote it with: no second pass.

What `generate` returns is laid out by steps: `cross_attentions[step][layer]` is (rows, heads, 1, source), with a row
for each beam that was alive at that step. The attention of a returned sequence is picked from the rows that it
descends from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import WordTokens, text_and_word_ids, tokenize_words
from hf_attncal.inference.generation import end_tokens, length_to_end
from hf_attncal.inference.reading import check_attends
from hf_attncal.inference.word_attention import word_attention
from hf_attncal.models.functional import token_rows

from .links import argmax_links, links_above
from .seq2seq import Seq2SeqAttention


@dataclass(frozen=True)
class GeneratedAlignment:
    """One returned sequence and its alignment.

    Args:
        source: index of the input that it belongs to.
        tokens: ids after the decoder's start token, up to and including the end of sentence, if there is one.
        attention: weights of the source tokens, (target tokens, source tokens), without padding, on the CPU.
        text: decoded sequence, without special tokens; None without a tokenizer.
        weights: weights between the words of `text` and of the source, (target words, source words); None without
            `sources`.
        links: sorted links (i source word, j target word): for each target word the source word with the largest
            weight, or all source words above the threshold of the settings; None without `sources`.
    """

    source: int
    tokens: list[int]
    attention: Tensor
    text: str | None = None
    weights: Tensor | None = None
    links: tuple[Link, ...] | None = None


def align_generated(
    model,
    output,
    *,
    attention_mask: Tensor | None = None,
    tokenizer=None,
    sources: Sequence[str] | None = None,
    settings: Seq2SeqAttention | None = None,
) -> list[GeneratedAlignment]:
    """Align every sequence that `generate` returned with its source.

    Greedy search, sampling, beam search, several sequences per input and a decoder prompt are supported. With
    Shift-Att the row of a token is the next step's. A sequence that was cut off before its end has no step after its
    last token, which keeps its own row.

    Args:
        model: encoder-decoder that generated the text.
        output: output of `model.generate(..., return_dict_in_generate=True, output_attentions=True)`.
        attention_mask: mask that `generate` was called with, (inputs, source). Needed without `sources`.
        tokenizer: tokenizer of the model, for `text` and the links between words. Needed with `sources`.
        sources: text of every input, without the `source_prefix` of the settings. Without `attention_mask`, `generate`
            must have got the outputs of `tokenizer(..., padding=True)`.
        settings: layer, heads, rows and threshold. Default: None, `Seq2SeqAttention.default`.

    Returns:
        One alignment per returned sequence, in the order of `output.sequences`.

    Raises:
        ValueError: `output` has no cross-attention; the inputs are unknown or do not fit it; the model does not have
            the layer or heads of `settings`; or `settings` need contributions.
    """
    steps = _steps(model, output)
    settings = settings or Seq2SeqAttention.default(len(steps[0]))
    if settings.weights != "attention":
        raise ValueError(
            f"`settings.weights` must be 'attention', got {settings.weights!r}: generation records nothing else. For "
            "contributions, align the source with the generated text (`WordAligner`)."
        )
    tokenized = None
    if sources is not None:
        if tokenizer is None:
            raise ValueError("`sources` need a `tokenizer`, got None.")
        tokenized = tokenize_words(tokenizer, list(sources), prefix=settings.source_prefix)
    readings = [
        _of_sequences(model, output, [reading.pick(layers) for layers in steps]) for reading in settings.readings
    ]
    (attention, lengths), shifts = readings[0], [reading.shift for reading in settings.readings]
    real = _real_source(attention_mask, tokenizer, tokenized, attention.shape[-1])
    returned, remainder = divmod(len(attention), len(real))
    if remainder or not returned:
        raise ValueError(f"{len(attention)} sequences cannot have been generated from {len(real)} inputs.")

    alignments = []
    for n, (sequence, length) in enumerate(zip(output.sequences.tolist(), lengths, strict=True)):
        source = n // returned
        rows_of_readings = [
            token_rows(weights[n, :length], shift) for (weights, _), shift in zip(readings, shifts, strict=True)
        ]
        rows = torch.stack(rows_of_readings).mean(dim=0)
        alignment = GeneratedAlignment(source, sequence[1 : 1 + length], rows[:, real[source]])
        if tokenizer is not None:
            source_tokens = None if tokenized is None else tokenized[source]
            alignment = _with_words(alignment, tokenizer, source_tokens, settings.threshold)
        alignments.append(alignment)
    return alignments


def _steps(model, output) -> Sequence[Sequence[Tensor]]:
    """Return `output.cross_attentions`, (rows, heads, 1, source) for each step and layer; refuse missing weights."""
    check_attends(model.config)
    steps = getattr(output, "cross_attentions", None)
    if not steps:
        raise ValueError(
            "`output` has no cross-attention. Call `model.generate(..., return_dict_in_generate=True, "
            "output_attentions=True)`, with an encoder-decoder."
        )
    if not steps[0] or any(layer is None for layer in steps[0]):
        raise ValueError(
            "`output` has steps, but no attention weights in them: with "
            f"attn_implementation={model.config._attn_implementation!r} the model does not form them. Call "
            "`model.set_attn_implementation('eager')` before `generate`."
        )
    return steps


def _of_sequences(model, output, rows: list[Tensor]) -> tuple[Tensor, list[int]]:
    """Return the attention of every step of each sequence (sequences, steps, source), and numbers of tokens.

    Args:
        rows: attention of each step, (rows, 1, source). The first step has a row for each token of the decoder's
            prompt. Without a cache, each step also has the rows of all steps before it.
    """
    prompt = rows[0].shape[1]
    beams = getattr(output, "beam_indices", None)
    if beams is None:
        number = min(len(rows), output.sequences.shape[1] - prompt)
        chosen = [rows[0], *(step[:, -1:] for step in rows[1:number])]
        generated = _generated_lengths(model, output.sequences[:, prompt:])
    else:
        beams = beams.long()
        # Behind the end of a sequence stands -1; what is picked there is cut off below.
        picks = [beams[:, step].clamp(min=0).to(rows[step].device) for step in range(beams.shape[1])]
        chosen = [rows[0][picks[0]], *(rows[step][pick, -1:] for step, pick in enumerate(picks) if step)]
        generated = (beams >= 0).sum(dim=1).tolist()
    attention = torch.cat(chosen, dim=1)
    attention = attention.to("cpu", torch.promote_types(attention.dtype, torch.float32))
    if len(attention) != len(output.sequences):
        raise ValueError(
            f"`output` has {len(output.sequences)} sequences, but attention for {len(attention)}. Pass what "
            "`generate` returned unchanged."
        )
    return attention, [prompt - 1 + length for length in generated]


def _generated_lengths(model, tokens: Tensor) -> list[int]:
    """Return tokens (sequences, steps) up to and including the first end of sentence, or else up to the padding."""
    ends, padding = end_tokens(model.generation_config), model.generation_config.pad_token_id
    lengths = []
    for row in tokens.tolist():
        if not set(ends) & set(row):  # cut off, or stopped by a criterion of the caller
            while row and row[-1] == padding:
                row.pop()
        lengths.append(length_to_end(row, ends))
    return lengths


def _real_source(attention_mask: Tensor | None, tokenizer, tokenized: list[WordTokens] | None, width: int) -> Tensor:
    """Return which source tokens are not padding, (inputs, source), on the CPU."""
    lengths = None if tokenized is None else torch.tensor([len(tokens.ids) for tokens in tokenized])
    if attention_mask is not None:
        real = attention_mask.to("cpu").bool()
        widest = real.shape[1]
    elif lengths is None:
        raise ValueError("`attention_mask`, or `tokenizer` and `sources`, must tell which source tokens are padding.")
    else:
        places = torch.arange(width)
        right = tokenizer.padding_side == "right"
        real = (places if right else places.flip(0)) < lengths[:, None]
        widest = int(lengths.max())
    if widest != width or (lengths is not None and real.sum(dim=1).tolist() != lengths.tolist()):
        raise ValueError(
            "The inputs do not fit the attention over "
            f"{width} source positions. Pass the `attention_mask` that `generate` was given, and the `sources` that "
            "were tokenised for it."
        )
    return real


def _with_words(
    alignment: GeneratedAlignment, tokenizer, source: WordTokens | None, threshold: float | None
) -> GeneratedAlignment:
    text, word_ids = text_and_word_ids(tokenizer, alignment.tokens)
    if source is None:
        return replace(alignment, text=text)
    target = WordTokens(np.array(alignment.tokens), word_ids, len(text.split()))
    weights = word_attention(alignment.attention, source, target)
    links = argmax_links(weights) if threshold is None else links_above(weights.T, threshold)
    return replace(alignment, text=text, weights=weights, links=links)
