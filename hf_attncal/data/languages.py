"""Languages of a translation: the codes that a tokenizer puts beside a text, by whatever name a user calls them.

Tokenizers have them in two ways. Those of M2M100, NLLB and mBART put a code beside each text, and the translation
begins with that of the target (of mBART-25 its decoder starts with it). A multilingual Marian wants the code of the
target, `>>deu<<`, in front of the source. The rest have none.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from hf_attncal.io.messages import LOG

_CODE = re.compile(r"[a-z]{2,3}_[A-Za-z]{2,4}")  # of NLLB (deu_Latn) and mBART (de_DE)
_FRONT = re.compile(r">>[^<>\s]+<<")
_FARTHEST = 5  # of langcodes: pt is 5 from pt_XX, as is British from American English
_SHOWN = 8  # codes that a message lists


class Languages(NamedTuple):
    """The languages of a pair, as the user calls them or as codes of a tokenizer."""

    source: str
    target: str


def codes_of(tokenizer) -> dict[str, str]:
    """Return the token of each language by its code; empty for a tokenizer without codes."""
    if names := getattr(tokenizer, "lang_code_to_token", None):  # M2M100
        return dict(names)
    if _beside(tokenizer):
        return {token: token for token in map(str, tokenizer.all_special_tokens) if _CODE.fullmatch(token)}
    return {token[2:-2]: token for token in getattr(tokenizer, "supported_language_codes", None) or ()}


def target_code(tokenizer) -> str | None:
    """Return the code of the target that is set; None if there is none, or the tokenizer has no codes."""
    code = getattr(tokenizer, "tgt_lang" if _beside(tokenizer) else "target_lang", None)
    return code if code in codes_of(tokenizer) else None


def code_is_last(tokenizer) -> bool:
    """Return whether a code stands behind each text (mBART-25), and not in front of it."""
    if not (_beside(tokenizer) and codes_of(tokenizer)):
        return False
    last = list(getattr(tokenizer, "suffix_tokens", ()))[-1:]
    return bool(last) and last != [tokenizer.eos_token_id]


def languages_of(tokenizer) -> str | None:
    """Return the languages that are set, as `speak` takes them; None if there are none."""
    code = target_code(tokenizer)
    source = getattr(tokenizer, "src_lang" if _beside(tokenizer) else "source_lang", None)
    return None if code is None else f"{source or 'und'}-{code}"


def both_codes(tokenizer) -> dict[str, str | None]:
    """Return the codes that stand beside the texts of both sides, as the encoder's settings name them; {} without."""
    if not (_beside(tokenizer) and codes_of(tokenizer)):
        return {}
    return {"source_language": tokenizer.src_lang, "target_language": tokenizer.tgt_lang}


def needs_target(tokenizer) -> bool:
    """Return whether a translation into this tokenizer's languages must say which, and none is set."""
    return target_code(tokenizer) is None and len(codes_of(tokenizer)) > 1


def check_target(tokenizer) -> None:
    """Raise ValueError if the code of the target stands in the target, and none is set."""
    if _beside(tokenizer) and needs_target(tokenizer):
        raise ValueError(_missing(tokenizer, "Give"))


def _missing(tokenizer, remedy: str) -> str:
    codes = codes_of(tokenizer)
    return (
        f"`languages` must say which of the {len(codes)} languages of {type(tokenizer).__name__} to translate into "
        f"({_listed(codes)}), got none. {remedy} "
        '--languages SOURCE-TARGET, such as en-de (in Python `languages="en-de"`).'
    )


def speak(model, tokenizer, languages: str | Sequence[str] | None = None) -> None:
    """Set the languages of a tokenizer, and make its model begin each translation with the code of the target.

    Both are saved with what they are set in, so a saved folder needs no languages again. Without any given, those that
    the tokenizer was saved with hold, or else that of the code that the model is made to begin with.

    Args:
        model: an encoder-decoder; None for the tokenizer alone.
        tokenizer: its tokenizer.
        languages: `SOURCE-TARGET`, or both by name; codes of the tokenizer, or what people call a language (de, deu,
            de-AT, German).

    Raises:
        ValueError: the tokenizer has no codes, or none for one of the languages.
    """
    codes, beside = codes_of(tokenizer), _beside(tokenizer)
    if languages is not None:
        if not codes:
            raise ValueError(
                f"`languages` is for tokenizers with language codes, and {type(tokenizer).__name__} of this model has "
                f"none, got {languages!r}. Leave it out."
            )
        # A source in front of which a code stands has none of its own.
        source, target = _found(languages, codes, type(tokenizer).__name__, anything=not beside)
        if beside:
            tokenizer.src_lang, tokenizer.tgt_lang = source, target
        else:
            tokenizer.target_lang = target
    if not (beside and codes) or model is None:
        return
    numbers = {code: tokenizer.convert_tokens_to_ids(token) for code, token in codes.items()}
    # A decoder that reads labels with the code behind them, shifted, starts with it; that of NLLB has another start,
    # also if its tokenizer is an old one.
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
                f"`languages`: the code {code} of {type(tokenizer).__name__} has the number {numbers[code]}, and the "
                f"model {size} tokens. Take the tokenizer of this model."
            )
        setattr(settings, field, numbers[code])
        if start:
            model.config.decoder_start_token_id = numbers[code]


