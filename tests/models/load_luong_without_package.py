"""Loads a saved recurrent model in a process that cannot import hf_attncal; `test_luong_remote_code.py` runs it.

Prints the tokens that the model generates, its loss, and what it trains, and saves it again.
"""

import json
import sys

import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM

sys.modules["hf_attncal"] = None  # so that every import of the package fails, installed or not
torch.set_num_threads(1)
request = json.loads(sys.argv[1])
batch = {name: torch.tensor(value) for name, value in request["batch"].items()}
labels = batch.pop("labels")
model = AutoModelForSeq2SeqLM.from_pretrained(request["source"], trust_remote_code=True).eval()
assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
outputs = model(**batch, labels=labels)
outputs.loss.backward()
answer = {
    "tokens": model.generate(**batch, num_beams=3, max_new_tokens=6, min_new_tokens=6).tolist(),
    "loss": outputs.loss.item(),
    "untrained": sorted(name for name, parameter in model.named_parameters() if parameter.grad is None),
}
model.save_pretrained(request["destination"])
bare = AutoModel.from_pretrained(request["destination"], trust_remote_code=True)
answer["bare"] = type(bare).__name__
print("ANSWER", json.dumps(answer))
