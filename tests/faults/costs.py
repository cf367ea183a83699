"""What would cost out of proportion is refused by its name before it begins, or costs in proportion.

Sizes in config.json that the weights beside it do not have; and pairs of lines of many words, which are aligned in
seconds where they can be, or refused by their line.
"""

import json
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path

from fuzz import here
from inputs import refused
from outcomes import Outcome

SIZES, LINES = "sizes that the weights do not have", "lines of far too many words"
FIELDS = {
    "bert": ("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "type_vocab_size"),
    "marian": ("encoder_layers", "decoder_layers", "d_model", "encoder_ffn_dim", "decoder_ffn_dim", "vocab_size"),
}
_MEMORY = 1 << 31  # bytes more than before, which no refusal and no pair of lines may take


def run(folder: Path, *, full: bool, seed: int | None = None) -> list[Outcome]:
    """All of them; without `full`, a few of each."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(int(os.environ.get("ATTNCAL_FAULTS_SEED", "0")) if seed is None else seed)
    return [*_sizes(folder, draw, 200 if full else 12), *_lines(folder, draw, full)]


def _sizes(folder: Path, draw: random.Random, number: int) -> Iterator[Outcome]:
    models = {kind: _saved(folder, kind) for kind in FIELDS}
    for name in ("source", "target"):
        (folder / name).write_text("a b\n")
    text = ["--source", str(folder / "source"), "--target", str(folder / "target")]
    for _ in range(number):
        kind = draw.choice(list(FIELDS))
        field = draw.choice([*FIELDS[kind], "max_position_embeddings"])
        value = draw.choice([10 ** draw.randint(7, 18), -draw.randint(1, 10**6), "many", True, [7], 2.5])
        file = models[kind] / "config.json"
        saved = file.read_text()
        file.write_text(json.dumps(json.loads(saved) | {field: value}))
        command = ["translate", str(models[kind])] if kind == "marian" and draw.random() < 0.5 else None
        command = command or ["align", "run", str(models[kind])]
        before = _peak()
        answer = here([*command, *(text if command[0] == "align" else text[:2])])
        judged = refused(answer, f"`{field}`")
        if judged[0] == "refused" and _peak() - before > _MEMORY:
            judged = "wrong", f"{_peak() - before:.1e} bytes for a refusal"
        file.write_text(saved)
        yield Outcome(SIZES, f"{' '.join(command[:-1])}: {kind}, {field} {value!r}", *judged)


def _lines(folder: Path, draw: random.Random, full: bool) -> Iterator[Outcome]:
    """Lines of single letters, whose words are as many as a line can have."""
    sizes = [(2_000, 2_000), (6_000, 6_000), (400_000, 100)]
    sizes += [(draw.randint(1, 4_000), draw.randint(1, 4_000)) for _ in range(10)] if full else []
    for number, size in enumerate(sizes):
        names = [folder / f"{number}.{side}" for side in ("source", "target")]
        for name, words in zip(names, size, strict=True):
            name.write_text(f"{' '.join(draw.choices('abcdefghij', k=words))}\na b\n")
        text = ["--source", str(names[0]), "--target", str(names[1]), "--longest-line", "10000000"]
        before, answer = _peak(), here(["align", "quick", *text])
        if size[0] * size[1] > 3 * 10**7:
            judged = refused(answer, r"line 1 .*pairs of words.*Split the line")
        else:
            whole = answer.status == 0 and len(answer.out.splitlines()) == 2
            judged = ("survived", "") if whole else ("lost", answer.err)
        if judged[0] in ("survived", "refused") and _peak() - before > _MEMORY:
            judged = "wrong", f"{_peak() - before:.1e} bytes"
        yield Outcome(LINES, f"align quick: {size[0]} and {size[1]} words", *judged)


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _saved(folder: Path, kind: str) -> Path:
    """Save a model of two layers and sixteen numbers, which nothing is to be loaded of."""
    from transformers import BertConfig, BertModel, MarianConfig, MarianMTModel

    place = folder / kind
    if kind == "bert":
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        model = BertModel(BertConfig(vocab_size=50, **sizes))
    else:
        sides = ("encoder", "decoder")
        sizes = {f"{side}_{name}": 2 for side in sides for name in ("layers", "attention_heads")}
        sizes |= {f"{side}_ffn_dim": 32 for side in sides}
        tokens = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": 1}
        model = MarianMTModel(MarianConfig(vocab_size=50, d_model=16, **sizes, **tokens))
    model.save_pretrained(place)
    return place
