"""What was learned for an aligner, damaged or of another aligner: refused by file and field, or answered as before.

Every leaf, list and object of every JSON file of two small aligners is replaced, taken out and renamed; lists are cut
and put in another order; weights, tokenizers and files of another aligner take the place of their own. No answer may
change, and no flag may get lost.
"""

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz import Answer, here, wrong_ending
from inputs import survived
from outcomes import Outcome, Result

VALUES = "a value of a file beside an aligner"
OTHERS = "files of another aligner"
SAMPLE = 100  # without `full`, every so many
EACH = 1  # leaves of a list or of the words of a table that are tried
PER_PLACE = 5  # damages of each
MISSING, RENAMED, CUT, TURNED, TWICE = (object() for _ in range(5))
# What no field may be, and what it may be in some place.
DAMAGES = [None, float("nan"), float("inf"), -float("inf"), 1e308, "", [], {}, True, 10**400]
DAMAGES += [MISSING, RENAMED, TWICE, -1, 0.123]
SHOWN = {MISSING: "missing", RENAMED: "renamed", CUT: "cut by one", TURNED: "turned round", TWICE: "twice"}
# Files of a model that are read before any seal; their own checks may name the field alone.
OF_MODEL = ("config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Aligner:
    """A small aligner, the commands that read it, and what they answer."""

    folder: Path
    commands: tuple[list[str], ...]
    right: tuple[bytes, ...]

    def judged(self, told: str | None, case: Path) -> tuple[Result, str]:
        """What the commands make of a damaged copy; `told` is what a refusal has to have in it."""
        refusal: tuple[Result, str] = "refused", ""
        for command, right in zip(self.commands, self.right, strict=True):
            answer = here([word.replace("MODEL", str(case)) for word in command])
            warned = answer.err
            answer = Answer(answer.status, answer.out, warned)
            if answer.status == 0:
                found = survived(answer, right)
            elif answer.status is None or "Traceback" in answer.err:
                found = ("hung" if answer.status is None else "traceback"), answer.err
            else:
                wrong = wrong_ending(told or "", answer) or answer.out.decode()
                found = ("wrong", wrong) if wrong else ("refused", "")
            if found[0] not in ("survived", "refused"):
                return found
            refusal = found if found[0] == "survived" else refusal
        return refusal


# ---- damages ----

Way = tuple[str | int, ...]


def ways(value: Any, rng: random.Random, way: Way = ()) -> Iterator[Way]:
    """The ways to every leaf, list and object; of long lists and of words, to some."""
    if way:
        yield way
    if isinstance(value, dict):
        names = list(value)
        for name in names if len(names) < 40 else rng.sample(names, EACH):
            yield from ways(value[name], rng, (*way, name))
    elif isinstance(value, list):
        for place in sorted(rng.sample(range(len(value)), min(EACH, len(value)))):
            yield from ways(value[place], rng, (*way, place))


def changes(value: Any, place: str | int, damage: Any) -> bool:
    """Whether a damage can be done to a value in its place, and changes it."""
    if damage in (CUT, TURNED):
        return (value[:-1] if damage is CUT else value[::-1]) != value
    if damage in (MISSING, RENAMED, TWICE):
        return not isinstance(place, int)
    return type(value) is not type(damage) or value != damage


def damaged(content: Any, way: Way, damage: Any) -> str | None:
    """The text of the file with one damage; None where it cannot be done, or changes nothing."""
    content = json.loads(json.dumps(content))
    *outer, last = way
    inner = content
    for name in outer:
        inner = inner[name]
    value = inner[last]
    if not changes(value, last, damage):
        return None
    if damage in (CUT, TURNED):
        inner[last] = value[:-1] if damage is CUT else value[::-1]
    elif damage is MISSING:
        del inner[last]
    elif damage is RENAMED:
        inner[f"{last}s"] = inner.pop(last)
    elif damage is TWICE:
        marked = inner[last] = "\0"
        written = json.dumps(content)
        key = f"{json.dumps(last)}: "
        return written.replace(f"{key}{json.dumps(marked)}", f"{key}0, {key}{json.dumps(value)}")
    else:
        inner[last] = damage
    return json.dumps(content)


def _values(aligner: Aligner, case: Path, seed: int) -> Iterator[tuple[str, Callable[[], tuple[Result, str]]]]:
    for path in sorted(aligner.folder.glob("*.json")):
        content, rng = json.loads(path.read_text(encoding="utf-8")), random.Random(f"{seed} {path.name}")
        for way in ways(content, rng):
            value = content
            for name in way:
                value = value[name]
            more = [CUT, TURNED] if isinstance(value, list) else []
            for damage in rng.sample([*DAMAGES, *more], PER_PLACE):
                if path.name == "config.json" and damage == 10**400:  # a size beyond all memory: see `damaged`
                    continue
                if path.name == "config.json" and aligner.folder.name == "encoder" and damage in (MISSING, RENAMED):
                    continue  # then it is the default, and earlier versions of transformers leave defaults out
                if changes(value, way[-1], damage):
                    shown = SHOWN.get(damage) if damage.__hash__ else None
                    what = f"{path.name}: {'.'.join(map(str, way))[:60]} {shown or json.dumps(damage)[:20]}"
                    given = content, way, damage  # made only if it is tried
                    yield VALUES, what, lambda path=path, given=given: _judge(aligner, case, path, given)


def _judge(aligner: Aligner, case: Path, path: Path, given: tuple[Any, Way, Any]) -> tuple[Result, str]:
    _copy(aligner.folder, case)
    (case / path.name).write_text(damaged(*given), encoding="utf-8")
    fields = [re.escape(name) for name in given[1] if isinstance(name, str)]
    field = f"({'|'.join(fields)})"
    name = re.escape(path.name)
    told = f"{field}|{name}" if path.name in OF_MODEL else f"(?=.*{name})(?=.*{field})"
    return aligner.judged(told, case)


def _copy(folder: Path, case: Path) -> None:
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(folder, case, copy_function=os.link)
    for file in case.glob("*.json"):  # the others are not changed in place
        file.unlink()
        shutil.copy(folder / file.name, file)


# ---- files of another aligner ----


def _weights(change: Callable[[dict], Any]) -> Callable[[Path, Path], None]:
    def apply(case: Path, other: Path) -> None:
        from safetensors.torch import load_file, save_file

        weights = {name: tensor.clone() for name, tensor in load_file(case / "model.safetensors").items()}
        change(weights)
        (case / "model.safetensors").unlink()
        save_file(weights, case / "model.safetensors", metadata={"format": "pt"})

    return apply


def _taken(*names: str) -> Callable[[Path, Path], None]:
    def apply(case: Path, other: Path) -> None:
        for name in names:
            (case / name).unlink()
            shutil.copy(other / name, case)

    return apply


def _of_counts() -> dict[str, tuple[Callable[[Path, Path], None], str]]:
    """What can become of an aligner that counts."""
    import torch

    def put(name: str, change: Callable[[Any], Any]) -> Callable[[Path, Path], None]:
        return _weights(lambda weights: weights.update({name: change(weights[name]).contiguous()}))

    def swapped(table: Any) -> Any:
        table = table.clone()
        table[[0, -1]] = table[[-1, 0]]
        return table

    damages = {
        "counts in another order": (put("counts", lambda t: t.flip(0)), "counts"),
        "a negative count": (put("counts", lambda t: t.index_fill(0, torch.tensor([5]), -1.0)), "counts"),
        "pairs in another order": (put("pairs", swapped), "pairs"),
        "a pair beyond the vocabulary": (
            put("pairs", lambda t: t.index_fill(0, torch.tensor([-1]), 1 << 50)),
            "pairs",
        ),
        "a negative pair": (put("pairs", lambda t: t.index_fill(0, torch.tensor([0]), -4)), "pairs"),
        "a negative jump": (put("forward_jumps", lambda t: t.index_fill(0, torch.tensor([3]), -0.5)), "forward_jumps"),
        "negative words": (put("source_counts", lambda t: -t), "source_counts"),
        "fewer words": (put("target_counts", lambda t: t[:-1]), "target_counts"),
        "fewer counts": (put("counts", lambda t: t[:-1]), "counts"),
    }
    return {what: (apply, f"{told}|weights") for what, (apply, told) in damages.items()}


def _others(aligner: Aligner, other: Path, case: Path) -> Iterator[tuple[str, str, Callable[[], tuple[Result, str]]]]:
    changes = {
        f"{name} of another": (_taken(name), f"{name}|tokenizer|weights")
        for name in sorted(os.listdir(aligner.folder))
    }
    model = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    changes["another model under what was learned"] = (
        _taken(*model),
        "cannot be used: it was learned for another model",
    )
    lists = [name for name in os.listdir(aligner.folder) if name.endswith(".json") and name not in model]
    changes["another model and one file of it"] = _taken(*model, lists[0]), "it was learned for another model"
    if (aligner.folder / "check.json").exists():
        changes |= _of_counts()
    for what, (apply, told) in changes.items():

        def judge(apply=apply, told=told) -> tuple[Result, str]:
            _copy(aligner.folder, case)
            apply(case, other)
            return aligner.judged(told, case)

        yield OTHERS, what, judge


# ---- the aligners ----


def prepare(folder: Path) -> list[tuple[Aligner, Path]]:
    """An aligner that counts with all that is learned for one, and an encoder; and another of each."""
    import torch
    from aligner_helpers import counting_aligner
    from seq2seq_helpers import bpe_tokenizer
    from transformers import BertConfig, BertModel

    from hf_attncal.alignment.encoder import EncoderStates
    from hf_attncal.alignment.probabilities import LinkProbabilities, Platt
    from hf_attncal.checking.check_learning import learn_check
    from hf_attncal.data.synthetic.english_german import generate_pairs
    from hf_attncal.data.tokenizer import train_bpe_tokenizer

    pairs = [(" ".join(pair.source), " ".join(pair.target)) for pair in generate_pairs(500, seed=1)]
    faulty = [*pairs[:6], (pairs[6][0], pairs[7][1]), (pairs[8][0] * 2, pairs[8][1]), (pairs[9][0], "")]
    for side, lines in zip(("source", "target"), zip(*faulty, strict=True), strict=True):
        (folder / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for number, name in enumerate(("counts", "other_counts")):
        aligner = counting_aligner(pairs[number * 200 : 300 + number * 200])
        _save(aligner.model, aligner.tokenizer, folder / name)
        rules = {"harmonic": Platt(1.3 + number, -0.2), "union": Platt(0.8, 0.1)}
        LinkProbabilities(rules, 7, unknown=(0.25, 0.5), score=(0.8, 0.6)).save(folder / name)
        learn_check(aligner, pairs[:200], sample=60, seed=number).save(folder / name)
    tokenizers = bpe_tokenizer(), train_bpe_tokenizer([side for pair in pairs for side in pair], 150)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    for number, (name, tokenizer) in enumerate(zip(("encoder", "other_encoder"), tokenizers, strict=True)):
        torch.manual_seed(number)
        encoder = BertModel(BertConfig(vocab_size=150, **sizes)).eval()
        with torch.no_grad():
            encoder.embeddings.word_embeddings.weight.mul_(30)
        _save(encoder, tokenizer, folder / name)
        states = EncoderStates(layer=1, threshold=0.02 + 0.01 * number)
        states.save(folder / name)
        LinkProbabilities({"intersection": Platt(1.3, number)}, 7, states.to_dict()).save(folder / name)
    text = ["--source", str(folder / "source"), "--target", str(folder / "target"), "--device", "cpu"]
    run = ["align", "run", "MODEL", "--scores", *text]
    commands = {"counts": (["check", "MODEL", "--format", "json", *text], run), "encoder": (run,)}
    found = []
    for name, of in commands.items():
        answers = [here([word.replace("MODEL", str(folder / name)) for word in command]) for command in of]
        assert all((answer.status, answer.err) == (0, "") and answer.out.strip() for answer in answers), answers
        found.append((Aligner(folder / name, of, tuple(answer.out for answer in answers)), folder / f"other_{name}"))
    assert b'"flagged": ["' in found[0][0].right[0]
    return found


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """Every damage, or without `full` some of each kind; another seed (ATTNCAL_FAULTS_SEED) takes other leaves."""
    folder.mkdir(parents=True, exist_ok=True)
    seed, outcomes = int(os.environ.get("ATTNCAL_FAULTS_SEED", "0")), []
    for aligner, other in prepare(folder):
        case = folder / "case"
        cases = [*_values(aligner, case, seed), *_others(aligner, other, case)]
        for number, (kind, what, judge) in enumerate(cases):
            if full or (number + seed) % SAMPLE == 0 or (kind == OTHERS and number % 4 == 0):
                outcomes.append(Outcome(kind, f"{aligner.folder.name}: {what}", *judge()))
    return outcomes
