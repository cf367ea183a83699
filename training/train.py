"""Train what a file of settings says: its `job` is translation, summarization, adapter, aligner or language.

    python training/train.py --config configs/translation/multi30k_gated.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train.py --config configs/translation/multi30k_gated.yaml --data DIR \
        --results results/gated.json training.output_dir=runs/gated training.seed=2 model.mask_penalty=0.05
    python training/train.py --config configs/adapter/gated.yaml --data DIR model.checkpoint=FOLDER

`--resume` goes on from the last checkpoint in `training.output_dir`, with the settings and the data that the run began
with. Several processes read the same batches (on CPUs
`torchrun --nproc_per_node 2`, as `accelerate launch` starts one process there):

    accelerate launch --num_processes 2 training/train.py \
        --config configs/translation/multi30k_gated.yaml --data DIR training.tokens_per_batch=768

In the end `training.output_dir` holds the model (of a text the mean of the last `average_last` checkpoints) or the
adapter with its tokenizer, what was generated from dev and test, and `results.json` with the scores.
`configs/reference_<job>.yaml` explains every key.
`attncal train`, `adapt` and `align train` are the same jobs without a configuration file.
"""

import argparse
import sys
from pkgutil import resolve_name
from typing import Any

from hf_attncal.commands import exit_status


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job that a file of settings names, and return its results.

    Args:
        arguments: arguments of the command line; by default those of the process.

    Raises:
        ValueError: the file names no job, or an unknown one; or settings or data are wrong.
        KeyboardInterrupt: the user interrupts the run; the message says how to go on.
    """
    from accelerate import PartialState

    import hf_attncal.alignment.counting  # noqa: F401 - makes the links of a guided training
    from hf_attncal.command_table import JOBS
    from hf_attncal.io import gate
    from hf_attncal.io.files import write_json
    from hf_attncal.training.sections import merge_settings, read_settings

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, help="YAML file")
    parser.add_argument("--data", help="folder of the data files (data.root)")
    parser.add_argument("--results", help="write results.json to this file too")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint, if there is one")
    parser.add_argument("--debug", action="store_true", help="show where in the code an error arose")
    parser.add_argument("settings", nargs="*", help="section.key=value")
    options = parser.parse_intermixed_args(arguments)
    values = read_settings(options.config, options.settings)
    if options.data:
        merge_settings(values, {"data": {"root": options.data}})
    name = values.get("job")
    if name not in JOBS:
        raise ValueError(
            f"`job` must be one of {', '.join(JOBS)}, got {name!r}. Add it to {options.config} (`job: translation`), "
            "or to the command (`job=translation`)."
        )
    job = resolve_name(JOBS[name])
    config = job.settings.make(values)
    if options.results:
        with gate.job():
            gate.note_inputs(options.config, *config.data.files().values(), *config.starts().values())
            gate.check_file(options.results, "--results")
    command = ["python", *sys.argv] if arguments is None else [parser.prog, *arguments]
    results = job.train(config, resume=options.resume, command=command)
    if options.results and PartialState().is_main_process:
        write_json(results, options.results)
    return results


if __name__ == "__main__":
    sys.exit(exit_status(main, "train.py", lambda: "--debug" in sys.argv, ValueError))
