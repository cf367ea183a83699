"""Tune the states of an encoder on parallel text, so that they align words; AER before and after on dev and test.

    python training/train_encoder.py --config FILE --data DIR model.checkpoint=MODEL

`--data DIR` is the folder of the files that the config names. Any setting can follow as `section.key=value`.
`--resume` goes on from the last checkpoint in `training.output_dir`, with the settings and the data that the run began
with unless `--allow-changes` is given. One process. `attncal align tune` is the same job without a configuration file.
`configs/reference_encoder.yaml` explains every key.
"""

import sys
from typing import Any

from hf_attncal.cli import exit_status


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    from hf_attncal.training.encoder_alignment import TunedEncoderConfig, tune_encoder
    from hf_attncal.training.run import run_script

    return run_script(tune_encoder, TunedEncoderConfig, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main, "train_encoder.py", lambda: "--debug" in sys.argv, ValueError))
