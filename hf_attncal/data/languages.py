"""Languages of multilingual tokenizers: find the code of a language by its name, and set it.

M2M100, NLLB and mBART add a code to the text of each side, and the translation begins with the target's code
(mBART-25's decoder starts with it). A multilingual Marian needs the target's code, `>>deu<<`, before the source.
Other tokenizers have no codes.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from hf_attncal.io.messages import LOG

_CODE = re.compile(r"[a-z]{2,3}_[A-Za-z]{2,4}")  # NLLB (deu_Latn) and mBART (de_DE)
_LEADING_CODE = re.compile(r">>[^<>\s]+<<")
_MAX_DISTANCE = 5  # distance in langcodes: 5 from pt to pt_XX, or from British to American English
_MAX_LISTED_CODES = 8


class Languages(NamedTuple):
    """Languages of a pair, by name or by code."""

    source: str
    target: str


def codes_of(tokenizer) -> dict[str, str]:
    """Return the token of each language code; empty for a tokenizer without codes."""
    if names := getattr(tokenizer, "lang_code_to_token", None):  # M2M100
        return dict(names)
    if _has_code_per_side(tokenizer):
        return {token: token for token in map(str, tokenizer.all_special_tokens) if _CODE.fullmatch(token)}
    return {token[2:-2]: token for token in getattr(tokenizer, "supported_language_codes", None) or ()}


def target_code(tokenizer) -> str | None:
    """Return the code of the target language; None if it is not set, or the tokenizer has no codes."""
    code = getattr(tokenizer, "tgt_lang" if _has_code_per_side(tokenizer) else "target_lang", None)
    return code if code in codes_of(tokenizer) else None


def code_is_last(tokenizer) -> bool:
    """Return whether the code comes after each text (mBART-25) and not before it."""
    if not (_has_code_per_side(tokenizer) and codes_of(tokenizer)):
        return False
    last = list(getattr(tokenizer, "suffix_tokens", ()))[-1:]
    return bool(last) and last != [tokenizer.eos_token_id]


def languages_of(tokenizer) -> str | None:
    """Return the current languages as `SOURCE-TARGET`; None if they are not set."""
    code = target_code(tokenizer)
    source = getattr(tokenizer, "src_lang" if _has_code_per_side(tokenizer) else "source_lang", None)
    return None if code is None else f"{source or 'und'}-{code}"


def needs_target(tokenizer) -> bool:
    """Return whether the tokenizer has several target languages and none is set."""
    return target_code(tokenizer) is None and len(codes_of(tokenizer)) > 1


def check_target(tokenizer) -> None:
    """Raise ValueError if targets need a language code and none is set."""
    if _has_code_per_side(tokenizer) and needs_target(tokenizer):
        raise ValueError(_missing(tokenizer, "Give"))


def _missing(tokenizer, remedy: str) -> str:
    codes = codes_of(tokenizer)
    return (
        f"`languages` must name one of the {len(codes)} languages of {type(tokenizer).__name__} to translate into "
        f"({_listed(codes)}), got none. {remedy} "
        '--languages SOURCE-TARGET, such as en-de (in Python `languages="en-de"`).'
    )


def set_languages(model, tokenizer, languages: str | Sequence[str] | None = None) -> None:
    """Set the languages of a tokenizer, and the language code with which its model begins each translation.

    Both are saved with tokenizer and model, so a saved folder needs no languages again.

    Args:
        model: encoder-decoder. None: only the tokenizer is set.
        tokenizer: tokenizer of the model.
        languages: languages as `SOURCE-TARGET` or a pair, each a code of the tokenizer or a common name (de, deu,
            de-AT, German). Default: the tokenizer's saved languages, else the language of the model's first code.

    Raises:
        ValueError: the tokenizer has no codes, or none for one of the languages.
    """
    codes, per_side = codes_of(tokenizer), _has_code_per_side(tokenizer)
    if languages is not None:
        if not codes:
            raise ValueError(
                f"`languages` is for tokenizers with language codes; {type(tokenizer).__name__} of this model has "
                f"none, got {languages!r}. Leave it out."
            )
        # The source language has no code where only the target's code is needed, before the source.
        source, target = _matching_codes(languages, codes, type(tokenizer).__name__, any_source=not per_side)
        if per_side:
            tokenizer.src_lang, tokenizer.tgt_lang = source, target
        else:
            tokenizer.target_lang = target
    if not (per_side and codes) or model is None:
        return
    numbers = {code: tokenizer.convert_tokens_to_ids(token) for code, token in codes.items()}
    # A decoder whose labels end in the code reads them shifted, so it starts with the code. NLLB's decoder has another
    # start token, also with an old tokenizer.
    start = code_is_last(tokenizer) and not getattr(tokenizer, "legacy_behaviour", False)
    field, settings = "decoder_start_token_id" if start else "forced_bos_token_id", model.generation_config
    code = target_code(tokenizer)
    if code is None:
        saved = getattr(settings, field)
        code = tokenizer.tgt_lang = next((code for code, number in numbers.items() if number == saved), None)
    if code is not None:
        size = model.get_input_embeddings().num_embeddings
        if numbers[code] >= size:
            raise ValueError(
                f"`languages`: the code {code} of {type(tokenizer).__name__} has the id {numbers[code]}, but the "
                f"model has {size} tokens. Use the tokenizer of this model."
            )
        setattr(settings, field, numbers[code])
        if start:
            model.config.decoder_start_token_id = numbers[code]


def source_prefixes(tokenizer, texts: Sequence[str], prefix: str = "") -> list[str]:
    """Return the prefix to write before each source, with the target's code for a tokenizer that needs it there.

    A text or prefix that already begins with a code gets no second one.

    Raises:
        ValueError: a code is needed, and none is set.
    """
    codes = {} if _has_code_per_side(tokenizer) else codes_of(tokenizer)
    if not codes or leading_code(tokenizer, prefix):
        return [prefix] * len(texts)
    code, needed = target_code(tokenizer), needs_target(tokenizer)
    with_code = prefix if code is None else f"{codes[code]} {prefix}"
    prefixes = []
    for text in texts:
        own = leading_code(tokenizer, text)
        if needed and not own:
            token = next(iter(codes.values()))
            raise ValueError(_missing(tokenizer, f"Begin the line with its code, such as {token}, or give"))
        prefixes.append(prefix if own else with_code)
    return prefixes


def trial_source(tokenizer) -> str:
    """Return a one-word source to try a model with; it begins with a code if one is needed and none is set."""
    needs_code = needs_target(tokenizer) and not _has_code_per_side(tokenizer)
    return f"{next(iter(codes_of(tokenizer).values()))} 1" if needs_code else "1"


def leading_code(tokenizer, text: str) -> str:
    """Return the code at the start of a source, such as `>>deu<<`, or an empty string."""
    match = _LEADING_CODE.match(text)
    codes = getattr(tokenizer, "supported_language_codes", None) or ()
    return match[0] if match and match[0] in codes else ""


def without_code(tokenizer, text: str) -> str:
    """Return a source without the code at its start."""
    return text[len(leading_code(tokenizer, text)) :].lstrip() if leading_code(tokenizer, text) else text


def set_leading_code(tokenizer, sources: Sequence[str]) -> Sequence[str]:
    """If all sources begin with the same code, set it and return them without it; else return them unchanged."""
    codes = {leading_code(tokenizer, source) for source in sources if source.strip()}
    if len(codes) != 1 or codes == {""}:
        return sources
    tokenizer.target_lang = codes.pop()[2:-2]
    return [without_code(tokenizer, source) for source in sources]


@contextmanager
def using_code(tokenizer, code: str) -> Iterator[None]:
    """Set the target language of a tokenizer until the block ends.

    Args:
        tokenizer: tokenizer of a multilingual Marian model.
        code: code of the language, such as `>>deu<<`; an empty string changes nothing.
    """
    before = getattr(tokenizer, "target_lang", None)
    if code:
        tokenizer.target_lang = code[2:-2]
    try:
        yield
    finally:
        if code:
            tokenizer.target_lang = before


def card_languages(languages: str | None) -> list[str]:
    """Return the languages of a pair for a model card, by their ISO 639-1 codes where they exist."""
    if languages is None:
        return []
    source, target = next(iter(_splits(languages)), (languages, ""))
    return [_tag(name).partition("-")[0] for name in (source, target) if name]


def _has_code_per_side(tokenizer) -> bool:
    """Return whether the tokenizer adds a code to the text of each side."""
    return hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang")


def _matching_codes(languages: str | Sequence[str], codes: Collection[str], name: str, any_source: bool) -> Languages:
    """Return the codes of the languages of a pair; with `any_source`, the source needs no code."""
    pairs = _splits(languages) if isinstance(languages, str) else [Languages(*languages)]
    if not pairs:
        raise ValueError(f"`languages` must be SOURCE-TARGET, such as en-de, got {languages!r}.")
    candidates = [(pair, [_code_of(language, codes) for language in pair]) for pair in pairs]
    for pair, (source, target) in candidates:
        if target is not None and (source is not None or any_source):
            sides = zip(pair, (source, target), strict=True)
            changes = [f"{language} is {code}" for language, code in sides if code is not None and language != code]
            if changes:
                LOG.warning("languages: %s (%s)", " and ".join(changes), name)
            return Languages(source or pair.source, target)
    pair, (source, target) = candidates[0]
    side = "source" if source is None and not any_source else "target"
    raise ValueError(
        f"`languages`: the {side} must be a language of {name}, got {getattr(pair, side)!r}. It has {_listed(codes)}."
    )


def _listed(codes: Collection[str]) -> str:
    return ", ".join(sorted(codes)[:_MAX_LISTED_CODES]) + (", ..." if len(codes) > _MAX_LISTED_CODES else "")


def _splits(languages: str) -> list[Languages]:
    """Return the ways to split SOURCE-TARGET; a side may contain a hyphen, as in pt-BR."""
    parts = languages.split("-")
    ways = [Languages("-".join(parts[:n]), "-".join(parts[n:])) for n in range(1, len(parts))]
    ways = [pair for pair in ways if all(name.strip() for name in pair)]
    return ways if len(ways) < 2 else [pair for pair in ways if all(map(_tag, pair))]


def _tag(name: str) -> str:
    """Return the BCP 47 tag of a language, given a tag or a name in any language, or an empty string."""
    import langcodes

    tag = name.strip().replace("_", "-")
    try:
        return langcodes.standardize_tag(tag) if langcodes.tag_is_valid(tag) else str(langcodes.find(name.strip()))
    except LookupError:
        return ""


def _code_of(name: str, codes: Collection[str]) -> str | None:
    """Return the code closest to a language, or None if there is none."""
    if name in codes:
        return name
    import langcodes

    by_tag = {code.replace("_", "-"): code for code in codes}
    by_tag = {tag: code for tag, code in by_tag.items() if langcodes.tag_is_valid(tag) or tag.lower().endswith("-xx")}
    tag = _tag(name)
    closest, _ = langcodes.closest_match(tag, list(by_tag), max_distance=_MAX_DISTANCE) if tag else ("und", 0)
    return by_tag.get(closest)
