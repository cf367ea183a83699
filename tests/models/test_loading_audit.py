"""The code that `save_pretrained` puts beside the weights starts nothing, connects to nothing and writes nowhere.

Not what its text says (that is in test_imports.py), but what an audit hook of Python sees while it runs.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import tiny_model, tiny_stock_model
from shipped import ALIGNER, MODELS, SHIPPED
from warm import warm

from hf_attncal import MaskAlignConfig, MaskAlignModel

PROGRAM = Path(__file__).with_name("load_under_audit.py")
MISDEEDS = """
import socket, subprocess, sys
import sacrebleu
subprocess.run([sys.executable, "-c", ""])
socket.socket().connect_ex(("127.0.0.1", 9))
open({file!r}, "w").close()
open({read!r}).close()
"""


@pytest.fixture(scope="module")
def audit(tmp_path_factory) -> dict:
    """Saved folder -> what was seen as it was loaded and used without the package; the paths it was seen with."""
    root = tmp_path_factory.mktemp("audit")
    tiny_stock_model("marian", torch.float32).save_pretrained(root / "stock")
    for family, switches in MODELS.items():
        tiny_model(family, torch.float32, **switches).save_pretrained(root / family)
    MaskAlignModel(MaskAlignConfig(**ALIGNER)).save_pretrained(root / "aligner")
    shutil.copytree(root / "marian", root / "misdeeds")
    (root / "outside.txt").write_text("", encoding="utf-8")
    with (root / "misdeeds" / "modeling_attncal_marian.py").open("a", encoding="utf-8") as file:
        file.write(MISDEEDS.format(file=str(root / "left behind"), read=str(root / "outside.txt")))
    home = root / "home"
    home.mkdir()
    variables = {"HF_HOME": home, "HF_MODULES_CACHE": home / "modules", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    folders = [root / name for name in ("stock", *MODELS, "aligner", "misdeeds")]
    done = subprocess.run(
        warm([sys.executable, PROGRAM, *folders], "bare"),
        env={**os.environ, **{name: str(value) for name, value in variables.items()}},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")][-1]
    return {"root": root, "cache": home / "modules", **json.loads(answer.removeprefix("ANSWER "))}


def outside(paths: list[str], *folders: Path) -> list[str]:
    return [path for path in paths if not any(Path(path).is_relative_to(folder) for folder in folders)]


def strangers(imports: list[str]) -> set[str]:
    """Imported packages that are neither of the standard library nor what shipped code may import, nor that itself."""
    return {*imports} - {*sys.stdlib_module_names, "transformers_modules", *SHIPPED}


@pytest.mark.parametrize("name", [*MODELS, "aligner"])
def test_a_saved_folder_only_reads_and_computes(audit, name):
    seen = audit[name]
    assert strangers(seen["imports"]) == set()
    assert seen["starts"] == []
    assert outside(seen["writes"], audit["cache"]) == []
    packages = [Path(sys.prefix), Path(sys.base_prefix), Path("/proc"), Path("/sys")]
    assert outside(seen["reads"], audit["cache"], audit["root"] / name, *packages) == []


def test_the_hook_sees_what_must_not_be(audit):
    seen = audit["misdeeds"]
    assert "sacrebleu" in strangers(seen["imports"])
    assert {"subprocess.Popen", "socket.connect"} <= {event.split()[0] for event in seen["starts"]}
    assert str(audit["root"] / "left behind") in outside(seen["writes"], audit["cache"])
    assert str(audit["root"] / "outside.txt") in seen["reads"]
