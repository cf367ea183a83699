"""Tiny models with an SSRU decoder, and generated Marian files: binaries, vocabularies, a slow forward pass."""

import io
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sentencepiece
import torch
import yaml
from helpers import TINY, scatter

from hf_attncal import SSRUConfig, SSRUForConditionalGeneration

LINES = [
    "the old house is red",
    "the cat sat on the mat",
    "a red cat and an old man",
    "the man has a house",
    "a < b / c > d",
]
# Configuration of a tiny model in Marian's format.
SETTINGS = {
    "type": "transformer",
    "dec-cell": "ssru",
    "transformer-decoder-autoreg": "rnn",
    "dim-emb": 16,
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-heads": 4,
    "transformer-dim-ffn": 24,
    "transformer-ffn-activation": "relu",
    "transformer-ffn-depth": 2,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-guided-alignment-layer": "last",
    "tied-embeddings-all": True,
    "version": "v1.9.56",
}


def tiny_ssru(**settings) -> SSRUForConditionalGeneration:
    """Return a tiny random model in float64 with scattered parameters; `settings` override fields."""
    torch.manual_seed(3)
    model = SSRUForConditionalGeneration(SSRUConfig(**TINY | settings)).double()
    scatter(model, 0.6)
    return model


def write_vocabulary(path: Path, lines: Sequence[str] = LINES, **options) -> sentencepiece.SentencePieceProcessor:
    """Train and return a SentencePiece model like Marian's."""
    written = io.BytesIO()
    fixed = {"vocab_size": 40, "hard_vocab_limit": False, "bos_id": -1, "eos_id": 0, "unk_id": 1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines] * 5), model_writer=written, minloglevel=2, **fixed | options
    )
    path.write_bytes(written.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


def random_weights(settings: dict, vocabulary: int) -> dict[str, np.ndarray]:
    """Return random weights by Marian's names, matrices as (inputs, outputs)."""
    width, inner, generator = settings["dim-emb"], settings["transformer-dim-ffn"], np.random.default_rng(5)
    shapes = {"Wemb": (vocabulary, width), "decoder_ff_logit_out_b": (1, vocabulary)}

    def norm(name: str) -> None:
        shapes.update({f"{name}_ln_scale": (1, width), f"{name}_ln_bias": (1, width)})

    def attention(name: str) -> None:
        for part in "qkvo":
            shapes.update({f"{name}_W{part}": (width, width), f"{name}_b{part}": (1, width)})
        norm(f"{name}_Wo")

    def feed(name: str) -> None:
        shapes.update({f"{name}_W1": (width, inner), f"{name}_b1": (1, inner)})
        shapes.update({f"{name}_W2": (inner, width), f"{name}_b2": (1, width)})
        norm(f"{name}_ffn")

    for layer in range(1, settings["enc-depth"] + 1):
        attention(f"encoder_l{layer}_self")
        feed(f"encoder_l{layer}_ffn")
    for layer in range(1, settings["dec-depth"] + 1):
        name = f"decoder_l{layer}"
        shapes |= {f"{name}_rnn_W": (width, width), f"{name}_rnn_Wf": (width, width), f"{name}_rnn_bf": (1, width)}
        norm(f"{name}_rnn_ffn")
        attention(f"{name}_context")
        feed(f"{name}_ffn")
    return {name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def write_binary(path: Path, settings: dict, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Write a Marian file with matrices as 8-bit integers and the rest in float32; return its rounded values."""
    heads, names, shapes, data, values = [], [], [], [], {}
    items = [*weights.items(), ("Wemb_QuantMultA", np.ones((1, 1), np.float32))]
    for name, value in items:
        kind, content = 0x404, value.astype("<f4").tobytes()
        if min(value.shape) > 1:
            factor = np.float32(127 / np.abs(value).max())
            whole = np.round(value * factor).astype(np.int8)
            kind, content = 0x4101, (whole if name == "Wemb" else whole.T).tobytes() + struct.pack("<f", factor)
            value = whole.astype(np.float32) / factor
        values[name] = value
        heads.append((len(name) + 1, kind, value.ndim, len(content)))
        names.append(name.encode() + b"\0")
        shapes.append(struct.pack(f"<{value.ndim}i", *value.shape))
        data.append(content)
    text = yaml.safe_dump(settings).encode() + b"\0"
    heads.append((len("special:model.yml") + 1, 0x101, 1, len(text)))
    names.append(b"special:model.yml\0")
    shapes.append(struct.pack("<i", len(text)))
    data.append(text)
    head = struct.pack("<2Q", 1, len(heads)) + b"".join(struct.pack("<4Q", *numbers) for numbers in heads)
    path.write_bytes(head + b"".join(names) + b"".join(shapes) + struct.pack("<Q", 8) + bytes(8) + b"".join(data))
    return values


def shortlist(vocabulary: int) -> list[list[int]]:
    """Return a list of up to three tokens for each token."""
    return [[(2 * token + n) % vocabulary for n in range(token % 4)] for token in range(vocabulary)]


def write_shortlist(path: Path, lists: Sequence[Sequence[int]], first: int = 2) -> None:
    """Write a shortlist in Marian's binary form."""
    offsets = [0, *np.cumsum([len(of) for of in lists]).tolist()]
    head = struct.pack("<6Q", 0xF11A48D5013417F5, 0, first, 3, len(offsets), offsets[-1])
    tokens = [token for of in lists for token in of]
    path.write_bytes(head + struct.pack(f"<{len(offsets)}Q", *offsets) + struct.pack(f"<{len(tokens)}I", *tokens))


def write_model(folder: Path, **changed) -> tuple[dict, dict[str, np.ndarray]]:
    """Write a folder like Firefox's; return the settings, and the weights as they are in the file."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = write_vocabulary(folder / "vocab.abxy.spm")
    settings = SETTINGS | {"dim-vocabs": [pieces.get_piece_size()] * 2} | changed
    weights = random_weights(settings, pieces.get_piece_size())
    write_shortlist(folder / "lex.50.50.abxy.s2t.bin", shortlist(pieces.get_piece_size()))
    return settings, write_binary(folder / "model.abxy.intgemm.alphas.bin", settings, weights)


class SlowMarian:
    """Slow model in float64 with Marian's names: one sentence and one step at a time."""

    def __init__(self, settings: dict, weights: dict[str, np.ndarray]):
        self.settings, self.width = settings, settings["dim-emb"]
        self.weights = {name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()}

    def _affine(self, x, weight, bias):
        return x @ self.weights[weight] + self.weights[bias][0]

    def _add_and_norm(self, x, added, name):
        total = x + added
        scaled = (total - total.mean(-1, keepdim=True)) / (total.var(-1, keepdim=True, correction=0) + 1e-6).sqrt()
        return scaled * self.weights[f"{name}_ln_scale"][0] + self.weights[f"{name}_ln_bias"][0]

    def _position(self, place: int):
        half = self.width // 2
        angles = [place * 10_000 ** (-k / (half - 1)) for k in range(half)]
        return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)

    def _attend(self, x, memory, name):
        size = self.width // self.settings["transformer-heads"]
        query, key, value = (
            self._affine(states, f"{name}_W{part}", f"{name}_b{part}")
            for states, part in ((x, "q"), (memory, "k"), (memory, "v"))
        )
        heads, weights = [], []
        for first in range(0, self.width, size):
            part = slice(first, first + size)
            weights.append(torch.softmax(query[:, part] @ key[:, part].T / size**0.5, dim=-1))
            heads.append(weights[-1] @ value[:, part])
        return self._affine(torch.cat(heads, dim=-1), f"{name}_Wo", f"{name}_bo"), torch.stack(weights)

    def _feed(self, x, name):
        inner = self._affine(x, f"{name}_W1", f"{name}_b1").clamp(min=0)
        return self._add_and_norm(x, self._affine(inner, f"{name}_W2", f"{name}_b2"), f"{name}_ffn")

    def __call__(self, source: list[int], target: list[int]):
        """Return logits (T, V), and the attention of the last layer, (heads, T, S)."""
        embed = self.weights["Wemb"] * self.width**0.5
        x = torch.stack([embed[token] + self._position(place) for place, token in enumerate(source)])
        for layer in range(1, self.settings["enc-depth"] + 1):
            name = f"encoder_l{layer}"
            x = self._add_and_norm(x, self._attend(x, x, f"{name}_self")[0], f"{name}_self_Wo")
            x = self._feed(x, f"{name}_ffn")
        before = [torch.zeros(self.width, dtype=torch.float64), *(embed[token] for token in target[:-1])]
        y = torch.stack([token + self._position(place) for place, token in enumerate(before)])
        for layer in range(1, self.settings["dec-depth"] + 1):
            name = f"decoder_l{layer}"
            cell, cells = torch.zeros(self.width, dtype=torch.float64), []
            for step in y:
                forget = torch.sigmoid(self._affine(step, f"{name}_rnn_Wf", f"{name}_rnn_bf"))
                cell = forget * cell + (1 - forget) * (step @ self.weights[f"{name}_rnn_W"])
                cells.append(cell.clamp(min=0))
            y = self._add_and_norm(y, torch.stack(cells), f"{name}_rnn_ffn")
            context, weights = self._attend(y, x, f"{name}_context")
            y = self._add_and_norm(y, context, f"{name}_context_Wo")
            y = self._feed(y, f"{name}_ffn")
        return y @ self.weights["Wemb"].T + self.weights["decoder_ff_logit_out_b"][0], weights
