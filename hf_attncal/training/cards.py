"""Model cards of what a run leaves: names of its data, scores, and the chosen licence."""

from pathlib import Path
from typing import Any

from hf_attncal.data.languages import card_languages
from hf_attncal.families import FAMILIES
from hf_attncal.hub.model_cards import Result

from .settings import Settings, as_list

# Input of the example in a card: whose sentences a text holds is not ours to publish.
SENTENCE = "A sentence to translate."
SUMMARY_EXAMPLE = "A text that is longer than its summary."
PAIR = "A source sentence . ||| Its translation ."
BEGINNING = ""  # of a text: any has it
# The scores of generated text, by their keys in a results file.
CARD_MEASURES = {"bleu": "BLEU"}
CARD_MEASURES |= {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


def base_name(base: str) -> str:
    """Return the name of a base model for a card, without the folders that it lies in."""
    return Path(base).resolve().name if Path(base).is_dir() else base


def split_name(config: Settings, split: str) -> str:
    """Return the name of a split for a card."""
    return f"{split} (held-out training text)" if getattr(config.data, split) is None else split


def score_results(score: dict[str, Any], what: str) -> list[Result]:
    """Return the scores of generated text as results for a card."""
    measures = {label: score[name] for name, label in CARD_MEASURES.items() if name in score}
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
        "languages": config.card.languages or card_languages(config.languages),
        "license": config.card.license,
    }
