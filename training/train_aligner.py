"""Train a word aligner from parallel text: tokenizer, model, threshold, AER on dev and test.

    python training/train_aligner.py --config configs/aligner/wpt03.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train_aligner.py --config configs/aligner/wpt03.yaml --data DIR \
        --results results/aligner.json training.output_dir=runs/aligner data.train.guide=links.pharaoh

`--resume` goes on from the last checkpoint in `training.output_dir`, with the settings and the data that the run began
with unless `--allow-changes` is given. Several processes: `accelerate launch` on GPUs, `torchrun --nproc_per_node 2`
on CPUs. `attncal align train` is the same job without a configuration file. `configs/reference_aligner.yaml` explains
every key.
"""

import sys
from typing import Any

from hf_attncal.cli import exit_status


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    from hf_attncal.training.run import run_script
    from hf_attncal.training.word_alignment import AlignerConfig, train_aligner

    return run_script(train_aligner, AlignerConfig, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main, "train_aligner.py", lambda: "--debug" in sys.argv, ValueError))
