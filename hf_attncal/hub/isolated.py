"""Test that a saved folder works where this package is not installed."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("isolated_translation.py")


def translate_in_fresh_process(folder: str | Path, sentences: Sequence[str], **options: Any) -> list[str]:
    """Translate with a saved folder in a new Python process in which `import hf_attncal` fails.

    The process uses only transformers and the folder, with `trust_remote_code=True`, as other people do. The code that
    transformers copies from the folder goes to a temporary cache.

    Args:
        folder: folder of the model.
        sentences: source sentences; they are translated in one batch.
        options: options of `generate` (`num_beams=4`); the saved generation config gives the others.

    Raises:
        RuntimeError: the folder does not load or does not generate there; the message ends with that process's error.
    """
    request = {"folder": str(Path(folder).resolve()), "sentences": list(sentences), "options": options}
    with tempfile.TemporaryDirectory() as cache:
        process = subprocess.run(
            [sys.executable, "-I", str(PROGRAM)],
            input=json.dumps(request),
            env={**os.environ, "HF_MODULES_CACHE": cache, "HF_HUB_OFFLINE": "1"},
            cwd=cache,
            capture_output=True,
            text=True,
            check=False,
        )
    if process.returncode != 0:
        raise RuntimeError(f"{folder} does not work without the package: {process.stderr.strip()[-2000:]}")
    return json.loads(process.stdout)
