"""Train a word aligner from parallel text: tokenizer, model, threshold, AER on dev and test.

    python training/train_aligner.py --config configs/aligner_wpt03.yaml --data DIR

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`:

    python training/train_aligner.py --config configs/aligner_wpt03.yaml --data DIR \
        --results results/aligner.json training.output_dir=runs/aligner data.train.guide=links.pharaoh

`--resume` goes on from the last checkpoint in `training.output_dir`. Several processes: `accelerate launch` on GPUs,
`torchrun --nproc_per_node 2` on CPUs. `attncal align train` is the same job without a configuration file.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from hf_attncal.alignment.training import make_aligner_config, train_aligner
from hf_attncal.training_config import read_settings


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, help="YAML file")
    parser.add_argument("--data", help="folder of the data files (data.root)")
    parser.add_argument("--results", help="write results.json to this file too")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("settings", nargs="*", help="section.key=value")
    options = parser.parse_intermixed_args(arguments)
    config = make_aligner_config(read_settings(options.config, options.settings))
    if options.data:
        config.data.root = options.data
    results = train_aligner(config, resume=options.resume)
    if options.results:
        path = Path(options.results)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    main()
