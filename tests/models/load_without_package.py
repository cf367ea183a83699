"""Loads saved folders in a process that cannot import hf_attncal; `test_remote_code.py` runs it, as a file.

Prints the tokens that the models generate and what they remember, and saves them again beside the first.
"""

import json
import sys

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

sys.modules["hf_attncal"] = None  # so that every import of the package fails, installed or not
torch.set_num_threads(1)
request = json.loads(sys.argv[1])
inputs = {name: torch.tensor(value) for name, value in request["inputs"].items()}
answers = {}
for name in request["names"]:
    folder = f"{request['source']}/{name}"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
    labels = torch.tensor(request["labels"])
    targets = {"labels": labels}
    if model.config.guided:  # every target token is linked to the first source token
        targets["links"] = torch.arange(inputs["input_ids"].shape[1]).eq(0).expand(*labels.shape, -1)
    outputs = model.train()(**inputs, **targets)
    outputs.loss.backward()
    model.eval()
    options = {**inputs, "max_new_tokens": 6, "min_new_tokens": 6}
    torch.manual_seed(0)
    answers[name] = {
        "tokens": model.generate(**options, num_beams=2).tolist(),
        "greedy": model.generate(**options, num_beams=1, do_sample=False).tolist(),
        "uncached": model.generate(**options, num_beams=1, do_sample=False, use_cache=False).tolist(),
        "sampled": model.generate(**options, do_sample=True).tolist(),
        "annealing_step": model.annealing_step,
        "model_type": model.config.model_type,
        "trained": sorted(n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0),
        "loss": outputs.loss.item(),
    }
    assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
    model.save_pretrained(f"{request['destination']}/{name}")
    AutoConfig.from_pretrained(f"{request['destination']}/{name}", trust_remote_code=True)
for name in request["discrete"]:
    auto = AutoModelForCausalLM if name == "causal" else AutoModelForSeq2SeqLM
    model = auto.from_pretrained(f"{request['source']}/{name}", trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
    model.train()(**inputs, labels=inputs["input_ids"]).loss.backward()
    tokens = model.eval().generate(**inputs, max_new_tokens=6, min_new_tokens=6).tolist()
    untrained = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    answers[name] = {"tokens": tokens, "untrained": untrained, "annealing_step": model.annealing_step}
    model.save_pretrained(f"{request['destination']}/{name}")
bare = AutoModel.from_pretrained(f"{request['source']}/bare", trust_remote_code=True).eval()
hidden = bare(**inputs, decoder_input_ids=inputs["input_ids"]).last_hidden_state
answers["bare"] = {"class": type(bare).__name__, "sum": hidden.abs().sum().item()}
# Both Auto classes load what either class saved.
with_head = AutoModelForSeq2SeqLM.from_pretrained(f"{request['source']}/bare", trust_remote_code=True)
of_head = AutoModel.from_pretrained(f"{request['source']}/{request['names'][0]}", trust_remote_code=True)
answers["other class"] = [type(with_head).__name__, type(of_head).__name__]
answers["other class, sum"] = (
    with_head.eval().model(**inputs, decoder_input_ids=inputs["input_ids"]).last_hidden_state.abs().sum().item()
)
bare.save_pretrained(f"{request['destination']}/bare")
aligner = AutoModel.from_pretrained(f"{request['source']}/aligner", trust_remote_code=True)
assert type(aligner).__module__.startswith("transformers_modules."), type(aligner).__module__
target = {"target_input_ids": labels.clamp(min=0), "target_attention_mask": labels.ne(-100)}
aligned, outputs = aligner.alignments(**inputs, **target), aligner.train()(**inputs, **target, return_loss=True)
outputs.loss.backward()
answers["aligner"] = {
    "class": type(aligner).__name__,
    "weights": aligned.forward_attention.tolist(),
    "loss": outputs.loss.item(),
    "untrained": [n for n, p in aligner.named_parameters() if p.grad is None],
}
aligner.save_pretrained(f"{request['destination']}/aligner")
assert [name for name in sys.modules if name.partition(".")[0] == "hf_attncal"] == ["hf_attncal"]
assert sys.modules["hf_attncal"] is None
print("ANSWER", json.dumps(answers))
