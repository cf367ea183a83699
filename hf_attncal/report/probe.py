"""Probe for a model without masks: an adapter that learns masks and does not change translations."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hf_attncal.report.corpus import Corpus

_MAX_REPEATED = 0.1  # share of analysed pairs in the probe's text; short sentences recur in any text
_MAX_ANALYSED_PAIRS = 500  # pairs to analyse if the probe is trained on the rest
_MIN_TRAINING_PAIRS = 500
_TRAINING = {"disable_tqdm": True}


def parted(corpus: Corpus, text: Corpus | None, checkpoint: str) -> tuple[Corpus, Corpus]:
    """Return the pairs to analyse and the training pairs of the probe.

    Args:
        corpus: pairs to analyse.
        text: training pairs of the probe. None splits `corpus`: the first 500 pairs (at most a fifth) are analysed,
            the others train the probe.
        checkpoint: name of the model, for messages.

    Raises:
        ValueError: the corpus is too small for both, or shares too many sources with `text`, on which masks would look
            too good.
    """
    if text is not None:
        training_sources = set(text.sources)
        repeated = sum(source in training_sources for source in corpus.sources)
        if repeated > _MAX_REPEATED * len(corpus.sources):
            raise ValueError(
                f"{repeated} of the {len(corpus.sources)} sources to analyse are also in the text of the probe. "
                "Give other text with --source."
            )
        return corpus, text
    if corpus.gold is not None or corpus.tags is not None:
        raise ValueError(
            f"{checkpoint} has no masks, and a probe needs other text than that of --gold or --tags. "
            "Give --probe-text SOURCE TARGET, or --no-probe."
        )
    count = min(_MAX_ANALYSED_PAIRS, max(1, len(corpus.sources) // 5))
    if len(corpus.sources) - count < _MIN_TRAINING_PAIRS:
        raise ValueError(
            f"the text has {len(corpus.sources)} lines, too few to train a probe on most of them. "
            "Give some thousand pairs with --probe-text SOURCE TARGET, or --no-probe."
        )
    return corpus.first(count), corpus.rest(count)


@contextmanager
def trained_probe(checkpoint: str, text: Corpus, seed: int, languages: str | None = None) -> Iterator[str]:
    """Train a probe with its preset, as `attncal adapt MODEL --config probe` does.

    Args:
        checkpoint: folder or Hub name of the model; its weights do not change.
        text: training pairs.
        seed: seed of the adapter and of the order of the text.
        languages: languages of the text, for a multilingual model. Default: none.

    Yields:
        The folder of the adapter, which is deleted at the end of the block.

    Raises:
        ValueError: see `train_adapter`.
    """
    from hf_attncal.training.adapter import AdapterJob  # needs PEFT and the Trainer

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
    """Raise ValueError if the model cannot have a probe."""
    try:
        from hf_attncal.adapters.tuner import check_adaptable

        check_adaptable(model)
        if not checkpoint:
            raise ValueError("an adapter needs a saved model. Give the model by name.")
    except ValueError as error:
        raise ValueError(f"No probe: {error} Or pass --no-probe.") from error
