"""Small reports to write, made-up faithfulness, and a reader of the packed weights of a page."""

import base64
import functools
import json
import re
import zlib
from collections.abc import Iterator

import numpy as np
import torch
from helpers import FAMILIES
from seq2seq_helpers import bpe_tokenizer, randomized, sized

from hf_attncal.report.figures.contents import Chart, PairView, PairWeights, Report, Section
from hf_attncal.report.judged_faithfulness import MEASURES, JudgedFaithfulness, faithfulness

# Text that must stay text everywhere on a page.
HOSTILE = "</script><script>alert(1)</script> \"quotes' <!-- </style> </noscript> <b>&amp;</b> {{7*7}} ]]>"
SCRIPTS = "שלום السلام 日本語 😀 \u202e " + "Donaudampfschifffahrt" * 20


SWITCHES = {
    "gated": {"calibration": "gated"},
    "leaky": {"leaky": True},
    "both": {"calibration": "fixed", "leaky": True},
    "probe": {"calibration": "annealed"},
}


@functools.cache
def model_of(family, kind):
    *_, our_config, our_model = FAMILIES[family]
    torch.manual_seed(3)
    more = {"annealing_steps": 1e12, "renormalize": True} if kind == "probe" else {}
    return randomized(our_model(our_config(**sized(bpe_tokenizer()), **SWITCHES[kind], **more)).double()).train()


def pair_view(index: int = 0, source: str = "the old house", target: str = "das alte Haus", **fields) -> PairView:
    """Return a pair whose words have two tokens each, except the first source word, and a special token per side."""
    words = [len(text.split()) for text in (source, target)]
    of_tokens = [
        [*sorted([*range(count), *range(first, count)]), -1] for count, first in zip(words, (1, 0), strict=True)
    ]
    names = [[f"{text.split()[word]}{n}" if word >= 0 else "</s>" for n, word in enumerate(numbers)]
             for text, numbers in zip((source, target), of_tokens, strict=True)]  # fmt: skip
    generator = np.random.default_rng(index)
    shape = (3, 2, len(of_tokens[1]), len(of_tokens[0]))
    shares = generator.dirichlet(np.full(shape[-1] + 1, 0.3), size=shape[:-1])
    weights = {
        "attention": PairWeights(shares[..., :-1], null=shares[..., -1]),
        "occlusion": PairWeights(generator.normal(size=(1, 1, *shape[2:])) * 4, signed=True),
    }
    fields = {"weights": weights, "links": [(0, 0), (1, 2)], "notes": {"reliability": index / 7}} | fields
    return PairView(index, source, target, *names, *of_tokens, **fields)


def figure():
    """Return a chart of two bars with hostile labels."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(3, 2), facecolor="white")
    axes = drawn.subplots()
    axes.bar(["a", "<script>alert(2)</script>"], [1, 2], color="#0072b2")
    axes.set_xlabel("words & more", color="#222222")
    return drawn


def chart(name: str = "bars", **fields) -> Chart:
    rows = [("a", 1, 0.123456), ("<b>", None, 2.0)]
    fields = {"columns": ("what", "count", "share"), "rows": rows, "draw": figure} | fields
    return Chart(name, **{"title": "Two bars", "caption": f"Higher is more. {HOSTILE}"} | fields)


def report(pairs=(), charts=None, **fields) -> Report:
    charts = [chart(), chart("table", draw=None)] if charts is None else charts
    fields = {
        "title": f"What it says {HOSTILE}",
        "summary": [f"First. {HOSTILE}", "Second."],
        "caveats": ["Beware."],
        "sections": [Section("A section", "What is in it.", charts)],
        "record": {"config": {"text": HOSTILE}},
    } | fields
    return Report(pairs=pairs, **fields)


def unpack(known: dict, data: bytes) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield name, weights with NULL, and step sizes of each kind of weights, from the format of `packed`."""
    data = zlib.decompress(data)
    place = 0
    for way in known["weights"]:
        matrices = way["layers"] * way["heads"]
        shape = len(known["targetTokens"]), len(known["sourceTokens"]) + way["null"]
        steps = np.frombuffer(data, "<f4", matrices, place).reshape(way["layers"], way["heads"], 1, 1)
        place += 4 * matrices
        size = matrices * shape[0] * shape[1]
        in_steps = np.frombuffer(data, "i1" if way["signed"] else "u1", size, place)
        place += size
        yield way["name"], in_steps.reshape(way["layers"], way["heads"], *shape) * steps, steps
    assert place == len(data)


def pairs_of(html: str) -> list[tuple[dict, bytes]]:
    """Return the data of each pair on a page, and its packed weights."""
    block = r'<script type="application/json" class="pair">(.*?)</script><script type="text/plain">(.*?)</script>'
    return [(json.loads(known), base64.b64decode(data)) for known, data in re.findall(block, html)]


def made_up_judged(
    means: dict[str, float], pairs: int = 40, operators=("replace", "hide", "unk"), noise: float = 0.3
) -> JudgedFaithfulness:
    """Return methods whose falls are around a mean for every measure and operator."""
    generator = np.random.default_rng(0)
    shape = len(operators), len(MEASURES), 3
    falls = [{name: mean + noise * generator.normal(size=shape) for name, mean in means.items()} for _ in range(pairs)]
    return faithfulness(falls, operators, MEASURES, targets="output", bootstrap=100)
