"""Train a language model (Discrete Transformer) from text, a sequence a line: tokenizer, model, perplexity.

    python training/train_language.py --config configs/language/stack_single.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train_language.py --config configs/language/stack_single.yaml --data DIR \
        --results results/single.json training.output_dir=runs/single training.seed=2 model.receptive_field_penalty=0.2

`--resume` goes on from the last checkpoint in `training.output_dir`, with the settings and the data that the run began
with unless `--allow-changes` is given. Several processes: `accelerate launch` on GPUs, `torchrun --nproc_per_node 2`
on CPUs. `attncal train --text` is the same job without a configuration file. In the end `training.output_dir` holds
the model with its tokenizer, and `results.json` with perplexity and receptive fields on dev and test.
`configs/reference_language.yaml` explains every key.
"""

import sys
from typing import Any

from hf_attncal.cli import exit_status


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    from hf_attncal.training.language import LanguageConfig, train_language
    from hf_attncal.training.run import run_script

    return run_script(train_language, LanguageConfig, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main, "train_language.py", lambda: "--debug" in sys.argv, ValueError))
