"""Mask-Align's ablation (Chen et al., ACL 2021, tables 3 and 4): masked, leaky, agreement, end punctuation.

    python experiments/alignment_ablation.py --config configs/aligner/wpt03.yaml --data DIR --steps 900

Trains the eight combinations for equally many steps from the same seed, with everything else as in the configuration
file, and writes AER on dev (with the best threshold) and on test (with that threshold) to results/. "Without end
punctuation" leaves out, in extraction, what words put on the punctuation that ends the side they are predicted from,
and renormalises the rest: without a NULL it is the end of the sentence that takes what aligns to nothing.
"""

import argparse
import tempfile
from itertools import product
from pathlib import Path

from committed import RESULTS

from hf_attncal import WordAligner
from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
from hf_attncal.alignment.gold import THRESHOLDS, score_aligner
from hf_attncal.alignment.mask_align import MaskAlignSource
from hf_attncal.data.gold import Gold
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import is_punctuation
from hf_attncal.training.settings_yaml import read_settings

SWITCHES = ("masked", "leaky", "agreement")


class WithoutEndPunctuation(MaskAlignSource):
    """Leaves out the weights of words on the punctuation at the end of the side that a direction reads."""

    def directions(self, pairs):
        forward, backward, target_null, source_null = super().directions(pairs)
        for row, (source, target) in enumerate(pairs):
            for read, predicted, side, null in (
                (source, target, forward, target_null),
                (target, source, backward, source_null),
            ):
                if not self._is_punctuation(read[-1]):
                    continue
                words = [place for place, token in enumerate(predicted) if not self._is_punctuation(token)]
                side[row, words, len(read) - 1] = 0
                total = (side[row].sum(dim=1) + null[row]).clamp(min=1e-9)
                side[row] /= total.unsqueeze(1)
                null[row] /= total
        return forward, backward, target_null, source_null

    def _is_punctuation(self, token) -> bool:
        return is_punctuation(self.tokenizer.decode([token]).strip())


def switched(values: dict, masked: bool, leaky: bool, agreement: bool) -> dict:
    """The settings with the three parts on or off."""
    model = {**values.get("model", {}), "mask_diagonal": masked, "leaky": leaky}
    if not agreement:
        model["agreement_weight"] = 0.0
    return {**values, "model": model}


def scores(aligner: WordAligner, golds: dict[str, Gold]) -> dict:
    """AER on dev with the best threshold, and on test with the same."""
    threshold, dev = min(
        ((tau, score_aligner(aligner, golds["dev"], tau)) for tau in THRESHOLDS), key=lambda pair: pair[1].aer
    )
    test = score_aligner(aligner, golds["test"], threshold, bootstrap=1000)
    return {
        "threshold": threshold,
        "dev": dev.aer,
        "test": test.aer,
        "interval": test.interval,
        "signature": test.signature,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--data", required=True, help="folder of the files that the config names")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--only", nargs="+", type=int, help="numbers of the combinations to run, from 0")
    parser.add_argument("--output", type=Path, default=RESULTS / "aligner_ablation.json")
    parser.add_argument("settings", nargs="*", help="section.key=value")
    options = parser.parse_intermixed_args()
    values = read_settings(options.config, options.settings)
    rows = []
    for number, parts in enumerate(product((False, True), repeat=3)):
        if options.only and number not in options.only:
            continue
        config = AlignerConfig.make(switched(values, *parts))
        config.data.root = options.data
        golds = {
            name: Gold.load(config.data.corpus(name), config.data.files()[getattr(config.data, name)["gold"]])
            for name in ("dev", "test")
        }
        with tempfile.TemporaryDirectory() as folder:
            config.training |= {
                "output_dir": folder,
                "max_steps": options.steps,
                "eval_strategy": "no",
                "save_strategy": "no",
                "disable_tqdm": True,
            }
            config.training.pop("num_train_epochs", None)
            results = AlignerJob.train(config)
            aligner = WordAligner.from_pretrained(folder, device="cpu")
            without = WordAligner(aligner.model, aligner.tokenizer)
            without.source = WithoutEndPunctuation(aligner.model, aligner.tokenizer)
        row = {
            **dict(zip(SWITCHES, parts, strict=True)),
            "prediction": config.model["prediction"],
            "with_end_punctuation": scores(aligner, golds),
            "without_end_punctuation": scores(without, golds),
            "held_out": results.get("held_out"),
            "minutes": results["wall_seconds"] / 60,
        }
        print(row, flush=True)
        rows.append(row)
        head = records.record(config.published(), config.data.files())
        write_json(head | {"steps": options.steps, "rows": rows}, options.output)


if __name__ == "__main__":
    main()
