"""Generate a text for each line with any encoder-decoder: batches, search, scores, and the origin of copied words."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm.auto import tqdm

from hf_attncal.data.batching import batches_by_length, beginning, padded
from hf_attncal.data.copy_tokenizer import CopyTokenizer, decode_copied
from hf_attncal.data.languages import check_target
from hf_attncal.data.pharaoh import Link
from hf_attncal.data.words import encode_sources, special_target_id, target_text, token_names

from .copies import Copy, copy_shares, words_of_sources, words_of_text
from .modes import evaluating
from .reading import position_limit

# Fields that a generation config must not set without sampling.
_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
_READ_AT_ONCE = 512  # tokens: their logits take 120 MB with a vocabulary of 60,000


class LineTooLongError(ValueError):
    """A line has more tokens than the model has positions; `index` is the first such line, from 0."""

    def __init__(self, index: int, tokens: int, limit: int) -> None:
        self.index, self.tokens, self.limit = index, tokens, limit
        super().__init__(
            f"line {index + 1} has {tokens} tokens, the model takes at most {limit}. Split the line, or ask for "
            "truncation (`too_long='truncate'`)."
        )


@dataclass(frozen=True, slots=True)
class Generated:
    """The text generated for a line. Without `scores`, and for an empty line, it has no tokens and no scores.

    Args:
        text: the text on one line, without special tokens.
        tokens: generated tokens, including the end of sentence if it was reached, or if the text was cut off and the
            model has a `forced_eos_token_id`.
        token_scores: natural logarithm of the probability of each token, given the source and the tokens before it;
            0 for a first token that the model's `forced_bos_token_id` forces.
        score: sum of `token_scores` / number of tokens ** `length_penalty`, by which beam search compares texts.
        cut_from: number of tokens of the line, if only its beginning was read; else None.
        unknown: number of generated unknown tokens (`<unk>`), which the text leaves out.
        copies: with `copied`, how much of each token is copied.
    """

    text: str
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    score: float | None = None
    cut_from: int | None = None
    unknown: int = 0
    copies: tuple[Copy, ...] = ()

    @property
    def links(self) -> tuple[Link, ...]:
        """Links (i word of the line, j word of the text), sorted, where a token of word j is copied from word i."""
        links = {(copy.source_word, copy.word) for copy in self.copies if copy.is_copied}
        return tuple(sorted(link for link in links if None not in link))


@dataclass(frozen=True, slots=True)
class Search:
    """Settings of the search for a text; the model's `generation_config` gives the others, but sampling is off.

    Args:
        num_beams: beam size; 1 is greedy.
        length_penalty: the beam score is log-probability / length ** `length_penalty` (`generate`'s definition).
        max_new_tokens: longest text, in tokens. None: twice the longest source of the batch plus 10.
        min_new_tokens: shortest text, in tokens. None: that of the model's `generation_config`.
        no_repeat_ngram_size: length of token runs that must not repeat. None: that of the model's `generation_config`.
        num_return_sequences: texts for each line, at most `num_beams`.
        others: further arguments of `generate`, by name (`generation_settings.FIELDS`).

    Raises:
        ValueError: a setting out of range.
    """

    num_beams: int
    length_penalty: float
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    no_repeat_ngram_size: int | None = None
    num_return_sequences: int = 1
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (
            ("num_beams", 1),
            ("max_new_tokens", 1),
            ("min_new_tokens", 0),
            ("no_repeat_ngram_size", 0),
            ("num_return_sequences", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"`{name}` must be >= {least}, got {value}.")
        if self.num_return_sequences > self.num_beams:
            raise ValueError(
                f"`num_return_sequences` must be at most `num_beams` ({self.num_beams}), got "
                f"{self.num_return_sequences}."
            )

    def options(self, source_length: int, limit: int) -> dict[str, Any]:
        """Return the options of `generate` for a batch.

        Args:
            source_length: number of tokens of the longest source of the batch.
            limit: most tokens in a sequence.
        """
        longest, shortest = self.max_new_tokens, self.min_new_tokens
        if longest is None:
            longest = max(2 * source_length + 10, shortest or 0)
        options = {
            "num_beams": self.num_beams,
            "length_penalty": self.length_penalty,
            "do_sample": False,
            "num_return_sequences": self.num_return_sequences,
            "return_dict_in_generate": False,
            "max_new_tokens": min(longest, limit - 1),
            "max_length": None,
            **self.others,
        }
        if self.num_beams == 1:  # it would warn of options for beams
            options |= {"length_penalty": None, "early_stopping": None}
        if shortest is not None:  # `min_length` includes the decoder's start token; setting both would conflict
            options |= {"min_length": shortest + 1, "min_new_tokens": None}
        if self.no_repeat_ngram_size is not None:
            options["no_repeat_ngram_size"] = self.no_repeat_ngram_size
        return options

    def saved(self, limit: int) -> dict[str, Any]:
        """Return the fields of a `generation_config` with which `generate()` searches so by default.

        The length is a `max_length`, because a caller's `max_new_tokens` or `max_length` wins over that, and a
        caller's `max_length` would lose against a saved `max_new_tokens`. It cannot follow the sources: without
        `max_new_tokens` a text may have all positions of the model.

        Args:
            limit: most tokens in a sequence.
        """
        options = self.options(limit, limit) | dict.fromkeys(_OF_SAMPLING)
        options["max_length"] = 1 + options["max_new_tokens"]  # the decoder's start token counts
        options["max_new_tokens"] = None
        return options


@torch.no_grad()
def generate_lines(
    model,
    tokenizer,
    lines: Sequence[str],
    search: Search,
    *,
    batch_size: int,
    max_tokens: int | None = None,
    too_long: str,
    scores: bool = False,
    copied: bool = False,
    prefix: str = "",
    progress: str | None = None,
) -> list[Generated]:
    """Generate a text for each line, in the order of the input; several of a line follow each other, the best first.

    Lines are batched by length, longest first, so a shortage of memory shows at once. An empty line gives an empty
    text. The model is put into evaluation mode and back.

    Args:
        model: an encoder-decoder with `generate`, on the device to use.
        tokenizer: its tokenizer.
        lines: source lines.
        search: settings of the search.
        batch_size: most lines in a batch.
        max_tokens: most source tokens in a batch, padding included; None for no limit.
        too_long: "error" or "truncate" for a line of more tokens than `source_limit` allows.
        scores: also return tokens and scores. This takes one more pass of the model over the generated text, since
            `generate` gives scores of beams only if it keeps the logits of all steps.
        copied: also return `copies`, tokens and scores, by the same pass.
        prefix: text put before each line.
        progress: label of a progress bar over lines; None for no bar.

    Raises:
        LineTooLongError: a line is too long; nothing has been generated.
        ValueError: a setting out of range, `copied` for a model without `copy`, or no language to translate into.
    """
    check_target(tokenizer)
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be >= 1, got {batch_size}.")
    if too_long not in ("error", "truncate"):
        raise ValueError(f"`too_long` must be 'error' or 'truncate', got {too_long!r}.")
    if copied and not getattr(model.config, "copy", False):
        raise ValueError(
            f"`copied=True` needs a model that copies, got {type(model).__name__} without `copy`. Leave it out, or "
            "train a model with `model.copy=true`."
        )
    limit = position_limit(model, tokenizer)
    copies = CopyTokenizer.of(tokenizer, model.config)
    sources = _encode(tokenizer, lines, prefix, source_limit(model, tokenizer), too_long, copies)
    vocab_size = math.inf if copies is None else copies.vocab_size
    several = search.num_return_sequences
    generated = [Generated("")] * (len(lines) * several)
    numbers = list(sources)
    with evaluating(model), tqdm(total=len(sources), desc=progress, unit="sent", disable=progress is None) as bar:
        lengths = [len(source.ids) for source in sources.values()]
        for chosen in batches_by_length(lengths, batch_size, max_tokens):
            batch = [numbers[i] for i in chosen]
            inputs = _inputs([sources[n] for n in batch], tokenizer.pad_token_id or 0, model.device)
            output = model.generate(**inputs, **search.options(inputs["input_ids"].shape[1], limit))
            inputs = {name: tensor.repeat_interleave(several, dim=0) for name, tensor in inputs.items()}
            places = [n * several + place for n in batch for place in range(several)]
            batch = [n for n in batch for _ in range(several)]
            if copies is None:
                texts = [target_text(tokenizer, row) for row in _without_special(model, output)]
            else:
                texts = decode_copied(output, [sources[n].words for n in batch], tokenizer, vocab_size)
            unknown = _unknown_tokens(tokenizer, output)
            for n, place, text, count in zip(batch, places, texts, unknown, strict=True):
                text = " ".join(text.split("\n")).strip()
                generated[place] = Generated(text, cut_from=sources[n].cut_from, unknown=count)
            if scores or copied:
                forced = search.others.get("forced_bos_token_id", model.generation_config.forced_bos_token_id)
                rows = list(_read_back(model, inputs, output, copied, forced is not None))
                for n, place, row in zip(batch, places, rows, strict=True):
                    score = sum(row.scores) / len(row.ids) ** search.length_penalty
                    names = _names(tokenizer, vocab_size, row.ids, sources[n].words)
                    scored = {"tokens": names, "token_scores": tuple(row.scores), "score": score}
                    generated[place] = replace(generated[place], **scored)
            if copied:
                lengths = [(len(sources[n].ids), sources[n].cut_from) for n in batch]
                source_words = words_of_sources(tokenizer, [lines[n] for n in batch], prefix, lengths)
                for n, place, row, words in zip(batch, places, rows, source_words, strict=True):
                    text_words = words_of_text(tokenizer, row.ids, sources[n].words, vocab_size, generated[place].text)
                    generated[place] = replace(generated[place], copies=row.copies(words, text_words))
            bar.update(len(chosen))
    return generated


def end_tokens(config) -> list[int]:
    """Return the tokens that end a sentence, of a generation configuration."""
    ends = config.eos_token_id
    return list(ends) if isinstance(ends, list | tuple) else [ends]


def length_to_end(ids: Sequence[int], ends: Sequence[int]) -> int:
    """Return how many tokens there are up to the first end of a sentence, which counts; all where there is none."""
    return next((n for n, token in enumerate(ids, start=1) if token in ends), len(ids))


def _without_special(model, output: Tensor) -> list[list[int]]:
    """Return the rows without padding, start and end as the model has them, whatever its tokenizer calls special."""
    config = model.generation_config
    special = {config.pad_token_id, config.decoder_start_token_id, *end_tokens(config)}
    return [[token for token in row if token not in special] for row in output.tolist()]


def _unknown_tokens(tokenizer, output: Tensor) -> list[int]:
    """Count the unknown tokens of each row; 0 if the tokenizer uses its unknown token for another purpose, too."""
    unknown, *others = (special_target_id(tokenizer, f"{name}_token") for name in ("unk", "pad", "eos", "bos"))
    if unknown is None or unknown in others:
        return [0] * len(output)
    return (output[:, 1:] == unknown).sum(dim=1).tolist()


def source_limit(model, tokenizer) -> int:
    """Return the most tokens in a source: `position_limit`, or fewer if the tokenizer's `model_max_length` is less."""
    return min(position_limit(model, tokenizer), int(tokenizer.model_max_length))


def longer_than(limit: int, tokenizer, lines: Sequence[str]) -> dict[int, int]:
    """Return the number of tokens of each line that has more than `limit`, by its index."""
    indices, ids = _token_ids(tokenizer, lines)
    return {index: len(source) for index, source in zip(indices, ids, strict=True) if len(source) > limit}


def _token_ids(tokenizer, lines: Sequence[str], prefix: str = "") -> tuple[list[int], list[list[int]]]:
    """Return the indices of the lines with text, and their token ids, end of sentence included."""
    indices = [index for index, line in enumerate(lines) if line.strip()]
    if not indices:
        return [], []
    return indices, encode_sources(tokenizer, [lines[i] for i in indices], prefix)


@dataclass(frozen=True, slots=True)
class _Source:
    """A tokenised line."""

    ids: list[int]
    extended: list[int] | None = None  # numbers with slots, for a model that copies
    words: Sequence[str] = ()  # words of the slots
    cut_from: int | None = None  # number of tokens of the whole line, if it was cut


def _encode(
    tokenizer, lines: Sequence[str], prefix: str, limit: int, too_long: str, copies: CopyTokenizer | None
) -> dict[int, _Source]:
    """Tokenise the lines with text, by their index; none has more than `limit` tokens."""
    if copies is None:
        indices, ids = _token_ids(tokenizer, lines, prefix)
        lengths = list(map(len, ids))
        columns = [[beginning(row, limit) for row in ids]]
    else:
        indices = [index for index, line in enumerate(lines) if line.strip()]
        tokenized = copies.sources([prefix + lines[i] for i in indices], limit)
        lengths = tokenized["length"]
        columns = [tokenized[name] for name in ("input_ids", "extended_input_ids", "copied_words")]
    sources = {}
    for index, length, *source in zip(indices, lengths, *columns, strict=True):
        if length > limit and too_long == "error":
            raise LineTooLongError(index, length, limit)
        sources[index] = _Source(*source, cut_from=length if length > limit else None)
    return sources


def _inputs(batch: Sequence[_Source], padding: int, device: torch.device) -> dict[str, Tensor]:
    """Return the inputs of the model for a batch."""
    ids, mask = padded([source.ids for source in batch], padding)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if batch[0].extended is not None:
        inputs["extended_input_ids"], _ = padded([source.extended for source in batch], padding)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def _names(tokenizer, vocab_size: float, ids: Sequence[int], words: Sequence[str]) -> tuple[str, ...]:
    """Return the tokens of these numbers; those from `vocab_size` on are words of the source."""
    return tuple(
        words[token - vocab_size] if token >= vocab_size else token_names(tokenizer, [token])[0] for token in ids
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """The tokens of a generated text with their log-probabilities, and shares and places of `copy_shares`."""

    ids: list[int]
    scores: list[float]
    shares: Sequence[float] = ()
    places: Sequence[int] = ()

    def copies(self, source_words: Sequence[int | None], words: Sequence[int | None]) -> tuple[Copy, ...]:
        """Make a `Copy` for each token, given the word of each source token and of each token."""
        return tuple(
            Copy(share, None, None, word) if place < 0 else Copy(share, place, source_words[place], word)
            for share, place, word in zip(self.shares, self.places, words, strict=True)
        )


def _read_back(model, inputs: dict[str, Tensor], output: Tensor, copied: bool, forced: bool) -> Iterator[_Read]:
    """Run the model over a generated batch; yield each row from after the decoder's start to the end of sentence.

    Args:
        model: the model that generated the batch.
        inputs: inputs of the model.
        output: generated tokens, (batch, 1 + steps).
        copied: also compute copied shares.
        forced: the first token was not chosen, so that its score is 0.
    """
    if hasattr(model, "scores"):  # CTranslate2 gives no logits
        for ids, scores in model.scores(inputs, output):
            yield _Read(ids, [0.0, *scores[1:]] if forced else scores)
        return
    ends = end_tokens(model.generation_config)
    source = inputs.get("extended_input_ids", inputs["input_ids"])
    options = {"output_copy_probabilities": True} if copied else {}
    at_once = max(1, _READ_AT_ONCE // output.shape[1])
    for start in range(0, len(output), at_once):
        part = slice(start, start + at_once)
        part_inputs = {name: tensor[part] for name, tensor in inputs.items()}
        outputs = model(**part_inputs, decoder_input_ids=output[part, :-1], use_cache=False, **options)
        tokens, logits = output[part, 1:], outputs.logits
        scores = torch.stack(
            [
                -cross_entropy(row.to(torch.promote_types(row.dtype, torch.float32)), ids, reduction="none")
                for row, ids in zip(logits, tokens, strict=True)
            ]
        )
        columns = [scores]
        if copied:
            columns += copy_shares(source[part], outputs.copy_probabilities, tokens, scores)
        if forced:
            scores[:, 0] = 0
        for ids, *columns_of_row in zip(tokens.tolist(), *(column.tolist() for column in columns), strict=True):
            length = length_to_end(ids, ends)
            yield _Read(ids[:length], *(column[:length] for column in columns_of_row))
