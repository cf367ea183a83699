"""Train a translation model from parallel text: tokenizer, model, checkpoints, averaging, BLEU on dev and test.

    python training/train_translation.py --config configs/translation/multi30k_gated.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train_translation.py --config configs/translation/multi30k_gated.yaml --data DIR \
        --results results/gated.json training.output_dir=runs/gated training.seed=2 model.mask_penalty=0.05

`--resume` goes on from the last checkpoint in `training.output_dir`, with the settings and the data that the run began
with unless `--allow-changes` is given. Several processes give the same model (on CPUs
`torchrun --nproc_per_node 2`, as `accelerate launch` starts one process there):

    accelerate launch --num_processes 2 training/train_translation.py \
        --config configs/translation/multi30k_gated.yaml --data DIR training.tokens_per_batch=768

In the end `training.output_dir` holds the model (the mean of the last `average_last` checkpoints) with its tokenizer,
the translations of the test text, and `results.json`. `configs/reference_translation.yaml` explains every key.
"""

import sys
from typing import Any

from hf_attncal.cli import exit_status


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    from hf_attncal.training.run import run_script
    from hf_attncal.training.translation import TranslationConfig, train_translation

    return run_script(train_translation, TranslationConfig, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main, "train_translation.py", lambda: "--debug" in sys.argv, ValueError))
