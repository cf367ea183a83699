"""Training job of an observer: no Trainer, since it learns from states that the model is run for once."""

import time
from dataclasses import asdict
from typing import Any

from datasets import Dataset
from transformers import AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq

from hf_attncal.adapters.observer_learning import learn_observer
from hf_attncal.data.collators import LinkCollator
from hf_attncal.data.languages import set_languages

from .adapter import AdapterJob
from .folder import finish
from .job import recorded

_BATCH = 16
_HELD_OUT = 10  # every tenth pair chooses the heads


class ObserverJob(AdapterJob):
    """Teach a head beside the attention of a frozen model word links, and score it on annotated pairs."""

    def complete(self):
        start, text = time.monotonic(), self.tokenized["train"].select_columns(["input_ids", "labels", "links"])
        if len(text) < 2 * _HELD_OUT:
            raise ValueError(f"an observer needs at least {2 * _HELD_OUT} sentence pairs, got {len(text)}. Give more.")
        settings = self.config.model
        model = AutoModelForSeq2SeqLM.from_pretrained(self.checkpoint, revision=settings.revision)
        model.to(self.run.args.device)
        set_languages(model, self.tokenizer)
        rows = range(len(text))
        observed, lesson = learn_observer(
            model,
            self._batches(text.select([row for row in rows if row % _HELD_OUT])),
            self._batches(text.select(rows[::_HELD_OUT])),
            seed=self.run.args.seed,
        )
        print(lesson)
        self.measured, self.states = [], {}
        results = {
            **recorded(self.config),
            self.config.data.units: {name: asdict(report) for name, report in self.reports.items()},
            "observer": {"heads": lesson.places, "agreement": lesson.agreement, "before": lesson.before},
            "steps": lesson.steps,
            "wall_seconds": time.monotonic() - start,
            "cpu_seconds": lesson.seconds,
            **self.counted,
        }
        results |= self.head_on_gold(observed.get_base_model())
        return finish(self.run, results, lambda folder: self.save(folder, observed, results))

    def _batches(self, text: Dataset) -> list[dict[str, Any]]:
        """Return batches with links, each of pairs of about one length."""
        collator = LinkCollator(DataCollatorForSeq2Seq(self.tokenizer))
        rows = sorted(text, key=lambda pair: len(pair["input_ids"]))
        return [collator(rows[first : first + _BATCH]) for first in range(0, len(rows), _BATCH)]
