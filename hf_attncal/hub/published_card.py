"""Complete the card of a saved model for the Hub: metadata, a pinned example, its training, its limits."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from huggingface_hub import EvalResult, ModelCard

from hf_attncal.io.errors import CommandError, settings_by_name

from .model_cards import render

_START, _END = "<!-- hf_attncal: published -->", "<!-- hf_attncal: end of published -->"
_PINNED = re.compile(r'^revision = "([0-9a-f]{40})"', re.MULTILINE)
_SCORE = re.compile(r"^\| (?P<measure>[^|]+?) \| (?P<value>-?[\d.]+) \| `(?P<signature>.*)` \|$", re.MULTILINE)
_NEWEST = "main"  # revision before the first commit


# Name of a field in commands -> its name here.
_FIELD_NAMES = {"license": "license", "language": "languages", "dataset": "datasets", "base_model": "base_model"}


@dataclass(frozen=True)
class CardFields:
    """Facts from the publisher. A field that is None or empty does not change the card.

    Args:
        license: license in the Hub's spelling ("apache-2.0").
        languages: language codes, source first.
        datasets: ids of datasets on the Hub that the model was trained and tested on.
        base_model: Hub name of the base model of an adapter or a tuned encoder.
    """

    license: str | None = None
    languages: Sequence[str] = ()
    datasets: Sequence[str] = ()
    base_model: str | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any] | Sequence[str] | None) -> Self:
        """Return the fields in a mapping, or in words `key=value` with commas between languages and data sets.

        Args:
            fields: values of `license`, `language`, `dataset` and `base_model`.

        Raises:
            CommandError: another name, a name that is given twice, or an empty value.
        """
        values: dict[str, Any] = {}
        for name, value in settings_by_name(fields).items():
            if name not in _FIELD_NAMES:
                raise CommandError(f"A card has no field {name!r}. Its fields are {', '.join(_FIELD_NAMES)}.")
            if not value:
                raise CommandError(f"`{name}` of the card is empty. Give a value, or leave it out.")
            several = name in ("language", "dataset")
            values[_FIELD_NAMES[name]] = tuple(value.split(",")) if several and isinstance(value, str) else value
        return cls(**values)


def pinned_revision(card: str) -> str | None:
    """Return the commit, 40 hexadecimal digits, that the example of a published card loads; None if there is none."""
    pinned = _PINNED.search(card)
    return None if pinned is None else pinned[1]


def published_card(
    card: str, repository: str, revision: str | None, fields: CardFields, training: Mapping[str, Any]
) -> str:
    """Return the card of a saved model for the Hub.

    Args:
        card: text of the `README.md` that the package has written.
        repository: name on the Hub, `owner/name`.
        revision: commit that the example loads. Default: None, the newest.
        fields: facts from the publisher.
        training: content of `results.json`, or an empty mapping.
    """
    name = repository.partition("/")[2]
    old = re.search(r"^# (.+)$", card, re.MULTILINE)
    before, _, rest = card.partition(_START)
    whole = ModelCard(before + rest.partition(_END)[2], ignore_metadata_errors=True)
    scores = card_scores(card)
    data: Any = whole.data  # a `ModelCardData`
    data.license = fields.license or data.license
    data.language = list(fields.languages) or data.language
    data.datasets = list(fields.datasets) or data.datasets
    data.base_model = fields.base_model or data.base_model
    if fields.base_model and isinstance(data.tags, list):  # PEFT also writes the base model into a tag
        data.tags = [re.sub(r"^(base_model:\w+:).*", rf"\1{fields.base_model}", str(tag)) for tag in data.tags]
    data.metrics = sorted({score["metric"] for score in scores}) or data.metrics
    if scores:
        data.model_name, data.eval_results = name, _evaluations(scores, data.pipeline_tag, fields.datasets, training)
    body = str(whole)
    if old is not None:
        body = body.replace(f"# {old[1]}", f"# {name}", 1)
        command = re.compile(rf"^(.*attncal [a-z ]+){re.escape(shlex.quote(old[1].strip()))}", re.MULTILINE)
        body = command.sub(lambda match: match[1] + repository, body)
    reason = "pinned: loading runs the code of this repository, and a later commit may hold other code"
    pin = f'name = "{repository}"\nrevision = "{revision or _NEWEST}"  # {reason}'
    body = re.sub(r'^name = ".*$', lambda _: pin, body, flags=re.MULTILINE)
    body = body.replace("from_pretrained(name, ", "from_pretrained(name, revision=revision, ")
    body = body.replace('"the name or folder of this adapter"', f'"{repository}"')
    section = render("published", training=training, trained=_trained(training), fields=data)
    return f"{body.rstrip()}\n\n{_START}\n{section.strip()}\n{_END}\n"


def card_scores(card: str) -> list[dict[str, Any]]:
    """Read the scores of a card: their measure, metric, split ("dev" or "test"), value and signature."""
    scores = []
    for match in _SCORE.finditer(card):
        measure, _, split = match["measure"].replace("\\|", "|").partition(" on ")
        scores.append(
            {
                "measure": measure,
                "metric": re.sub(r"\W+", "_", measure.lower()).strip("_"),
                "split": split or "test",
                "value": float(match["value"]),
                "signature": match["signature"].replace("\\|", "|"),
            }
        )
    return scores


def _evaluations(
    scores: Sequence[Mapping[str, Any]], task: str | None, datasets: Sequence[str], training: Mapping[str, Any]
) -> list[EvalResult]:
    text = training.get("config", {}).get("data", {}).get("test") or {}
    names = [name for side in text.values() if side for name in ([side] if isinstance(side, str) else side)]
    return [
        EvalResult(
            task_type=task or "word-alignment",
            dataset_type=datasets[0] if datasets else "text",
            dataset_name=datasets[0] if datasets else ", ".join(names) or "text of the training",
            dataset_split=score["split"],
            metric_type=score["metric"],
            metric_name=score["measure"],
            metric_value=score["value"],
            metric_args={"signature": score["signature"]},
        )
        for score in scores
    ]


def _trained(training: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines of the card about the training, as far as the facts are known."""
    hardware, software = training.get("hardware", {}), training.get("software", {})
    facts = {}
    if "steps" in training:
        facts["Steps"] = f"{training['steps']:,}"
    if "wall_seconds" in training:
        facts["Minutes"] = f"{training['wall_seconds'] / 60:.1f}"
    device = hardware.get("device") or hardware.get("cpu")
    if device:
        threads = f", {hardware['threads']} threads" if "threads" in hardware else ""
        facts["Hardware"] = f"{device}{threads}, {hardware.get('processes', 1)} processes"
    if training.get("commit"):
        facts["Commit of the code that trained it"] = f"`{training['commit']}`"
    if training.get("command"):
        facts["Command"] = f"`{training['command']}`"
    if software:
        facts["Software"] = ", ".join(f"{name} {version}" for name, version in software.items())
    return facts
