"""Aligns with a saved `HMMAlignModel` in a process that cannot import hf_attncal, and saves it again.

`test_hmm_align.py` runs it, as a file.
"""

import json
import sys

import torch
from transformers import AutoModel

sys.modules["hf_attncal"] = None  # so that every import of the package fails, installed or not
torch.set_num_threads(1)
request = json.loads(sys.argv[1])
model = AutoModel.from_pretrained(request["folder"], trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
output = model(**{name: torch.tensor(value) for name, value in request["inputs"].items()})
model.save_pretrained(request["destination"])
assert [name for name in sys.modules if name.partition(".")[0] == "hf_attncal"] == ["hf_attncal"]
print(json.dumps({name: tensor.tolist() for name, tensor in output.items()}))
