"""Tiny models of every kind, how they are loaded elsewhere, and the faults of a Hub."""

import hashlib
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import torch
from helpers import TINY
from local_hub import Hub

from hf_attncal import (
    AttnCalBartConfig,
    AttnCalBartForConditionalGeneration,
    AttnCalMarianConfig,
    AttnCalMarianMTModel,
    DiscreteTransformerConfig,
    DiscreteTransformerForCausalLM,
    DiscreteTransformerForConditionalGeneration,
    HMMAlignConfig,
    HMMAlignModel,
    LuongConfig,
    LuongForConditionalGeneration,
    MaskAlignConfig,
    MaskAlignModel,
    SSRUConfig,
    SSRUForConditionalGeneration,
)
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.families import FAMILIES
from hf_attncal.hub import PublishError, publish_folder, write_model_card
from hf_attncal.hub.published_card import pinned_revision

publishing = import_module("hf_attncal.hub.publication")  # the file
SMALL = {"vocab_size": 40, "d_model": 8, "attention_heads": 2, "ffn_dim": 8, "encoder_layers": 1, "decoder_layers": 1}
# Name -> the class and the configuration of a tiny model of each kind.
KINDS = {
    "marian": (AttnCalMarianMTModel, AttnCalMarianConfig(**TINY | {"vocab_size": 40}, calibration="gated")),
    "bart": (AttnCalBartForConditionalGeneration, AttnCalBartConfig(**TINY | {"vocab_size": 40}, leaky=True)),
    "discrete": (DiscreteTransformerForConditionalGeneration, DiscreteTransformerConfig(**TINY | {"vocab_size": 40})),
    "language": (DiscreteTransformerForCausalLM, DiscreteTransformerConfig(**TINY | {"vocab_size": 40})),
    "luong": (
        LuongForConditionalGeneration,
        LuongConfig(vocab_size=40, d_model=8, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2),
    ),
    "ssru": (SSRUForConditionalGeneration, SSRUConfig(**TINY | {"vocab_size": 40}, calibration="gated")),
    "mask_align": (MaskAlignModel, MaskAlignConfig(**SMALL)),
    "hmm_align": (HMMAlignModel, HMMAlignConfig(vocab_size=40)),
}
# Loads models by name and revision as on a machine without the package, and saves what they compute.
ELSEWHERE = """
import json, sys
sys.modules["hf_attncal"] = None
import torch, transformers
answers = {}
for name, (repository, revision, auto, aligner, adapter) in json.load(sys.stdin).items():
    where = {"revision": revision, "trust_remote_code": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(repository, **where)
    model = getattr(transformers, auto).from_pretrained(repository, **where).eval()
    if adapter:
        import peft

        model = peft.PeftModel.from_pretrained(model, adapter).eval()
    ids = torch.tensor([[5, 6, 7, 2]])
    with torch.no_grad():
        if aligner:
            output = model.alignments(ids, None, ids, None).forward_attention
        elif auto == "AutoModelForSeq2SeqLM":
            output = model(input_ids=ids, decoder_input_ids=ids).logits
            model.generate(input_ids=ids, max_new_tokens=3)
        elif auto == "AutoModelForCausalLM":
            output = model(input_ids=ids).logits
            model.generate(ids, max_new_tokens=3)
        else:
            output = model(input_ids=ids).last_hidden_state
    answers[name] = output
torch.save(answers, sys.argv[1])
"""


