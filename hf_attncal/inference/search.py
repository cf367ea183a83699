"""Settings of the search: fields of transformers' `GenerationConfig` that make sense for one text per line."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, NamedTuple, Self

from hf_attncal.io.errors import CommandError, settings_by_name

LENGTH_PENALTY = 5.0  # beyond, powers of lengths are no numbers that a score can be divided by


class _Field(NamedTuple):
    """Rule of a field: its description for messages, and a test of values."""

    rule: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_whole(token) and token >= 0 for token in value)


def _at_least(low: int) -> _Field:
    return _Field(f"a whole number >= {low}", lambda value: _is_whole(value) and value >= low)


def _between(low: float, high: float) -> _Field:
    return _Field(f"a number from {low:g} to {high:g}", lambda value: _is_number(value) and low <= value <= high)


_ABOVE_0 = _Field("a number > 0", lambda value: _is_number(value) and value > 0)
_YES_NO = _Field("true or false", lambda value: isinstance(value, bool))
_ID = _Field("the number of a token", lambda value: _is_whole(value) and value >= 0)
_IDS = _Field("a list of numbers of tokens", _are_ids)
_TEXT = _Field("text", lambda value: isinstance(value, str))
_SAMPLING = {
    "temperature": _ABOVE_0,
    "top_k": _at_least(1),
    **dict.fromkeys(("top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"), _between(0, 1)),
}
FIELDS = {
    "length_penalty": _between(-LENGTH_PENALTY, LENGTH_PENALTY),
    "max_new_tokens": _at_least(1),
    "min_new_tokens": _at_least(0),
    "no_repeat_ngram_size": _at_least(0),
    "encoder_no_repeat_ngram_size": _at_least(0),
    "repetition_penalty": _ABOVE_0,
    "encoder_repetition_penalty": _ABOVE_0,
    "early_stopping": _Field('true, false or "never"', lambda value: isinstance(value, bool) or value == "never"),
    "exponential_decay_length_penalty": _Field(
        "a list of a number of tokens and a factor",
        lambda value: isinstance(value, list) and len(value) == 2 and _is_whole(value[0]) and _is_number(value[1]),
    ),
    "bad_words_ids": _Field(
        "a list of lists of numbers of tokens", lambda value: isinstance(value, list) and all(map(_are_ids, value))
    ),
    "suppress_tokens": _IDS,
    "begin_suppress_tokens": _IDS,
    "forced_bos_token_id": _ID,
    "forced_eos_token_id": _ID,
    "renormalize_logits": _YES_NO,
    "remove_invalid_values": _YES_NO,
    "use_cache": _YES_NO,
    "do_sample": _YES_NO,
    **_SAMPLING,
    "prefix": _TEXT,  # our own: text before each line
}
# Settings that every model can have; values of the others may not suit a model, which only a trial can show.
_ALWAYS_SUIT = {*_SAMPLING, "length_penalty", "max_new_tokens", "min_new_tokens", "no_repeat_ngram_size", "do_sample"}
# Fields of transformers that have another name or no place here, with the remedy.
_ELSEWHERE = {
    "num_beams": "give the number of beams with --beams",
    "max_length": "give `max_new_tokens`",
    "min_length": "give `min_new_tokens`",
    "num_return_sequences": "a line has one text",
}


@dataclass(frozen=True, slots=True)
class Search:
    """Settings of the search for a text. Others are those in the model's `generation_config`, but sampling is off.

    Args:
        num_beams: beam size; 1 is greedy.
        length_penalty: exponent of the length in the beam score, log-probability / length ** `length_penalty`.
        max_new_tokens: maximum length in tokens. Default: None, twice the longest source of the batch plus 10.
        min_new_tokens: minimum length in tokens. Default: None, the model's `generation_config`.
        no_repeat_ngram_size: length of n-grams that must not repeat. Default: None, the model's `generation_config`.
        others: further arguments of `generate`, by name (`FIELDS`).

    Raises:
        ValueError: a setting is out of range.
    """

    num_beams: int
    length_penalty: float
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    no_repeat_ngram_size: int | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (
            ("num_beams", 1),
            ("max_new_tokens", 1),
            ("min_new_tokens", 0),
            ("no_repeat_ngram_size", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"`{name}` must be >= {least}, got {value}.")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the search with these settings; names that are not fields are further arguments of `generate`."""
        names = {entry.name for entry in fields(cls)} - {"others"}
        own = {name: value for name, value in settings.items() if name in names}
        return cls(**own, others={name: value for name, value in settings.items() if name not in names})

    def options(self, source_length: int, limit: int) -> dict[str, Any]:
        """Return the options of `generate` for a batch.

        Args:
            source_length: number of tokens of the longest source of the batch.
            limit: maximum length of a sequence in tokens.
        """
        longest, shortest = self.max_new_tokens, self.min_new_tokens
        if longest is None:
            longest = max(2 * source_length + 10, shortest or 0)
        options = {
            "num_beams": self.num_beams,
            "length_penalty": self.length_penalty,
            "do_sample": False,
            "num_return_sequences": 1,
            "return_dict_in_generate": False,
            "max_new_tokens": min(longest, limit - 1),
            "max_length": None,
            **self.others,
        }
        if self.num_beams == 1:  # `generate` would warn of options for beams
            options |= {"length_penalty": None, "early_stopping": None}
        if shortest is not None:  # `min_length` includes the decoder's start token; setting both would conflict
            options |= {"min_length": shortest + 1, "min_new_tokens": None}
        if self.no_repeat_ngram_size is not None:
            options["no_repeat_ngram_size"] = self.no_repeat_ngram_size
        return options

    def saved(self, limit: int) -> dict[str, Any]:
        """Return the fields of a `generation_config` that make this search the default of `generate()`.

        The length is saved as `max_length`, because both a caller's `max_new_tokens` and a caller's `max_length`
        override it; a saved `max_new_tokens` would override a caller's `max_length`. A saved length cannot depend on
        the sources: without `max_new_tokens` a text may have all positions of the model.

        Args:
            limit: maximum length of a sequence in tokens.
        """
        options = self.options(limit, limit) | dict.fromkeys(_SAMPLING)
        options["max_length"] = 1 + options["max_new_tokens"]  # the decoder's start token counts
        options["max_new_tokens"] = None
        return options


