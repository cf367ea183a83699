"""Model cards: what a published model or adapter is, how it loads, what was measured.

The words are in the templates of `model_cards/`, which a family names in `families.py`.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from huggingface_hub import ModelCard, ModelCardData, try_to_load_from_cache
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from yaml import YAMLError

from hf_attncal.extras import ORIGIN_TOLD, install_command
from hf_attncal.families import FAMILIES
from hf_attncal.files import whole_file, write_text
from hf_attncal.metrics.probabilities import ProbabilityScore

from .folder import base_folder, inspect_folder

# In an installed package the templates are package data; in a clone they lie beside the package.
_PACKAGE = Path(__file__).parents[1]
_TEMPLATES = Environment(
    loader=FileSystemLoader([_PACKAGE / "model_cards", _PACKAGE.parent / "model_cards"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
# A text as a literal of the language of the example that it goes into; JSON's strings are Python's, too.
_TEMPLATES.globals["install"] = f"{install_command()}  # {ORIGIN_TOLD}"
_TEMPLATES.filters |= {"python": lambda text: json.dumps(text, ensure_ascii=False), "shell": shlex.quote}

CARD_START, CARD_END = "<!-- hf_attncal: written at each save -->", "<!-- hf_attncal: end -->"
_PROBABILITIES = "<!-- hf_attncal: link probabilities -->", "<!-- hf_attncal: end of link probabilities -->"
_DIAGRAM = "link_probabilities.png"  # beside the card


@dataclass(frozen=True)
class Result:
    """One measured number of a model card, with the signature that says how it was computed."""

    measure: str
    value: float
    signature: str
    digits: int = 1  # after the point


@dataclass(frozen=True)
class CardFacts:
    """What a model card says of its model in a few words: its name ("" for none), languages and scores of its text."""

    name: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


def write_model_card(
    folder: str | Path,
    *,
    model_name: str,
    summary: str,
    training_data: str,
    example: str,
    languages: Sequence[str] = (),
    results: Sequence[Result] = (),
    license: str | None = None,
    task: str | None = None,
) -> Path:
    """Write `README.md` into a saved model's folder: what it is, how it loads, what was measured.

    Args:
        folder: written by `save_pretrained`.
        model_name: the heading, and the name that the example loads.
        summary: one or two sentences on what the model is.
        training_data: what it was trained on.
        example: a source sentence for the example; of an aligner a pair `source ||| target`; of a language model the
            beginning of a text.
        languages: language codes, source first.
        results: measured numbers. None leaves "Not measured" in the card.
        license: of the model, as the Hub spells it ("apache-2.0"). It is its publisher's to choose: without it the
            card names none.
        task: as the Hub calls it ("summarization"). None: what models of its family are trained for.

    Returns:
        The path of the card.

    Raises:
        ValueError: `folder` does not hold a model of this package, or `example` is not a pair where one is needed.
    """
    found = inspect_folder(folder)
    if found.model_type not in FAMILIES:
        raise ValueError(f"{folder} holds an adapter, whose card `write_trained_adapter_card` writes.")
    _, card = FAMILIES[found.model_type].auto_and_card(found.architecture)
    if card.pairs and example.count(" ||| ") != 1:
        raise ValueError(f"`example` of an aligner must be a pair `source ||| target`, got {example!r}.")
    text = _render(
        card.template,
        {
            "library_name": "transformers",
            "pipeline_tag": task or card.task,
            "language": list(languages),
            "license": license,
            "tags": [card.tag, "custom_code"],
        },
        model_name=model_name,
        summary=summary,
        training_data=training_data,
        example=example,
        task=task or card.task,
        results=results,
        folder=found,
        switches={name: found.config[name] for name in card.fields if found.config.get(name)},
    )
    path = found.path / "README.md"
    ModelCard(text).save(path)
    return path


def read_model_card(model: str | Path) -> CardFacts:
    """Read the card of a folder, or of a Hub name whose card is in the cache; without one nothing is known.

    The name and the scores are found in cards of this package only; languages in any card that lists one or two.
    """
    folder = Path(model)
    file = folder / "README.md" if folder.is_dir() else _cached_card(str(model))
    try:
        card = ModelCard.load(file, ignore_metadata_errors=True)
    except (OSError, TypeError, ValueError, YAMLError):  # no card, or none that can be read
        return CardFacts()
    languages = card.data.language or []
    languages = [languages] if isinstance(languages, str) else languages
    ours = "attention-calibration" in (card.data.tags or [])
    name = re.search(r"^# (.+)$", card.text, re.MULTILINE)
    facts = {"Languages": "–".join(map(str, languages))} if 0 < len(languages) <= 2 else {}
    if ours:
        scores = re.findall(r"^\| (BLEU|chrF|ROUGE-\w+) \| ([\d.]+) \|", card.text, re.MULTILINE)
        facts |= {measure: f"{score} (its model card)" for measure, score in scores}
    return CardFacts(name[1].strip() if ours and name else "", facts)


def _cached_card(name: str) -> str | None:
    try:
        found = try_to_load_from_cache(name, "README.md")
    except ValueError:  # not a name of the Hub
        return None
    return found if isinstance(found, str) else None


def write_trained_adapter_card(
    folder: str | Path,
    *,
    model_name: str,
    summary: str,
    training_data: str,
    base_model: str | None = None,
    base: str | None = None,
    search: Mapping[str, object] = MappingProxyType({}),
    languages: Sequence[str] = (),
    results: Sequence[Result] = (),
    license: str | None = None,
) -> Path:
    """Write the card of an adapter into its folder, around the section of `write_adapter_card` if there is one.

    Args:
        folder: of the saved adapter, of any method.
        base_model: on the Hub; None: the front matter names none.
        base: what the base model is called, and what tells it from others of that name.
        search: arguments of `generate` with which the results were measured.
        model_name, summary, training_data, languages, results, license: as in `write_model_card`.

    Returns:
        The path of the card.
    """
    path = Path(folder) / "README.md"
    _, start, section = (path.read_text(encoding="utf-8") if path.exists() else "").partition(CARD_START)
    text = _render(
        "trained_adapter",
        {"library_name": "peft", "base_model": base_model, "language": list(languages), "license": license},
        model_name=model_name,
        summary=summary,
        training_data=training_data,
        results=results,
        base=base,
        search=search,
    )
    write_text(text + (f"\n{start}{section}" if start else ""), path)
    return path


def write_tuned_encoder_card(
    folder: str | Path,
    *,
    model_name: str,
    summary: str,
    training_data: str,
    example: str,
    base_model: str | None = None,
    languages: Sequence[str] = (),
    results: Sequence[Result] = (),
    license: str | None = None,
) -> Path:
    """Write the card of an encoder of any kind that was tuned to align words; returns its path.

    Args:
        folder: of the saved model.
        base_model: on the Hub; None: the front matter names none.
        model_name, summary, training_data, example, languages, results, license: as in `write_model_card`.
    """
    path = Path(folder) / "README.md"
    text = _render(
        "tuned_encoder",
        {
            "library_name": "transformers",
            "base_model": base_model,
            "language": list(languages),
            "license": license,
            "tags": ["word-alignment"],
        },
        model_name=model_name,
        summary=summary,
        training_data=training_data,
        example=example,
        results=results,
    )
    write_text(text, path)
    return path


def write_adapter_card(folder: str | Path, config: object, switches: dict[str, object]) -> Path:
    """Put a section about a saved adapter into `README.md`, in the place of an earlier save's; the rest stays.

    Args:
        folder: of the saved adapter; a card that is there already is completed.
        config: the adapter's configuration: what it says of the base model is in the section.
        switches: the fields of `config` to name, and their values.

    Returns:
        The path of the card.
    """
    base = config.base_model_name_or_path
    place = base_folder(base)
    name = place.name if place else base
    section = _TEMPLATES.get_template("adapter.md.jinja").render(
        config=config, switches=switches, base=name, local=place is not None
    )
    path = _put_section(folder, section, CARD_START, CARD_END, "---\nlibrary_name: peft\n---\n")
    if place and (card := ModelCard(path.read_text(encoding="utf-8"))).data.base_model == base:
        # PEFT has written the folder there, and into a tag.
        card.data.base_model = None
        card.data.tags = [tag for tag in card.data.tags or () if not tag.endswith(f":{base}")]
        write_text(str(card), path)
    return path


def write_probabilities_card(
    folder: str | Path, before: ProbabilityScore, after: ProbabilityScore, measured_on: str
) -> Path:
    """Put a section about link probabilities into `README.md`, in the place of an earlier one; the rest stays.

    The reliability diagram lies beside it, where matplotlib is installed.

    Args:
        folder: of the checkpoint.
        before: how good the model's scores are as probabilities.
        after: the same of what they were made.
        measured_on: what both were measured on.

    Returns:
        The path of the card.
    """
    diagram: str | None = _DIAGRAM
    try:
        from hf_attncal.analysis.plots import reliability_diagram
    except ImportError:
        diagram = None
    else:
        figure = reliability_diagram({"scores of the model": before.bins, "probabilities": after.bins})
        with whole_file(Path(folder) / _DIAGRAM) as partial:
            figure.savefig(partial, dpi=150, format="png")
    section = _TEMPLATES.get_template("link_probabilities.md.jinja").render(
        before=before, after=after, measured_on=measured_on, diagram=diagram
    )
    return _put_section(folder, section, *_PROBABILITIES)


def _render(template: str, front_matter: dict[str, object], **words: object) -> str:
    """A whole card, of a template by its name; what is None or empty in the front matter is left out."""
    data = ModelCardData(**{name: value for name, value in front_matter.items() if value})
    return _TEMPLATES.get_template(f"{template}.md.jinja").render(card_data=data.to_yaml(), **words).rstrip() + "\n"


def _put_section(folder: str | Path, section: str, start: str, end: str, new: str = "") -> Path:
    """Put a section between its marks into `README.md`, at its end where there is none; `new` begins a new card."""
    path = Path(folder) / "README.md"
    text = path.read_text(encoding="utf-8") if path.exists() else new
    before, _, rest = text.partition(start)
    _, found, after = rest.partition(end)
    after = after if found else rest  # the mark was edited away: rather an old section twice than words lost
    write_text(f"{before.rstrip()}\n\n{start}\n{section}\n{end}\n{after.lstrip()}", path)
    return path