FAULTS = {
    "create, 401": ("create", [401]),
    "create, 403": ("create", [403]),
    "create, 500": ("create", [500] * 9),
    "card refused": ("validate-yaml", [400]),
    "preupload, 500": ("preupload", [500] * 9),
    "preupload, 403": ("preupload", [403]),
    "batch, 500": ("objects/batch", [500] * 9),
    "batch, 413": ("objects/batch", [413]),
    "store, 500": ("PUT /store", [500] * 9),
    "store, disk full": ("PUT /store", [507]),
    "store, 403": ("PUT /store", [403]),
    "commit, 409": ("/commit/", [409]),
    "commit, 412": ("/commit/", [412]),
    "commit, 500": ("/commit/", [500]),
    "commit, disk full": ("/commit/", [507]),
    "tree, 500": ("/tree/", [500] * 9),
    "info, 500": ("GET /api/models", [500] * 9),
    "create, stalls": ("create", ["stalls"] * 9),
    "preupload, stalls": ("preupload", ["stalls"] * 9),
    "store, stalls": ("PUT /store", ["stalls"] * 9),
    "commit, stalls": ("/commit/", ["stalls"] * 9),
    "commit, done before it stalls": ("/commit/", ["done, stalls"]),
    "batch, breaks off": ("objects/batch", ["breaks off"] * 9),
    "commit, breaks off": ("/commit/", ["breaks off"]),
    "tree, breaks off": ("/tree/", ["breaks off"] * 9),
    "all answers trickle": ("/", ["trickles"] * 99),
}


def saved(kind: str, folder: Path) -> tuple[torch.nn.Module, str, bool]:
    """Save a tiny model with its tokenizer and card; return it, the Auto class that loads it and whether it aligns."""
    model_class, config = KINDS[kind]
    torch.manual_seed(0)
    model = model_class(config).eval()
    model.save_pretrained(folder)
    train_bpe_tokenizer(["the old house is a house"] * 3, vocab_size=40).save_pretrained(folder)
    family = FAMILIES[config.model_type]
    example = "a ||| b" if family.card.pairs else "a"
    write_model_card(folder, model_name=kind, summary="A model.", training_data="lines", example=example)
    return model, family.auto_and_card(model_class.__name__)[0], family.card.pairs


def lost_under(hub: Hub, folder: Path, fault: str) -> str | None:
    """Publish a model while a fault lasts, and then again; return what was wrong, or None.

    A fault must give one message. Then each commit must be empty, or hold all files where its answer was what got
    lost. The folder must stay as it is, and the second time must end with everything there.
    """
    part, answers = FAULTS[fault]
    before = digests(folder)
    common = {"token": "x", "endpoint": hub.url, "try_loading": False}
    hub.faults[part] = list(answers)
    patience = publishing.STALLED_AFTER
    publishing.STALLED_AFTER = 0.5 if "stalls" in fault else patience
    try:
        publish_folder(folder, "someone/model", **common)
        if "trickles" not in answers:
            return "no message"
    except PublishError as error:
        if "trickles" in answers or len(str(error).splitlines()) > 1 or "someone/model" not in str(error):
            return f"the message {str(error)!r}"
    finally:
        publishing.STALLED_AFTER = patience
    commits = [set(files) for repository in hub.repositories.values() for files in repository.commits.values()]
    hub.faults.clear()
    again = publish_folder(folder, "someone/model", **common)
    repository = hub.repositories["someone/model"]
    was_done = {"done, stalls", "breaks off", "trickles"} & set(answers)
    if any(files and (not was_done or files != set(again.files)) for files in commits):
        return "a part was published"
    if set(repository.files("main")) != set(again.files):
        return "the second time did not publish everything"
    if pinned_revision(repository.files("main")["README.md"].decode()) != again.commit:
        return "the card names another commit"
    return None if digests(folder) == before else "the folder has changed"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def computed(model: torch.nn.Module, auto: str, aligns: bool) -> torch.Tensor:
    """Return the results of `ELSEWHERE`."""
    ids = torch.tensor([[5, 6, 7, 2]])
    with torch.no_grad():
        if aligns:
            return model.alignments(ids, None, ids, None).forward_attention
        return model(input_ids=ids, **({} if auto == "AutoModelForCausalLM" else {"decoder_input_ids": ids})).logits


def elsewhere(hub, asked: dict, place) -> dict[str, torch.Tensor]:
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(place / "home"), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HUB_OFFLINE": "0"}
    environment["HF_MODULES_CACHE"] = str(place / "modules")
    program = [sys.executable, "-c", ELSEWHERE, str(place / "answers.pt")]
    subprocess.run(program, input=json.dumps(asked), text=True, env=environment, check=True, cwd=place)
    return torch.load(place / "answers.pt")
