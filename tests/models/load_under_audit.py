"""Audit of the imports, writes and processes of loading saved folders; `test_loading_audit.py` runs this file.

The first folder is that of a stock model: what the libraries do by themselves has happened before ours is looked at.
Prints, for each of the other folders, what an audit hook has seen.
"""

import json
import os
import sys
from pathlib import Path

import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.symlink", "os.link", "os.truncate")
STARTS = ("subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.spawn", "ctypes.dlopen")
seen: dict[str, set[str]] | None = None  # of the folder that is being used


def look(event: str, args: tuple) -> None:
    if seen is None:
        return
    if event == "import":
        seen["imports"].add(args[0].partition(".")[0])
    elif event == "open" and isinstance(args[0], str | bytes):
        seen["writes" if args[2] & WRITING else "reads"].add(os.path.abspath(os.fsdecode(args[0])))
    elif event in CHANGES:
        seen["writes"] |= {os.path.abspath(os.fsdecode(path)) for path in args if isinstance(path, str | bytes)}
    elif event.startswith("socket.") and event != "socket.gethostname":
        seen["starts"].add(event)
    elif event.startswith(STARTS):
        seen["starts"].add(f"{event} {args[0]}")


def use(folder: Path) -> None:
    """Load, train and generate, or align."""
    kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    auto = AutoModel if "MaskAlign" in kind else AutoModelForSeq2SeqLM
    model = auto.from_pretrained(folder, trust_remote_code=True)
    assert (type(model).__module__.partition(".")[0] == "transformers_modules") == (folder.name != "stock")
    tokens = torch.tensor([[4, 5, 6], [5, 6, 2]])
    if auto is AutoModel:
        pair = {"input_ids": tokens, "target_input_ids": tokens}
        masks = {name.replace("input_ids", "attention_mask"): torch.ones_like(ids) for name, ids in pair.items()}
        model.train()(**pair, **masks, return_loss=True).loss.backward()
        model.eval().alignments(**pair, **masks)
    else:
        model.train()(input_ids=tokens, labels=tokens).loss.backward()
        model.eval().generate(input_ids=tokens, num_beams=2, max_new_tokens=4)


def main(folders: list[Path]) -> None:
    global seen
    sys.modules["hf_attncal"] = None  # so that every import of the package fails, installed or not
    torch.set_num_threads(1)
    use(folders[0])
    sys.addaudithook(look)
    found = {}
    for folder in folders[1:]:
        seen = {"imports": set(), "writes": set(), "reads": set(), "starts": set()}
        try:
            use(folder)
        finally:
            found[folder.name], seen = {what: sorted(names) for what, names in seen.items()}, None
    print("ANSWER", json.dumps(found))


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
