"""Settings of the search: fields of transformers' `GenerationConfig` that make sense for one text per line."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Self

from hf_attncal.io.errors import CommandError, settings_by_name

LENGTH_PENALTY = 5.0  # beyond, powers of lengths are no numbers that a score can be divided by


# Fields of transformers' `GenerationConfig` by the type of their values, and our own: `prefix`, text before each line,
# and `shortlist` of imported models.
_SAMPLING = ("temperature", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
_NUMBERS = ("length_penalty", "repetition_penalty", "encoder_repetition_penalty", *_SAMPLING)
_WHOLE = (
    *("max_new_tokens", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
    *("forced_bos_token_id", "forced_eos_token_id", "top_k"),
)
_SWITCHES = ("renormalize_logits", "remove_invalid_values", "use_cache", "do_sample", "shortlist")
_LISTS = ("exponential_decay_length_penalty", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
FIELDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(_NUMBERS, ("a number", (int, float))),
    **dict.fromkeys(_WHOLE, ("a whole number", int)),
    **dict.fromkeys(_SWITCHES, ("true or false", bool)),
    **dict.fromkeys(_LISTS, ("a list of numbers", list)),
    "early_stopping": ('true, false or "never"', (bool, str)),
    "prefix": ("text", str),
}
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
        options = self.options(limit, limit) | dict.fromkeys((*_SAMPLING, "top_k"))
        options["max_length"] = 1 + options["max_new_tokens"]  # the decoder's start token counts
        options["max_new_tokens"] = None
        return options


def generation_settings(settings: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Check and return the settings of a search by name.

    Args:
        settings: dict, or texts `key=value` with a JSON value (`0.5`, `true`, `[3, 7]`).

    Raises:
        CommandError: a name that is not in `FIELDS` or is given twice, a value of another type, or a setting of
            sampling without `do_sample`.
    """
    settings_checked = {
        name: _checked(name, value) for name, value in settings_by_name(settings).items() if value is not None
    }
    sampling_settings = settings_checked.keys() & {*_SAMPLING, "top_k"}
    if sampling_settings and not settings_checked.get("do_sample"):
        raise CommandError(f"`{min(sampling_settings)}` is for sampling. Add `do_sample=true`, or leave it out.")
    return settings_checked


def _checked(name: str, value: Any) -> Any:
    """Return the value of a setting, parsed as JSON if it is text; a trial shows values that do not suit the model."""
    if name not in FIELDS:
        close = get_close_matches(name, FIELDS, 1)
        remedy = f"did you mean `{close[0]}`?" if close else f"give one of {', '.join(FIELDS)}."
        remedy = f"{_ELSEWHERE[name]}." if name in _ELSEWHERE else remedy
        raise CommandError(f"`{name}` is no setting of the search: {remedy}")
    rule, kind = FIELDS[name]
    if isinstance(value, str) and (kind is not str or value.startswith('"')):
        with suppress(ValueError):
            value = json.loads(value[:1000])
    value = list(value) if isinstance(value, tuple) else value
    fits = isinstance(value, kind) and (not isinstance(value, bool) or kind in (bool, (bool, str)))  # True is an int
    fits = fits and not (name == "early_stopping" and value not in (True, False, "never"))
    if not fits or (name == "length_penalty" and not abs(value) <= LENGTH_PENALTY):
        rule += f" from -{LENGTH_PENALTY:g} to {LENGTH_PENALTY:g}" if name == "length_penalty" else ""
        raise CommandError(f"`{name}` must be {rule}, got {str(value)[:50]!r}.")
    return value
