"""Damaged and hostile checkpoints and adapters: refused by a line that names the file or the key, or answered rightly.

What is right is decided before anything runs. A damage is done to a copy of a folder, and the command is run on it:

- refused: status 1, nothing but one line on standard error, which has one of the `names` of the damage in it, and on
  standard output nothing but what the undamaged model answers to the first lines;
- survived: status 0 and the answers of the undamaged model, to the byte;
- everything else is bad. Code of the folder that ran is bad whatever else happened.

Some changes no reader can know from a model that was meant so (another number of heads, a setting that goes back to
its default, a flipped bit in a weight). Those say so (`Damage.valid`), are counted apart, and only have to give a
line for each line or be refused. Where the command reads a file that is sealed to the model, there are none.

This file is both the kind of fault and, run as a script, the process that forks the runs: what takes seconds is
imported once. Every eighth run is a process of its own.
"""

import json
import os
import pickle
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outcomes import Outcome, Result
from warm import preload, warm

SECONDS = 40  # for a run; one takes less than one where it is forked
MEMORY = 2 << 30  # bytes beside what the process that forks has
SAMPLE = 29  # without `full`, every so many
ALONE = 39  # every so many as a process of its own
RAN = "ran"  # what hostile code writes
EVIL = (
    f"open({RAN!r}, 'w').close()\nclass Evil: pass\nConfig = Model = Tokenizer = Evil\ndef generate(*a, **k): pass\n"
)


@dataclass(frozen=True)
class Damage:
    """One damage.

    Args:
        case: what it is.
        apply: does it, to the folder that holds the model.
        names: of these one has to be in the error.
        valid: why no reader can know it from a model that was meant so; empty if one can.
    """

    case: str
    apply: Callable[[Path], Any]
    names: tuple[str, ...]
    valid: str = ""


# ---- damages of files ----


def _truncated(file: str, part: float) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: int(part * len(content.rstrip()))])

    return apply


def _written(file: str, content: bytes | str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)


