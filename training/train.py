"""Train what a file of settings says: its `job` is translation, summarization, adapter, aligner, encoder or language.

    python training/train.py --config configs/translation/multi30k_gated.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train.py --config configs/translation/multi30k_gated.yaml --data DIR \
        --results results/gated.json training.output_dir=runs/gated training.seed=2 model.mask_penalty=0.05
    python training/train.py --config configs/adapter/gated.yaml --data DIR model.checkpoint=FOLDER

`--resume` goes on from the last checkpoint in `training.output_dir`, with the settings and the data that the run began
with unless `--allow-changes` is given. Several processes give the same model (on CPUs
`torchrun --nproc_per_node 2`, as `accelerate launch` starts one process there); only an encoder is tuned by one:

    accelerate launch --num_processes 2 training/train.py \
        --config configs/translation/multi30k_gated.yaml --data DIR training.tokens_per_batch=768

In the end `training.output_dir` holds the model (of a text the mean of the last `average_last` checkpoints; an adapter
instead, with `adapter.lora` one in a folder each and `full`, a model with both in it) with its tokenizer, what was
generated from dev and test, and `results.json` with the scores. `configs/reference_<job>.yaml` explains every key.
`attncal train`, `adapt`, `align train` and `align tune` are the same jobs without a configuration file.
"""

import sys
from typing import Any

from hf_attncal.cli import exit_status


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    from hf_attncal.training.job import run_script

    return run_script(__doc__, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main, "train.py", lambda: "--debug" in sys.argv, ValueError))
