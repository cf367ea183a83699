"""Full models made of a base model and an adapter: the same outputs, here and where this package is absent."""

import copy
import json
import subprocess
import sys

import pytest
import torch
from adapter_helpers import SETTINGS, adapted, load_base, logits, save_base, scatter_adapter
from helpers import assert_close, largest_difference
from peft import LoraConfig, get_peft_model

from hf_attncal import AttnCalBartForConditionalGeneration, hub
from hf_attncal.adapters import AttentionCalibrationConfig, export_calibrated

EXPORTED = ["marian", "bart"]


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict:
    root = tmp_path_factory.mktemp("bases")
    return {backbone: save_base(root, backbone) for backbone in (*EXPORTED, "mbart")}


@pytest.mark.half("backbone", "settings")
@pytest.mark.parametrize("backbone", EXPORTED)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_full_model_computes_the_same(bases, backbone, settings, batch):
    model = adapted(bases[backbone], **settings)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    full = export_calibrated(model)
    assert full.config.model_type == f"attncal_{backbone}"
    assert not full.training
    assert_close(logits(full, batch), logits(model, batch), 1e-12)
    assert full.annealing_step == (4 if settings["calibration"] == "annealed" else None)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.no_grad():  # its weights are its own
        for parameter in full.parameters():
            parameter.zero_()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("backbone", EXPORTED)
def test_an_active_lora_is_merged(bases, backbone, batch):
    model = load_base(bases[backbone])
    model.add_adapter(AttentionCalibrationConfig(calibration="gated"), "cal")
    model.add_adapter(LoraConfig(r=2, target_modules=["q_proj", "fc1"], init_lora_weights=False), "lora")
    scatter_adapter(model)
    model.set_adapter(["cal", "lora"])
    together = logits(model.eval(), batch)
    assert_close(logits(export_calibrated(model), batch), together, 1e-10)
    model.set_adapter("cal")
    alone = logits(model, batch)
    assert largest_difference(alone, together) > 1e-3
    assert_close(logits(export_calibrated(model), batch), alone, 1e-12)


def test_untied_output_layer_and_final_bias_are_kept(tmp_path, batch):
    folder = save_base(tmp_path, "marian", tie_word_embeddings=False)
    base = load_base(folder)
    base.final_logits_bias.normal_()
    model = get_peft_model(base, AttentionCalibrationConfig(calibration="gated"))
    scatter_adapter(model)
    assert_close(logits(export_calibrated(model.eval()), batch), logits(model, batch), 1e-12)


PROGRAM = """
import json, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_attncal":
            raise ImportError("hf_attncal must not be needed here")

sys.meta_path.insert(0, NotInstalled())

import torch
from transformers import AutoModelForSeq2SeqLM

request = json.loads(sys.argv[1])
model = AutoModelForSeq2SeqLM.from_pretrained(request.pop("folder"), trust_remote_code=True).eval()
inputs = {name: torch.tensor(value) for name, value in request.items()}
print("TOKENS", json.dumps(model.generate(**inputs, num_beams=2, max_new_tokens=5, min_new_tokens=5).tolist()))
"""


def test_it_is_saved_with_its_code(tmp_path, batch):
    model = adapted(save_base(tmp_path, "bart", torch.float32), calibration="annealed", leaky=True, layers=[1])
    export_calibrated(model).save_pretrained(tmp_path / "full")
    assert [problem for problem in hub.inspect_folder(tmp_path / "full").problems if "tokenizer" not in problem] == []
    again = AttnCalBartForConditionalGeneration.from_pretrained(tmp_path / "full").eval()
    assert_close(logits(again, batch), logits(model, batch), 1e-5)
    assert again.annealing_step == 4


@pytest.mark.slow
def test_it_loads_where_the_package_is_absent(tmp_path, batch):
    model = adapted(save_base(tmp_path, "marian", torch.float32), calibration="gated", leaky=True)
    sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = model.generate(**sources, num_beams=2, max_new_tokens=5, min_new_tokens=5).tolist()
    export_calibrated(model).save_pretrained(tmp_path / "full")
    request = {"folder": str(tmp_path / "full")} | {name: tensor.tolist() for name, tensor in sources.items()}
    environment = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PATH": ""}
    command = [sys.executable, "-c", PROGRAM, json.dumps(request)]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (answer,) = [line for line in run.stdout.splitlines() if line.startswith("TOKENS ")]
    assert json.loads(answer.removeprefix("TOKENS ")) == expected


def test_adapters_that_cannot_be_exported_are_refused(bases):
    with pytest.raises(ValueError, match=r"'bart'.*'marian'.*got MBartForConditionalGeneration"):
        export_calibrated(adapted(bases["mbart"], calibration="gated"))
    with pytest.raises(ValueError, match="no active attention-calibration adapter"):
        export_calibrated(load_base(bases["bart"]))
    model = adapted(bases["bart"], calibration="gated")
    with model.disable_adapter(), pytest.raises(ValueError, match="no active attention-calibration adapter"):
        export_calibrated(model)
    with pytest.raises(ValueError, match=r"`layers=\[1\]`.*`renormalize=False`"):
        export_calibrated(adapted(bases["bart"], calibration="gated", layers=[1], renormalize=False))


def test_a_copy_is_independent(bases, batch):
    """`copy.deepcopy` takes the child's view of its attention along."""
    model = adapted(bases["marian"], calibration="gated")
    twin = copy.deepcopy(model)
    expected = logits(model, batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert_close(logits(twin, batch), expected, 0.0)
    base = twin.unload()
    assert_close(logits(base, batch), logits(load_base(bases["marian"]), batch), 0.0)
    assert not base._forward_hooks
