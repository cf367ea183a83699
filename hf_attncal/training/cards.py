"""Model cards of what a run leaves: names of its data, scores, and the chosen licence."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hf_attncal.families import FAMILIES
from hf_attncal.hub import Result, write_model_card, write_trained_adapter_card
from hf_attncal.inference.revision import revision_of

from .settings import Settings, as_list

# Of the example: whose sentences a text holds is not ours to publish.
SENTENCE = "A sentence to translate."
TEXT = "A text that is longer than its summary."
PAIR = "A source sentence . ||| Its translation ."
BEGINNING = ""  # of a text: any has it
# The scores of generated text, by their keys in a results file.
MEASURES = {"bleu": "BLEU"}
MEASURES |= {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


def write_card(
    folder: Path,
    config: Settings,
    results: dict[str, Any],
    summary: str,
    scores: Iterable[Result],
    example: str,
    task: str | None = None,
) -> None:
    """Write the card of a model of this package.

    Args:
        folder: folder that it is saved in.
        config: settings of the run.
        results: results of the run, with what was kept of its text.
        summary: what the model is, in a sentence.
        scores: what was measured.
        example: `SENTENCE`, for summaries `TEXT`, for an aligner `PAIR`, for a language model `BEGINNING`.
        task: task in the Hub's terms; None for the task of the model's family.
    """
    about = about_run(config, results)
    write_model_card(folder, **about, summary=summary, results=list(scores), example=example, task=task)


def write_card_of_adapter_run(
    folder: Path, config: Settings, results: dict[str, Any], summary: str, scores: Iterable[Result], base: str
) -> None:
    """Write the card of an adapter; `base` is the model that it adapts, else as `write_card`."""
    local = Path(base).is_dir()
    written = {"base_model": None if local else base, "base": f"`{base_name(base)}`"}
    if local:
        written["base"] += f" (`{revision_of(base)}`)"
    search = config.evaluation
    written["search"] = {"num_beams": search.num_beams, "length_penalty": search.length_penalty}
    if search.max_new_tokens is not None:
        written["search"]["max_new_tokens"] = search.max_new_tokens
    about = about_run(config, results)
    write_trained_adapter_card(folder, **about, **written, summary=summary, results=list(scores))


def base_name(base: str) -> str:
    """Return the name of a base model for a card, without the folders that it lies in."""
    return Path(base).resolve().name if Path(base).is_dir() else base


def split_name(config: Settings, split: str) -> str:
    """Return the name of a split for a card."""
    return f"{split} (held-out training text)" if getattr(config.data, split) is None else split


def score_results(score: dict[str, Any], what: str) -> list[Result]:
    """Return the scores of generated text as results for a card."""
    measures = {label: score[name] for name, label in MEASURES.items() if name in score}
    return [Result(f"{label} on {what}", value, score["signature"]) for label, value in measures.items()]


def attention(config: Any) -> str:
    """Say in words which attention the configuration of a model, or of an adapter, describes."""
    family = FAMILIES.get(getattr(config, "model_type", None))
    return (switches_in_words if family is None else family.resolve("attention"))(config)


def switches_in_words(config: Any) -> str:
    """Say in words which switches are on in a configuration, of those that it has."""
    calibration = getattr(config, "calibration", None)
    words = {
        "calibration": f"{calibration} calibration",
        "leaky": "a NULL column",
        "gumbel": "Gumbel choice",
        "output_gate": "an output gate",
        "copy": "copying",
        "guided": "a head that learned word links",
    }
    on = (text for switch, text in words.items() if getattr(config, switch, None))
    return " and ".join(on) or "no calibration"


def window_in_words(config: Any) -> str:
    """Say in words which attention a recurrent model has, if it has any."""
    return "no attention" if config.attention_window is None else switches_in_words(config)


def streams_in_words(config: Any) -> str:
    """Say in words which attention a Discrete Transformer has."""
    streams = "one stream" if config.streams == 1 else "a syntactic and a semantic stream"
    return f"{'hard' if config.hard_attention else 'soft'} attention in {streams}"


def about_run(config: Settings, results: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that say the same in every card: name, training data, languages, licence."""
    data, train = config.data, config.data.train
    files = [name for side in data.sides for name in as_list(train.get(side, []))]
    names = [train["dataset"]] if "dataset" in train else files
    listed = ", ".join(f"`{Path(name).name if 'dataset' not in train else name}`" for name in names)
    return {
        "model_name": Path(config.training["output_dir"]).resolve().name,
        "training_data": f"{listed}: {results[data.units]['train']['kept']:,} {data.units.replace('_', ' ')}",
        "languages": config.card.languages,
        "license": config.card.license,
    }