def generation_settings(settings: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Check and return the settings of a search by name.

    Args:
        settings: dict, or texts `key=value` with a JSON value (`0.5`, `true`, `[3, 7]`).

    Raises:
        CommandError: a name that is not in `FIELDS` or is given twice, a value of another type or out of range, or a
            setting of sampling without `do_sample`.
    """
    settings_checked = {
        name: _checked(name, value) for name, value in settings_by_name(settings).items() if value is not None
    }
    sampling_settings = settings_checked.keys() & _SAMPLING
    if sampling_settings and not settings_checked.get("do_sample"):
        raise CommandError(f"`{min(sampling_settings)}` is for sampling. Add `do_sample=true`, or leave it out.")
    return settings_checked


def texts_to_try(settings: Mapping[str, Any]) -> list[str]:
    """Return the texts for a trial of settings on a model; none if the settings suit every model."""
    return ["1"] if settings.keys() - _ALWAYS_SUIT else []


def _checked(name: str, value: Any) -> Any:
    rule = FIELDS.get(name)
    if rule is None:
        close = get_close_matches(name, FIELDS, 1)
        remedy = f"did you mean `{close[0]}`?" if close else f"give one of {', '.join(FIELDS)}."
        remedy = f"{_ELSEWHERE[name]}." if name in _ELSEWHERE else remedy
        raise CommandError(f"`{name}` is no setting of the search: {remedy}")
    parsed = value
    if isinstance(value, str) and (rule is not _TEXT or value.startswith('"')):
        try:
            parsed = json.loads(value[:1000])
        except ValueError:
            parsed = value
    parsed = list(parsed) if isinstance(parsed, tuple) else parsed
    if not rule.fits(parsed):
        raise CommandError(f"`{name}` must be {rule.rule}, got {str(value)[:50]!r}.")
    return parsed
