"""Train a model that summarises, or writes headlines: tokenizer, model, checkpoints, ROUGE on dev and test.

    python training/train_summarization.py --config configs/summarization/headlines_seass.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train_summarization.py --config configs/summarization/headlines_seass.yaml --data DIR \
        --results results/seass.json training.output_dir=runs/seass training.seed=2 model.dropout=0.2

`--resume` goes on from the last checkpoint in `training.output_dir`, with the settings and the data that the run began
with unless `--allow-changes` is given. Several processes give the same model (on CPUs
`torchrun --nproc_per_node 2`, as `accelerate launch` starts one process there):

    accelerate launch --num_processes 2 training/train_summarization.py \
        --config configs/summarization/headlines_seass.yaml --data DIR training.tokens_per_batch=2048

In the end `training.output_dir` holds the model (the mean of the last `average_last` checkpoints) with its tokenizer,
the summaries of the test text, and `results.json`. `configs/reference_summarization.yaml` explains every key.
"""

import sys
from typing import Any

from hf_attncal.cli import exit_status


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    from hf_attncal.training.run import run_script
    from hf_attncal.training.summarization import SummarizationConfig, train_summarization

    return run_script(train_summarization, SummarizationConfig, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main, "train_summarization.py", lambda: "--debug" in sys.argv, ValueError))
