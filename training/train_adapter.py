"""Train an adapter on a finished translation model, or what it is compared with: a LoRA, or all of the weights.

    python training/train_adapter.py --config configs/adapter/gated.yaml --data DIR model.checkpoint=FOLDER

`model.checkpoint` is a folder or Hub id of a Marian, BART, mBART, Pegasus or M2M100 model. A model that
`train_translation.py` trained without any switch is such a model, too: a stock copy of it goes to the output folder.
Any setting can follow as `section.key=value`:

    python training/train_adapter.py --config configs/adapter/gated.yaml --data DIR --results results/gated.json \
        model.checkpoint=runs/multi30k training.output_dir=runs/gated training.seed=2 adapter.mask_rank=16

`--resume` goes on from the last checkpoint in `training.output_dir`, with the settings and the data that the run began
with unless `--allow-changes` is given. Several processes: `accelerate launch` on GPUs, `torchrun --nproc_per_node 2`
on CPUs. In the end `training.output_dir` holds the adapter (or the model) with its tokenizer, the translations, and
`results.json` with BLEU before and after. With `adapter.lora` there are two adapters, each in a folder of its own, and
`full`, a model with both in it (Marian and BART). `configs/reference_adapter.yaml` explains every key.
"""

import sys
from typing import Any

from hf_attncal.cli import exit_status


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    from hf_attncal.training.adapter import AdapterConfig, train_adapter
    from hf_attncal.training.run import run_script

    return run_script(train_adapter, AdapterConfig, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main, "train_adapter.py", lambda: "--debug" in sys.argv, ValueError))
