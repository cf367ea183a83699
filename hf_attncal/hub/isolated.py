"""Test that a saved folder works where this package is not installed.

A new process runs this file as a program. It reads a request from standard input, and writes the name of the model's
class to standard output and, if there are sentences, their translations; both are JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def translate_in_fresh_process(folder: str | Path, sentences: Sequence[str], **options: Any) -> list[str]:
    """Translate with a saved folder in a new Python process in which `import hf_attncal` fails.

    The process uses only transformers and the folder, with `trust_remote_code=True`, as other people do. Transformers
    copies the folder's code into a temporary cache.

    Args:
        folder: folder of the model.
        sentences: source sentences; they are translated in one batch.
        options: options of `generate` (`num_beams=4`); the defaults are in the saved generation config.

    Raises:
        RuntimeError: the folder does not load or does not generate; the message ends with that process's error.
    """
    request = {"name": str(Path(folder).resolve()), "auto": "AutoModelForSeq2SeqLM"}
    return _run_isolated(request | {"sentences": list(sentences), "options": options})["texts"]


def load_in_fresh_process(folder: str | Path, auto: str = "AutoModelForSeq2SeqLM") -> str:
    """Load a saved folder by an Auto class in a new Python process without this package and without the network.

    Returns:
        The name of the model's class.

    Raises:
        RuntimeError: it does not load; the message ends with that process's error.
    """
    return _run_isolated({"name": str(Path(folder).resolve()), "auto": auto})["class"]


def _run_isolated(request: dict[str, Any]) -> dict[str, Any]:
    """Run the program in a process without this package, and return its answer."""
    with tempfile.TemporaryDirectory() as cache:
        process = subprocess.run(
            [sys.executable, "-I", __file__],
            input=json.dumps({"sentences": [], "options": {}} | request),
            env={**os.environ, "HF_MODULES_CACHE": cache, "HF_HUB_OFFLINE": "1"},
            cwd=cache,
            capture_output=True,
            text=True,
            check=False,
        )
    if process.returncode != 0:
        raise RuntimeError(f"{request['name']} does not work without the package: {process.stderr.strip()[-2000:]}")
    return json.loads(process.stdout)


def main() -> None:
    """Load a model as on a machine with only transformers, and answer the request on standard input."""
    import transformers

    sys.modules["hf_attncal"] = None  # type: ignore[assignment]  # makes every import of the package fail
    request = json.load(sys.stdin)
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["name"], trust_remote_code=True)
    model = getattr(transformers, request["auto"]).from_pretrained(request["name"], trust_remote_code=True).eval()
    answer = {"class": type(model).__name__, "texts": []}
    if request["sentences"]:
        batch = tokenizer(request["sentences"], return_tensors="pt", padding=True)
        tokens = model.generate(**batch, **request["options"])
        answer["texts"] = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