def _in_its_place(file: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return apply


def of_any_file(file: str) -> Iterator[Damage]:
    """What can stand where a file was."""
    places = {
        "a folder": Path.mkdir,
        "a FIFO": os.mkfifo,
        "a link to nothing": lambda path: path.symlink_to("nowhere"),
        "a link to itself": lambda path: path.symlink_to(path.name),
        "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    }
    for what, make in places.items():
        yield Damage(f"{file}: {what}", _in_its_place(file, make), (file.rpartition("/")[2],))
    unreadable = lambda folder: (folder / file).chmod(0)  # noqa: E731 (root reads it all the same)
    yield Damage(f"{file}: may not be read", unreadable, (file.rpartition("/")[2],))


def of_json(file: str) -> Iterator[Damage]:
    """What a JSON file can hold that is none, or not an object."""
    name = (file.rpartition("/")[2],)
    for part in (0, 0.01, 0.3, 0.6, 0.999):
        yield Damage(f"{file}: the first {part:.1%}", _truncated(file, part), name)
    contents = {
        "null": "null",
        "[]": "[]",
        "a text": '"model"',
        "a number": "1e999",
        "lists in lists": "[" * 100_000 + "]" * 100_000,
        "objects in objects": '{"model": ' * 100_000 + "1" + "}" * 100_000,
        "{}": "{}",
        "no UTF-8": b'{"model": "\xff\xfe"}',
        "zeros": bytes(200),
    }
    for what, content in contents.items():
        yield Damage(f"{file}: {what}", _written(file, content), name)


# ---- damages of keys ----

MISSING = object()


def of_keys(file: str, values: dict[str, list], valid: dict[str, str] | None = None) -> Iterator[Damage]:
    """Keys of a JSON file with other values, or without one.

    Args:
        file: of the folder.
        values: values by key; a key with a dot is one of an object within.
        valid: for keys (or "key=value"), why the change makes a model that may be meant so.
    """

    def change(key: str, value: Any) -> Callable[[Path], None]:
        def apply(folder: Path) -> None:
            path = folder / file
            content = json.loads(path.read_text(encoding="utf-8"))
            *outer, last = key.split(".")
            inner = content
            for name in outer:
                inner = inner[name]
            if value is MISSING:
                inner.pop(last, None)
            else:
                inner[last] = value
            path.write_text(json.dumps(content), encoding="utf-8")

        return apply

    for key, several in values.items():
        for value in several:
            shown = "missing" if value is MISSING else json.dumps(value)
            shown = shown if len(shown) < 60 else f"{shown[:40]} ... of {len(shown)} characters"
            reason = (valid or {}).get(f"{key}={shown}", (valid or {}).get(key, ""))
            names: tuple[str, ...] = (key.rpartition(".")[2], file.rpartition("/")[2])
            if key == "model_type":
                names = (*names, "auto_map")  # of another type, the code beside it would be needed
            yield Damage(f"{file}: {key} {shown}", change(key, value), names, reason)


def renamed_key(file: str, key: str, to: str) -> Damage:
    """A misspelt key."""

    def apply(folder: Path) -> None:
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        content[to] = content.pop(key)
        (folder / file).write_text(json.dumps(content), encoding="utf-8")

    return Damage(f"{file}: {key} misspelt as {to}", apply, (to, key))


def hostile_megatron(file: str) -> Damage:
    """PEFT imports what `megatron_core` names, if there is a `megatron_config`."""

    def apply(folder: Path) -> None:
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        content |= {"megatron_config": {"x": 1}, "megatron_core": "evil"}
        (folder / file).write_text(json.dumps(content), encoding="utf-8")

    return Damage(f"{file}: megatron_core evil", apply, ("megatron",))


# ---- damages of weights ----


def of_weights(file: str, name: str) -> Iterator[Damage]:
    """A safetensors file; `name` is the end of the name of one tensor in it, a matrix."""
    import torch
    from safetensors.torch import load_file, save_file

    where = (file.rpartition("/")[2], "weights")

    def flipped(bit: Callable[[int, int], int]) -> Callable[[Path], None]:
        def apply(folder: Path) -> None:
            content = bytearray((folder / file).read_bytes())
            place = bit(struct.unpack("<Q", content[:8])[0], len(content))
            content[place // 8] ^= 1 << place % 8
            (folder / file).write_bytes(content)

        return apply

    def header(edit: Callable[[dict], Any]) -> Callable[[Path], None]:
        def apply(folder: Path) -> None:
            content = (folder / file).read_bytes()
            size = struct.unpack("<Q", content[:8])[0]
            head = json.loads(content[8 : 8 + size])
            edit(head[next(key for key in head if key.endswith(name))])
            written = json.dumps(head).encode()
            (folder / file).write_bytes(struct.pack("<Q", len(written)) + written + content[8 + size :])

        return apply

    def tensors(edit: Callable[[dict, str], Any]) -> Callable[[Path], None]:
        def apply(folder: Path) -> None:
            weights = load_file(folder / file)
            edit(weights, next(key for key in weights if key.endswith(name)))
            save_file(weights, folder / file, metadata={"format": "pt"})

        return apply

    for part in (0, 0.001, 0.2, 0.5, 0.99):
        yield Damage(f"{file}: the first {part:.1%}", _truncated(file, part), where)
    for byte, bit in ((0, 0), (2, 7), (7, 6), (8, 0), (40, 2), (200, 6), (300, 1)):
        place = 8 * byte + bit
        yield Damage(f"{file}: bit {bit} of byte {byte} flipped", flipped(lambda *_, place=place: place), where)
    yield Damage(
        f"{file}: a bit of a weight flipped",
        flipped(lambda size, length: 8 * (8 + size + (length - 8 - size) // 2) + 4),
        where,
        "any number may be a weight",
    )
    yield Damage(f"{file}: text", _written(file, "version https://git-lfs.github.com/spec/v1\n" * 10), where)
    yield Damage(f"{file}: a pickle that runs code", _written(file, hostile_pickle()), where)
    huge = struct.pack("<Q", 1 << 60) + b"{}"
    yield Damage(f"{file}: a header of 2 ** 60 bytes", _written(file, huge), where)
    shapes = {"shape of 2 ** 60 numbers": {"shape": [1 << 30, 1 << 30]}, "dtype F99": {"dtype": "F99"}}
    shapes |= {"offsets beyond the end": {"data_offsets": [0, 1 << 40]}, "shape with -1": {"shape": [-1, 4]}}
    for what, entry in shapes.items():
        yield Damage(f"{file}: header with {what}", header(lambda tensor, entry=entry: tensor.update(entry)), where)
    edits: dict[str, Callable[[dict, str], Any]] = {
        "missing": lambda weights, key: weights.pop(key),
        "under another name": lambda weights, key: weights.update({f"{key}x": weights.pop(key)}),
        "beside one that is not the model's": lambda weights, key: weights.update({f"{key}x": weights[key] + 1}),
        "with one row less": lambda weights, key: weights.update({key: weights[key][1:].clone()}),
        "transposed and longer": lambda weights, key: weights.update({key: torch.ones(weights[key].shape[0] + 3)}),
        "of no number": lambda weights, key: weights.update({key: torch.zeros(0, 0)}),
        "NaN": lambda weights, key: weights[key].view(-1)[-1:].fill_(float("nan")),
        "infinite": lambda weights, key: weights[key].view(-1)[:1].fill_(float("-inf")),
        "of whole numbers": lambda weights, key: weights.update({key: (weights[key] * 99).to(torch.int64)}),
        "complex": lambda weights, key: weights.update({key: weights[key].to(torch.complex64)}),
        "of bits": lambda weights, key: weights.update({key: weights[key] > 0}),
    }
    for what, edit in edits.items():
        yield Damage(f"{file}: {name} {what}", tensors(edit), (*where, name.rpartition(".")[2]))
    for what, dtype in (("float64", torch.float64), ("float16", torch.float16)):
        reason = "" if what == "float64" else "the precision of a tensor is that of its file"
        edit = lambda weights, key, dtype=dtype: weights.update({key: weights[key].to(dtype)})  # noqa: E731
        yield Damage(f"{file}: {name} in {what}", tensors(edit), (name, *where), reason)


def hostile_pickle() -> bytes:
    """A pickle that writes the file `RAN` when it is read."""

    class Evil:
        def __reduce__(self):
            return open, (RAN, "w")

    return pickle.dumps({"model.weight": Evil()})


def _as_bin(file: str, to: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).with_name(to).write_bytes(hostile_pickle())

    return apply


def _sharded(file: str, entries: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / file).unlink()
        index = {"metadata": {"total_size": 10}, "weight_map": entries}
        (folder / f"{file}.index.json").write_text(json.dumps(index), encoding="utf-8")

    return apply


def of_other_files(file: str) -> Iterator[Damage]:
    """What stands for the weights of a model beside a safetensors file, and what is left of them."""
    name = file.rpartition("/")[2]
    yield Damage(f"{file}: missing", lambda folder: (folder / file).unlink(), (name,))
    yield Damage(f"{file}: a hostile .bin instead", _as_bin(file, "pytorch_model.bin"), ("weights", name))
    shards: dict[str, Any] = {"no such shard": {"a": "model-00001-of-00002.safetensors"}, "a list": ["a"]}
    shards |= {"a shard outside": {"a": "../../../etc/passwd"}, "a number as shard": {"a": 5}, "no shard": {}}
    for what, entries in shards.items():
        yield Damage(f"{file}: an index with {what}", _sharded(file, entries), (f"{name}.index.json",))


# ---- damages of tokenizers ----


def of_tokenizer(folder: str, vocabulary: int) -> Iterator[Damage]:
    """A tokenizer of ours, of `vocabulary` entries, in a folder of the model's."""
    file, settings = f"{folder}/tokenizer.json", f"{folder}/tokenizer_config.json"
    names = ("tokenizer", "vocab")
    yield from of_json(file)
    yield from of_any_file(file)
    yield from of_json(settings)

    def edited(edit: Callable[[dict], Any], where: str = file) -> Callable[[Path], None]:
        def apply(root: Path) -> None:
            content = json.loads((root / where).read_text(encoding="utf-8"))
            edit(content)
            (root / where).write_text(json.dumps(content), encoding="utf-8")

        return apply

    def other(root: Path) -> None:
        larger_tokenizer().save_pretrained(root / folder)

    def moved(content: dict, by: int) -> None:
        vocab = content["model"]["vocab"]
        vocab.update({token: index + by for token, index in vocab.items() if index > 5})

    yield Damage(f"{file}: of another model", other, names)
    yield Damage(f"{file}: ids beyond the model's", edited(lambda c: moved(c, vocabulary)), names)
    yield Damage(f"{file}: negative ids", edited(lambda c: moved(c, -vocabulary)), names)
    edits: dict[str, Callable[[dict], Any]] = {
        "no model": lambda c: c.pop("model"),
        "an unknown model": lambda c: c["model"].update(type="Evil"),
        "no vocabulary": lambda c: c["model"].update(vocab={}),
        "an id twice": lambda c: c["model"]["vocab"].update(dict.fromkeys(list(c["model"]["vocab"])[-3:], 5)),
        "merges of unknown tokens": lambda c: c["model"].update(merges=[["§", "§"]]),
        "no added tokens": lambda c: c.update(added_tokens=[]),
        "an added token beyond the model's": lambda c: c["added_tokens"][0].update(id=10**6),
        "an unknown normaliser": lambda c: c.update(normalizer={"type": "Evil"}),
        "a normaliser that is none": lambda c: c.update(normalizer=7),
        "a template with an id beyond the model's": lambda c: c["post_processor"]["special_tokens"]["</s>"].update(
            ids=[10**6]
        ),
    }
    for what, edit in edits.items():
        yield Damage(f"{file}: {what}", edited(edit), (*names, "</s>"))
    yield from of_keys(
        settings,
        {
            "tokenizer_class": ["Evil", 5, None, "BertModel", "os.system"],
            "pad_token": [MISSING, None, 5, "<no such token>"],
            "eos_token": ["<no such token>"],
            "auto_map": [{"AutoTokenizer": ["evil.Tokenizer", None]}, "evil.Tokenizer", {"AutoTokenizer": 5}],
            "added_tokens_decoder": [{"1000000": {"content": "<x>", "special": True}}, 5],
            "model_max_length": ["long"],
            "padding_side": ["up"],
        },
        {},
    )


def larger_tokenizer():
    """A tokenizer of ours with more entries than the models here have."""
    from hf_attncal.data.synthetic.english_german import generate_pairs
    from hf_attncal.data.tokenizer import train_bpe_tokenizer

    return train_bpe_tokenizer([" ".join(side) for pair in generate_pairs(300) for side in pair[:2]], 400)


# ---- the three groups ----

HUGE = {
    "num_labels": [10**9, -1, "two"],
    "id2label": [{str(n): "label" for n in range(10**6)}, {"x": "y"}, ["a"]],
    "max_position_embeddings": [10**12, 0, -5, "many", None],
    "vocab_size": [-7, 0, 10**12, 3, MISSING, 1e3],
    "d_model": [0, 10**7, 15, "16", 32, MISSING],
    "encoder_layers": [10**9, -1, 3, 1.5, [2]],
    "dtype": ["float99", "int8", 32, "device", MISSING],
    "torch_dtype": ["float99"],
    "model_type": ["evil", 5, None, MISSING, "../../evil", "t5"],
    "architectures": [["Evil"], "Evil", 5],
    "auto_map": [
        {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoModelForSeq2SeqLM": "evil.Model"},
        {"AutoConfig": "someone/evil--evil.Config"},
        "evil.Config",
    ],
    "_name_or_path": ["../../etc/passwd", "/etc", 5],
    "attn_implementation": ["evil/kernel", 7],
    "_attn_implementation": ["flash_attention_9"],
    "transformers_version": ["evil", 5, "99.0"],
    "pad_token_id": [10**6, -3, "pad", 1.5],
    "quantization_config": [{"quant_method": "evil"}, 5],
    "tie_word_embeddings": ["no"],
    "return_dict": [False],
    "output_attentions": [True],
    "custom_generate": ["evil"],
}
ALIGNER = {
    "attention_heads": [0, 3, -2, "two"],
    "activation_function": ["evil", 5, MISSING],
    "dropout": [float("nan"), 2, "none"],
    "prediction": ["evil", None, "attention"],
    "emission": ["evil", 1],
    "share_embeddings": ["yes", True],
    "leaky": [2, False],
    "mask_diagonal": ["no"],
    "alignment_threshold": [float("nan"), 1.5, "low", MISSING],
    "symmetrization": ["evil", None, ["union"]],
    "lowercase": ["no"],
    "ffn_dim": [10**12, 0, 13],
    "diagonal_bias": [float("nan"), "none"],
}
DEFAULT = "a setting that is absent has its default: files of earlier versions lack what came later"
ALIGNER_VALID = {"activation_function=missing": DEFAULT, "alignment_threshold=missing": DEFAULT}
CALIBRATED_VALID = {"decoder_start_token_id=missing": DEFAULT}
CALIBRATED = {
    "calibration": ["evil", 5, "annealed", None, MISSING],
    "calibration_weight": [float("nan"), float("inf"), -1, 1e30, "much", True],
    "mask_projection": ["evil", "head", None],
    "leaky": [1, False, "yes"],
    "renormalize": ["yes"],
    "gumbel": ["yes"],
    "output_gate": ["yes"],
    "gumbel_temperature": [0, float("nan")],
    "fixed_softmax": [True],
    "null_key_std": [float("inf")],
    "encoder_attention_heads": [0, 3, -2],
    "decoder_attention_heads": ["2", 5],
    "decoder_layers": [10**9, 2, 4],
    "decoder_ffn_dim": [10**12, 5],
    "decoder_vocab_size": [10**12, 3],
    "decoder_start_token_id": [10**6, -1, "start", MISSING],
    "eos_token_id": [10**6, [10**6], "end"],
    "forced_eos_token_id": [10**6],
    "activation_function": ["evil", 5],
    "scale_embedding": ["yes"],
    "is_encoder_decoder": [False, "no"],
    "static_position_embeddings": [5],
}
GENERATION = {
    "decoder_start_token_id": [10**6, -1, "start"],
    "eos_token_id": [10**6, "end"],
    "pad_token_id": [10**6, -1],
    "forced_bos_token_id": [10**6],
    "bad_words_ids": [[[10**6]], 5],
    "suppress_tokens": [[10**6], "all"],
    "max_length": ["long", 10**12, -1],
    "num_beams": [10**9, 0, "many"],
    "cache_implementation": ["evil"],
    "custom_generate": ["evil"],
    "do_sample": ["yes"],
    "repetition_penalty": [float("nan"), -1],
    "watermarking_config": [5],
    "compile_config": [{"backend": "evil"}],
}
SETTINGS = {
    "layer": [10**9, "last", None, MISSING, True],
    "heads": [[7], [], "all", [0, 0], [-1]],
    "shift": ["yes", None],
    "source_prefix": [5],
    "weights": ["evil", 5],
}
ADAPTER = {
    "peft_type": ["evil", 5, None, MISSING, ["LORA"], "PROMPT_TUNING", "ADALORA"],
    "task_type": ["evil", 5],
    "auto_mapping": [{"base_model_class": "Evil", "parent_library": "evil"}, 5],
    "base_model_name_or_path": [5, "", "/etc", "../../etc/passwd", ".", "adapter", "no/such", None, MISSING],
    "revision": [5, "evil"],
    "inference_mode": ["yes"],
}
OURS = {
    "calibration": ["evil", 5, None, MISSING],
    "calibration_weight": [float("nan"), -1, "much"],
    "mask_projection": ["evil", "head"],
    "mask_rank": [0, -1, 10**9, 3, True],
    "layers": [[99], [-1], [], "all", [0, 0], [1]],
    "leaky": [1, True],
    "renormalize": ["yes"],
    "base_model_type": ["evil", 5],
    "base_d_model": [7, "16"],
}
LORA = {
    "r": [-1, 0, 10**9, "two", 3, float("nan"), MISSING],
    "lora_alpha": [float("nan"), "much", float("inf")],
    "target_modules": ["(", [], ["no_such"], 5, None, ["fc1"], {"q_proj": 1}],
    "exclude_modules": [5],
    "layers_to_transform": [[99], "all"],
    "rank_pattern": [{"q_proj": -1}, 5],
    "alpha_pattern": [{"q_proj": "x"}],
    "modules_to_save": [["q_proj"], "evil", 5],
    "megatron_core": ["evil"],
    "megatron_config": [{"evil": 1}],
    "init_lora_weights": ["evil"],
    "use_dora": [True, "yes"],
    "lora_dropout": [7, "none"],
    "bias": ["all", "evil"],
    "trainable_token_indices": [[10**6]],
    "loftq_config": [5],
    "eva_config": [5],
    "target_parameters": [["no.such"], 5],
    "use_rslora": ["yes"],
}


def _third(damages: Iterator[Damage], number: int) -> list[Damage]:
    """Those of a third: what is the same for every kind of model is shared out between them."""
    return list(damages)[number::3]


def of_aligner() -> Iterator[Damage]:
    config = "model/config.json"
    yield from of_json(config)
    yield from of_any_file(config)
    yield from of_keys(config, HUGE | ALIGNER, ALIGNER_VALID)
    for key, to in (("symmetrization", "symetrization"), ("prediction", "predictions"), ("lowercase", "lower_case")):
        yield renamed_key(config, key, to)
    yield from of_weights("model/model.safetensors", "encoder_layers.0.ffn.fc1.weight")
    yield from _third(of_other_files("model/model.safetensors"), 0)
    yield from _third(of_tokenizer("model", 150), 0)


def of_calibrated() -> Iterator[Damage]:
    config = "model/config.json"
    yield from _third(of_json(config), 1)
    yield from of_keys(config, HUGE | CALIBRATED, CALIBRATED_VALID)
    for key, to in (("calibration", "calibraton"), ("leaky", "leakey"), ("mask_projection", "mask_projektion")):
        yield renamed_key(config, key, to)
    for file in ("model/generation_config.json", "model/alignment.json"):
        yield from _third(of_json(file), 0)
        yield from _third(of_any_file(file), 0)
    yield from of_keys("model/generation_config.json", GENERATION)
    yield from of_keys("model/alignment.json", SETTINGS)
    yield from of_any_file("model/model.safetensors")
    yield from of_weights("model/model.safetensors", "encoder_attn.mask_network.key_weight")
    yield from of_other_files("model/model.safetensors")
    yield from of_tokenizer("model", 150)


def of_adapters() -> Iterator[Damage]:
    yield from of_json("adapter/adapter_config.json")
    yield from of_any_file("adapter/adapter_config.json")
    yield from of_keys("adapter/adapter_config.json", ADAPTER | OURS)
    yield from of_any_file("adapter/adapter_model.safetensors")
    yield from of_weights("adapter/adapter_model.safetensors", "mask_network.key_weight")
    yield Damage(
        "adapter/adapter_model.safetensors: a hostile .bin instead",
        _as_bin("adapter/adapter_model.safetensors", "adapter_model.bin"),
        ("adapter_model",),
    )
    yield from of_keys("lora/adapter_config.json", ADAPTER | LORA)
    yield from of_weights("lora/adapter_model.safetensors", "lora_A.weight")
    yield hostile_megatron("lora/adapter_config.json")
    yield from _third(of_json("base/config.json"), 0)
    yield from of_keys("base/config.json", HUGE)
    yield from _third(of_weights("base/model.safetensors", "fc1.weight"), 0)
    yield from _third(of_other_files("base/model.safetensors"), 1)
    yield from _third(of_tokenizer("base", 150), 1)


# ---- runs ----


@dataclass(frozen=True)
class Group:
    """Runs of one kind of model: the row of the table, the damages, and the command for one of them."""

    kind: str
    damages: Callable[[], Iterator[Damage]]
    models: tuple[str, ...]
    sealed: bool = False  # what `align run` reads beside the model

    def command(self, damage: Damage, number: int) -> list[str]:
        folder = damage.case.partition("/")[0]
        model = folder if folder in ("model", "lora") else "adapter"
        if model == "model" and (self.kind.startswith("align") or number % 2 or "alignment.json" in damage.case):
            return ["align", "run", model, "--device", "cpu", "--source", "../pairs"]
        return ["translate", model, "--device", "cpu", "--beams", "2", "max_new_tokens=6"]


def prepare(folder: Path) -> None:
    """The models, undamaged, and text."""
    import torch
    from adapter_helpers import scatter_adapter
    from helpers import FAMILIES, scatter
    from peft import LoraConfig, get_peft_model
    from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, randomized, sized

    from hf_attncal.adapters import AttentionCalibrationConfig
    from hf_attncal.alignment import Seq2SeqAttention
    from hf_attncal.alignment.probabilities import LinkProbabilities, Platt
    from hf_attncal.models.configuration_mask_align import MaskAlignConfig
    from hf_attncal.models.modeling_mask_align import MaskAlignModel

    (folder / "lines").write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    pairs = zip(SOURCES, TARGETS, strict=True)
    (folder / "pairs").write_text("".join(f"{s} ||| {t}\n" for s, t in pairs), encoding="utf-8")
    tokenizer = bpe_tokenizer()
    torch.manual_seed(2)

    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "attention_heads": 2, "ffn_dim": 16}
    settings = {"symmetrization": "union", "alignment_threshold": 0.1, "prediction": "mixture", "lowercase": True}
    settings |= {"max_position_embeddings": 40, "pad_token_id": tokenizer.pad_token_id, "activation_function": "gelu"}
    aligner = MaskAlignModel(MaskAlignConfig(vocab_size=len(tokenizer), **sizes, **settings))
    scatter(aligner, 0.3)
    _save(aligner, folder / "aligner" / "model")
    LinkProbabilities({"union": Platt(1.5, -0.5)}, 2).save(folder / "aligner" / "model")

    stock_config, stock_model, config, model = FAMILIES["marian"]
    switches = {"calibration": "gated", "leaky": True, "calibration_weight": 0.3}
    _save(randomized(model(config(**sized(tokenizer), **switches))), folder / "calibrated" / "model")
    Seq2SeqAttention(layer=1, heads=(0,)).save(folder / "calibrated" / "model")

    (folder / "adapters").mkdir()
    os.chdir(folder / "adapters")  # the name of the base model in the adapters is "base"
    _save(randomized(stock_model(stock_config(**sized(tokenizer)))), Path("base"))
    for name, settings in (
        ("adapter", AttentionCalibrationConfig(calibration="gated", calibration_weight=0.3)),
        ("lora", LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="SEQ_2_SEQ_LM")),
    ):
        adapted = get_peft_model(stock_model.from_pretrained("base"), settings)
        if name == "adapter":
            scatter_adapter(adapted)
        adapted.save_pretrained(name)
    os.chdir(folder)


def _save(model, folder: Path) -> None:
    """A model with its tokenizer, and its code, and more of it, replaced by hostile code."""
    from seq2seq_helpers import bpe_tokenizer

    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    bpe_tokenizer().save_pretrained(folder)
    (folder / "custom_generate").mkdir()
    for file in (*folder.glob("*.py"), folder / "evil.py", folder / "custom_generate" / "generate.py"):
        file.write_text(EVIL, encoding="utf-8")
    folder.with_name("evil.py").write_text(EVIL, encoding="utf-8")  # where a process has its modules from, too


@dataclass(frozen=True)
class Run:
    """What a command left: status (negative: the signal that ended it; None: none in time), output, errors, code."""

    status: int | None
    out: str
    err: str
    ran: bool = False


def judged(damage: Damage, run: Run, right: str) -> tuple[Result, str]:
    """What a run was, and why, if it was bad; `right` is what the undamaged model answers."""
    if run.ran:
        return "run_unasked", "code of the folder ran"
    if run.status is None:
        return "hung", f"no end in {SECONDS} s"
    if run.status == 0:
        lines = run.out.count("\n") == right.count("\n")
        if run.out == right or (damage.valid and lines):
            return "survived", ""
        return "wrong", f"{run.out[:200]!r} in place of {right[:200]!r}; {run.err[-400:]!r}"
    one = run.err.startswith("attncal: error: ") and run.err.count("\n") == 1 and run.err.endswith("\n")
    if run.status != 1 or not one:
        return "traceback", f"status {run.status}: {run.err[-1500:]!r}"
    if not any(name in run.err for name in damage.names):
        return "traceback", f"none of {damage.names} in {run.err!r}"
    if not right.startswith(run.out):
        return "wrong", f"before the error: {run.out[:200]!r} in place of {right[:200]!r}"
    return "refused", ""


def executed(command: list[str], folder: Path, lines: Path, alone: bool) -> Run:
    """Run a command of attncal in a folder, forked from this process or as one of its own."""
    out, err, ran = (folder / name for name in ("out", "err", RAN))
    with open(lines, "rb") as stdin, open(out, "wb") as stdout, open(err, "wb") as stderr:
        if alone:
            whole = [sys.executable, "-m", "hf_attncal.commands", *command]
            child = subprocess.Popen(
                whole, cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr, preexec_fn=_limit_memory
            )
            status = _waited(child.pid)
            child.returncode = 0  # it has been waited for
        else:
            child = os.fork()
            if child == 0:
                _call(command, folder, [file.fileno() for file in (stdin, stdout, stderr)])
            status = _waited(child)
    text = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
    return Run(status, *text, ran.exists())


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _call(command: list[str], folder: Path, files: list[int]) -> None:
    """In the child: the command, with these files as its standard ones; it does not come back."""
    status = 70
    try:
        from hf_attncal.commands import main

        _limit_memory()
        os.chdir(folder)
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
        sys.path[0] = str(folder)  # as `python -m` has it
        sys.addaudithook(lambda event, args: _watch(event, args, str(folder)))
        status = main(command)
    except SystemExit as error:
        status = error.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for file in (sys.stdout, sys.stderr):
            file.flush()
        os._exit(status)


def _watch(event: str, args: tuple, folder: str) -> None:
    """Notes code that is run from the folder or from where transformers keeps downloaded code, and processes."""
    if event == "exec":
        file = getattr(args[0], "co_filename", "")
        bad = file.startswith(folder) or "transformers_modules" in file
    else:
        bad = event in ("os.system", "os.exec", "os.posix_spawn", "socket.connect")
    if bad:
        os.close(os.open(f"{folder}/{RAN}", os.O_CREAT | os.O_WRONLY))


def _waited(child: int) -> int | None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


GROUPS = {
    "aligner": Group("align run on a damaged aligner", of_aligner, ("model",), sealed=True),
    "calibrated": Group("translate, align run on a damaged calibrated model", of_calibrated, ("model",), sealed=True),
    "adapters": Group("translate with a damaged adapter", of_adapters, ("adapter", "lora")),
}


def drive(folder: Path, full: bool, only: str = "") -> None:
    """All runs, one after another; their outcomes are written into the folder."""
    prepare(folder)
    right: dict[tuple, str] = {}
    outcomes = []
    for name, group in GROUPS.items():
        damages = [damage for damage in group.damages() if only in damage.case]
        for number, damage in enumerate(damages):
            if not full and number % SAMPLE:
                continue
            command = group.command(damage, number)
            if group.sealed and command[0] == "align":
                damage = replace(damage, valid="")
            lines = folder / "lines"
            if (name, *command) not in right:
                whole = executed(command, folder / name, lines, alone=False)
                assert judged(damage, whole, whole.out) == ("survived", ""), whole
                assert whole.out.strip()
                right[name, *command] = whole.out
            case = folder / "case"
            shutil.copytree(folder / name, case, symlinks=True)
            damage.apply(case)
            run = executed(command, case, lines, alone=full and number % ALONE == 0)
            result, detail = judged(damage, run, right[name, *command])
            kind = f"{group.kind}{', where no reader can know it' if damage.valid else ''}"
            outcomes.append(Outcome(kind, f"{' '.join(command[:3])}: {damage.case}", result, detail))
            shutil.rmtree(case)
    (folder / "outcomes.json").write_text(json.dumps([vars(outcome) for outcome in outcomes]), encoding="utf-8")


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """Every damage, or without `full` some of each group."""
    folder.mkdir(parents=True, exist_ok=True)
    path = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(path)}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HOME": str(folder / "home")}
    environment["HF_MODULES_CACHE"] = str(folder / "modules")
    command = warm([sys.executable, __file__, str(folder), "full" if full else "sample"])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [Outcome(**values) for values in json.loads((folder / "outcomes.json").read_text(encoding="utf-8"))]


if __name__ == "__main__":
    preload()
    drive(Path(sys.argv[1]).resolve(), sys.argv[2] == "full", *sys.argv[3:])
