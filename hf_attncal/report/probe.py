"""Train a probe for a model without masks: an adapter that learns masks and changes nothing that the model writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hf_attncal.report.corpus import Corpus

_MOST_AGAIN = 0.1  # of the pairs to look at: short sentences come again in any text
_LOOKED_AT = 500  # pairs to look at, where the probe learns from the same text
_LEAST = 500  # pairs that a probe learns from
_TRAINING = {"disable_tqdm": True}


def parted(corpus: Corpus, text: Corpus | None, checkpoint: str) -> tuple[Corpus, Corpus]:
    """Return the pairs to look at, and those that the probe learns from.

    Args:
        corpus: the pairs to analyse.
        text: what the probe learns from; None for all pairs but the first 500 (at most a fifth), which are looked at.
        checkpoint: the model, for messages.

    Raises:
        ValueError: the corpus is too little for both, or many of its pairs are those of `text`, on which the masks say
            more than they know.
    """
    if text is not None:
        known = set(text.sources)
        again = sum(source in known for source in corpus.sources)
        if again > _MOST_AGAIN * len(corpus.sources):
            raise ValueError(
                f"{again} of the {len(corpus.sources)} pairs to look at have a source that the probe learns from. "
                "Give other text with --source."
            )
        return corpus, text
    if corpus.gold is not None or corpus.tags is not None:
        raise ValueError(
            f"{checkpoint} has no masks, and a probe must learn from other text than that with --gold or --tags: "
            "give --probe-text SOURCE TARGET, or --no-probe."
        )
    count = min(_LOOKED_AT, max(1, len(corpus.sources) // 5))
    if len(corpus.sources) - count < _LEAST:
        raise ValueError(
            f"the text has {len(corpus.sources)} lines, too few to train a probe on most and to look at the "
            "others: give --probe-text SOURCE TARGET, some thousand pairs, or --no-probe."
        )
    return corpus.first(count), corpus.rest(count)


@contextmanager
def trained_probe(checkpoint: str, text: Corpus, seed: int, languages: str | None = None) -> Iterator[str]:
    """Train a probe by its preset, as `attncal adapt MODEL --config probe` does.

    Args:
        checkpoint: the model: a folder, or its name on the Hub. Its weights stay as they are.
        text: sentence pairs to learn from.
        seed: of the adapter and of the order of the text.
        languages: of the text, for a model of many.

    Yields:
        The folder of the adapter, which is dropped in the end.

    Raises:
        ValueError: see `train_adapter`.
    """
    from hf_attncal.training.adapter import AdapterJob  # an analysis without a probe needs neither PEFT nor Trainer

    with TemporaryDirectory(prefix="attncal-probe-") as folder:
        files = {}
        for side, lines in (("source", text.sources), ("target", text.targets)):
            file = Path(folder).resolve() / f"text.{side}"
            file.write_bytes("".join(f"{line}\n" for line in lines).encode())
            files[side] = str(file)
        adapter = str(Path(folder) / "adapter")
        values: dict[str, Any] = {
            "preset": "probe",
            "data": {"train": files},
            "model": {"checkpoint": checkpoint},
            "training": {"output_dir": adapter, "seed": seed, **_TRAINING},
        }
        if languages is not None:
            values["languages"] = languages
        AdapterJob.train(AdapterJob.settings.make(values))
        yield adapter


def check_can_have_probe(model, checkpoint: str) -> None:
    """Raise ValueError, before text is read for a probe, if the model cannot have one; the message says what to do."""
    try:
        from hf_attncal.adapters.tuner import check_adaptable

        check_adaptable(model)
        if not checkpoint:
            raise ValueError("the model must be saved, because an adapter names its model. Give its name.")
    except ValueError as error:
        raise ValueError(f"No probe: {error} To do without one: --no-probe.") from error
