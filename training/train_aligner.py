"""Train a word aligner from parallel text: tokenizer, model, threshold, AER on dev and test.

    python training/train_aligner.py --config configs/aligner/wpt03.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train_aligner.py --config configs/aligner/wpt03.yaml --data DIR \
        --results results/aligner.json training.output_dir=runs/aligner data.train.guide=links.pharaoh

`--resume` goes on from the last checkpoint in `training.output_dir`. Several processes: `accelerate launch` on GPUs,
`torchrun --nproc_per_node 2` on CPUs. `attncal align train` is the same job without a configuration file.
"""

from typing import Any

from accelerate import PartialState

from hf_attncal.metrics import records
from hf_attncal.training.settings import parse_arguments, read_settings
from hf_attncal.training.word_alignment import make_aligner_config, train_aligner


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    options = parse_arguments(__doc__, arguments)
    config = make_aligner_config(read_settings(options.config, options.settings))
    if options.data:
        config.data.root = options.data
    results = train_aligner(config, resume=options.resume)
    if options.results and PartialState().is_main_process:
        records.write(results, options.results)
    return results


if __name__ == "__main__":
    main()
