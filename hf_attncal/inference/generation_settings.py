"""Settings of the search for a text: the fields of transformers' `GenerationConfig` that suit a text for each line."""

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from hf_attncal.io.errors import CommandError, settings_by_name

LENGTH_PENALTY = 5.0  # beyond, powers of lengths are no numbers that a score can be divided by


class _Field(NamedTuple):
    """What a field may be, for messages, and whether a value is that."""

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
    "prefix": _TEXT,  # none of transformers: text before each line
}
# Values of the others may not suit a model, which only a try tells.
_ALWAYS_SUIT = {*_SAMPLING, "length_penalty", "max_new_tokens", "min_new_tokens", "no_repeat_ngram_size", "do_sample"}
# What is said another way here.
_ELSEWHERE = {
    "num_beams": "give the number of beams with --beams",
    "max_length": "give `max_new_tokens`",
    "min_length": "give `min_new_tokens`",
    "num_return_sequences": "a line has one text",
}


def generation_settings(settings: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return the settings of a search by name, each with a value that it may have.

    Args:
        settings: a dict, or texts `key=value` with the value as JSON has it (`0.5`, `true`, `[3, 7]`).

    Raises:
        CommandError: a name that is not in `FIELDS` or comes twice, a value of another kind or out of range, or a
            setting of sampling without `do_sample`.
    """
    found = {name: _checked(name, value) for name, value in settings_by_name(settings).items() if value is not None}
    of_sampling = found.keys() & _SAMPLING
    if of_sampling and not found.get("do_sample"):
        raise CommandError(f"`{min(of_sampling)}` is for sampling. Add `do_sample=true`, or leave it out.")
    return found


def texts_to_try(settings: Mapping[str, Any]) -> list[str]:
    """Return the texts with which to try settings out on a model: none where they suit any."""
    return ["1"] if settings.keys() - _ALWAYS_SUIT else []


def _checked(name: str, value: Any) -> Any:
    field = FIELDS.get(name)
    if field is None:
        close = get_close_matches(name, FIELDS, 1)
        remedy = f"did you mean `{close[0]}`?" if close else f"give one of {', '.join(FIELDS)}."
        remedy = f"{_ELSEWHERE[name]}." if name in _ELSEWHERE else remedy
        raise CommandError(f"`{name}` is no setting of the search: {remedy}")
    read = value
    if isinstance(value, str) and (field is not _TEXT or value.startswith('"')):
        try:
            read = json.loads(value[:1000])
        except ValueError:
            read = value
    read = list(read) if isinstance(read, tuple) else read
    if not field.fits(read):
        raise CommandError(f"`{name}` must be {field.rule}, got {str(value)[:50]!r}.")
    return read