def fronts(tokenizer, texts: Sequence[str], prefix: str = "") -> list[str]:
    """Return what to put in front of each source: a prefix, and the code of the target where it has to stand there.

    A text or prefix that begins with a code of its own gets no other.

    Raises:
        ValueError: a code has to stand there, and none is set.
    """
    codes = {} if _beside(tokenizer) else codes_of(tokenizer)
    if not codes or leading_code(tokenizer, prefix):
        return [prefix] * len(texts)
    code, needed = target_code(tokenizer), needs_target(tokenizer)
    front = prefix if code is None else f"{codes[code]} {prefix}"
    found = []
    for text in texts:
        own = leading_code(tokenizer, text)
        if needed and not own:
            token = next(iter(codes.values()))
            raise ValueError(_missing(tokenizer, f"Begin the line with its code, such as {token}, or give"))
        found.append(prefix if own else front)
    return found


def sample(tokenizer) -> str:
    """Return a source of one word that a model can be tried with, whatever language is set."""
    front = needs_target(tokenizer) and not _beside(tokenizer)
    return f"{next(iter(codes_of(tokenizer).values()))} 1" if front else "1"


def leading_code(tokenizer, text: str) -> str:
    """Return the code that a source begins with, such as `>>deu<<`; "" without one."""
    found = _FRONT.match(text)
    known = getattr(tokenizer, "supported_language_codes", None) or ()
    return found[0] if found and found[0] in known else ""


def without_code(tokenizer, text: str) -> str:
    """Return a source without the code that it begins with, which is no word of it."""
    return text[len(leading_code(tokenizer, text)) :].lstrip() if leading_code(tokenizer, text) else text


def take_code(tokenizer, sources: Sequence[str]) -> Sequence[str]:
    """Set the code that all sources begin with, and return them without it; others are returned as they are."""
    codes = {leading_code(tokenizer, source) for source in sources if source.strip()}
    if len(codes) != 1 or codes == {""}:
        return sources
    tokenizer.target_lang = codes.pop()[2:-2]
    return [without_code(tokenizer, source) for source in sources]


@contextmanager
def speaking(tokenizer, code: str) -> Iterator[None]:
    """Put a code, such as `>>deu<<`, in front of all sources for the block; "" changes nothing."""
    before = getattr(tokenizer, "target_lang", None)
    if code:
        tokenizer.target_lang = code[2:-2]
    try:
        yield
    finally:
        if code:
            tokenizer.target_lang = before


def card_languages(languages: str | None) -> list[str]:
    """Return the languages of a pair as a model card has them: ISO 639-1 where there is one."""
    if languages is None:
        return []
    source, target = next(iter(_splits(languages)), (languages, ""))
    return [_tag(name).partition("-")[0] for name in (source, target) if name]


def _beside(tokenizer) -> bool:
    """Return whether codes stand beside the text of each side."""
    return hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang")


def _found(languages: str | Sequence[str], codes: Collection[str], name: str, anything: bool) -> Languages:
    """Return the codes of the languages of a pair; the source may be `anything` if it has no code."""
    pairs = _splits(languages) if isinstance(languages, str) else [Languages(*languages)]
    if not pairs:
        raise ValueError(f"`languages` must be SOURCE-TARGET, such as en-de, got {languages!r}.")
    found = [(pair, [_code_of(name, codes) for name in pair]) for pair in pairs]
    for pair, (source, target) in found:
        if target is not None and (source is not None or anything):
            pairs_of_names = zip(pair, (source, target), strict=True)
            read = [f"{said} is {code}" for said, code in pairs_of_names if code is not None and said != code]
            if read:
                LOG.warning("languages: %s (%s)", " and ".join(read), name)
            return Languages(source or pair.source, target)
    pair, (source, target) = found[0]
    side = "source" if source is None and not anything else "target"
    raise ValueError(
        f"`languages`: the {side} must be a language of {name}, got {getattr(pair, side)!r}. It has {_listed(codes)}."
    )


def _listed(codes: Collection[str]) -> str:
    return ", ".join(sorted(codes)[:_SHOWN]) + (", ..." if len(codes) > _SHOWN else "")


def _splits(languages: str) -> list[Languages]:
    """Return the ways to part SOURCE-TARGET; a side may have a hyphen of its own, as pt-BR does."""
    parts = languages.split("-")
    ways = [Languages("-".join(parts[:n]), "-".join(parts[n:])) for n in range(1, len(parts))]
    ways = [pair for pair in ways if all(name.strip() for name in pair)]
    return ways if len(ways) < 2 else [pair for pair in ways if all(map(_tag, pair))]


def _tag(name: str) -> str:
    """Return the tag of a language (BCP 47) by a tag or a name in any language; "" if it has none."""
    import langcodes

    tag = name.strip().replace("_", "-")
    try:
        return langcodes.standardize_tag(tag) if langcodes.tag_is_valid(tag) else str(langcodes.find(name.strip()))
    except LookupError:
        return ""


def _code_of(name: str, codes: Collection[str]) -> str | None:
    """Return the code of a language, or None if there is none."""
    if name in codes:
        return name
    import langcodes

    known = {code.replace("_", "-"): code for code in codes}
    known = {tag: code for tag, code in known.items() if langcodes.tag_is_valid(tag) or tag.lower().endswith("-xx")}
    tag = _tag(name)
    closest, _ = langcodes.closest_match(tag, list(known), max_distance=_FARTHEST) if tag else ("und", 0)
    return known.get(closest)
