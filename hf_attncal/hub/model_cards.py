"""Write model cards: description, loading and scores of a model or adapter.

The text is in the templates of `model_cards/`; `families.py` has the template of each family.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hf_attncal.families import FAMILIES
from hf_attncal.io.extras import ORIGIN_HINT, install_command
from hf_attncal.io.files import write_text
from hf_attncal.layouts import CARD

from .hub_folder import base_folder, inspect_folder

# The templates are package data of an installed package; in a clone their folder is beside the package.
_PACKAGE = Path(__file__).parents[1]
_TEMPLATES = Environment(
    loader=FileSystemLoader([_PACKAGE / "model_cards", _PACKAGE.parent / "model_cards"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
# Filters that write a text as a literal of Python (JSON strings are valid there) or of the shell.
_TEMPLATES.globals["install"] = f"{install_command()}  # {ORIGIN_HINT}"
_TEMPLATES.filters |= {"python": lambda text: json.dumps(text, ensure_ascii=False), "shell": shlex.quote}

CARD_START, CARD_END = "<!-- hf_attncal: written at each save -->", "<!-- hf_attncal: end -->"
_SECTIONS = {  # marks by template
    "adapter": (CARD_START, CARD_END),
    "link_probabilities": (
        "<!-- hf_attncal: link probabilities -->",
        "<!-- hf_attncal: end of link probabilities -->",
    ),
}


@dataclass(frozen=True)
class Result:
    """Measured number of a model card, with the signature of its computation."""

    measure: str
    value: float
    signature: str
    digits: int = 1  # after the decimal point


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
    template: str | None = None,
) -> Path:
    """Write the model card, `README.md`, into a saved model's folder.

    Args:
        folder: folder written by `save_pretrained`.
        model_name: heading, and name that the example loads.
        summary: one or two sentences on the model.
        training_data: description of the training data.
        example: input of the example: a source sentence, for an aligner a pair `source ||| target`, for a language
            model the beginning of a text.
        languages: language codes, source first.
        results: measured numbers. Default: none, and the card has "Not measured".
        license: license of the model in the Hub's spelling ("apache-2.0"), which the publisher must choose. Default:
            none.
        task: task in the Hub's terms ("summarization"). Default: None, the task of the model's family.
        template: name of the card's template. Default: None, the family's.

    Returns:
        The path of the card.

    Raises:
        ValueError: `folder` does not hold a model of this package, or the `example` of an aligner is not a pair.
    """
    saved = inspect_folder(folder)
    if saved.model_type not in FAMILIES:
        raise ValueError(f"{folder} holds an adapter: write its card with `write_trained_adapter_card`.")
    _, card = FAMILIES[saved.model_type].auto_and_card(saved.architecture)
    if card.pairs and example.count(" ||| ") != 1:
        raise ValueError(f"`example` of an aligner must be a pair `source ||| target`, got {example!r}.")
    text = _render(
        template or card.template,
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
        folder=saved,
        switches={name: saved.config[name] for name in card.fields if saved.config.get(name)},
    )
    path = saved.path / CARD
    ModelCard(text).save(path)
    return path


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
    """Write the card of a trained adapter, and keep the section of `write_adapter_card` if there is one.

    Args:
        folder: folder of the saved adapter, of any PEFT method.
        base_model: name of the base model on the Hub. Default: None, not in the front matter.
        base: name of the base model for readers, with its revision or hash.
        search: arguments of `generate` that the results were measured with.
        model_name, summary, training_data, languages, results, license: see `write_model_card`.

    Returns:
        The path of the card.
    """
    path = Path(folder) / CARD
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


def write_adapter_card(folder: str | Path, config: Any, switches: dict[str, object]) -> Path:
    """Put a section about a saved adapter into `README.md`, in place of the section of an earlier save.

    Args:
        folder: folder of the saved adapter; the rest of an existing card stays.
        config: configuration of the adapter, with the name of the base model.
        switches: fields of `config` to list, with their values.

    Returns:
        The path of the card.
    """
    base = config.base_model_name_or_path
    local = base_folder(base)
    facts: dict[str, Any] = {"base": local.name if local else base, "local": local is not None}
    start = "---\nlibrary_name: peft\n---\n"
    path = write_section(folder, "adapter", start, config=config, switches=switches, **facts)
    if local:
        card = ModelCard(path.read_text(encoding="utf-8"))
        data: Any = card.data
        if data.base_model == base:  # PEFT has written the local folder into this field and into a tag
            data.base_model = None
            data.tags = [tag for tag in data.tags or () if not tag.endswith(f":{base}")]
            write_text(str(card), path)
    return path


def render(template: str, **words: object) -> str:
    """Render a template of `model_cards/`."""
    return _TEMPLATES.get_template(f"{template}.md.jinja").render(**words)


def _render(template: str, front_matter: dict[str, Any], **words: object) -> str:
    """Render a model card from a template.

    Args:
        template: name of the template.
        front_matter: fields of the YAML header; those that are None or empty are left out.
        words: values of the placeholders in the template.
    """
    data = ModelCardData(**{name: value for name, value in front_matter.items() if value})
    return render(template, card_data=data.to_yaml(), **words).rstrip() + "\n"


def write_section(folder: str | Path, template: str, new: str = "", **words: object) -> Path:
    """Put a section between its marks in `README.md`, replacing an earlier one, or at the end; the rest stays.

    Args:
        folder: folder of the model or adapter.
        template: name of the template, one of `_SECTIONS`.
        new: start of a card that does not exist. Default: empty.
        words: values of the placeholders in the template.

    Returns:
        The path of the card.
    """
    start, end = _SECTIONS[template]
    path = Path(folder) / CARD
    text = path.read_text(encoding="utf-8") if path.exists() else new
    before, _, rest = text.partition(start)
    _, mark, after = rest.partition(end)
    after = after if mark else rest  # if someone removed the end mark, keep the old section, so that no text is lost
    section = render(template, **words)
    write_text(f"{before.rstrip()}\n\n{start}\n{section}\n{end}\n{after.lstrip()}", path)
    return path
