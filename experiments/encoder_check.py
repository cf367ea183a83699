"""The check by a pretrained encoder alone: how its file was learned, and how well it finds faults.

    python experiments/encoder_check.py --data ROOT --encoder NAME learn
    python experiments/encoder_check.py --data ROOT --encoder NAME --output DIR halomi
    python experiments/encoder_check.py --data ROOT --encoder NAME --output DIR hallucinations
    python experiments/encoder_check.py --data ROOT --encoder NAME --model FOLDER --output DIR hallucinations

ROOT has a folder for each corpus. FOLDER is an aligner that has learned what good pairs look like. DIR is
results/check.

- `learn` writes hf_attncal/checking/encoder_check.json. Clean pairs of `TEXTS`, half of them in each direction, get
  errors: those of `translation_errors.KINDS`, and words and short phrases that are replaced or dropped where the
  states link them surely (`small_errors`). A network learns which words have no partner. Causes are learned over it as
  for an aligner (`check_learning.py`), from words that were judged by a network of the other languages (`FOLDS`). The
  verdict adds the mean over the words to them. Nothing annotated is used.
- `halomi`: ROC AUC in each of 18 directions of HalOmi (Dale et al. 2023), dev half, read as one text a direction: by
  sentence (hallucination against none by `hallucinated` and `wrong`, omission by `omission`, either by `wrong`; each
  beside the mean probability of the words to have no partner), and by word. High-resource directions are those between
  English and Arabic, Chinese, German, Russian and Spanish.
- `hallucinations`: as in check.py, by the encoder alone or with the aligner of FOLDER.
"""

import argparse
import dataclasses
import json
import random
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from adapter_text import EUROPARL, TANAKA, TATOEBA
from check import BOOTSTRAP, COLUMNS, FAULTS
from detection import detection

from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.checking.check_learning import FALSE_ALARMS, fit_facts, fit_heads, model_inputs
from hf_attncal.checking.check_model import PLANTED, CheckModel, ModelInputs
from hf_attncal.checking.checker import Checker, SharedTargets
from hf_attncal.checking.encoder_check import (
    FILE,
    MIN_COVERAGE,
    PARTS_OF_VERDICT,
    EncoderCheckModel,
    EncoderJudge,
    encoder_kind,
    levels_of,
)
from hf_attncal.checking.encoder_evidence import EncoderEvidence, EvidenceReader, Pair, harmonic_softmax
from hf_attncal.checking.facts import PLANTED_FACTS
from hf_attncal.checking.features import Vocabulary
from hf_attncal.checking.fitting import fit_lengths, fit_logistic, fit_network, fit_rules
from hf_attncal.checking.logistic import Network, sigmoid
from hf_attncal.data.segmentation import Segments, segment
from hf_attncal.data.translation_errors import plant_errors
from hf_attncal.data.words import is_punctuation
from hf_attncal.io.files import open_to_read, sha256, write_json
from hf_attncal.layouts import DEFAULT_ENCODER, WEIGHTS
from hf_attncal.metrics import records

Pairs = list[tuple[str, str]]
# Of each text and direction, of each side of each line: features of words, and which have no partner (`labels`).
Words = dict[tuple[str, bool], list[tuple[np.ndarray, np.ndarray]]]
SEED = 3
KEPT = 0.4  # share of the planted errors that are learned from
SMALL = 0.6  # of the pairs, for each kind of small error
FIRST_KINDS = ("omission", "truncation", "insertion", "replacement", "unrelated", "repetition")
OTHER_KINDS = ("untranslated", "swapped", *PLANTED_FACTS)
# Small errors, and the kind whose cause learns from them, too.
LIKE = {"word": "replacement", "drop": "omission"}
ONE_IN = 20.0  # lines is wrong
SURE = 0.5  # e of a link that small errors follow
# Languages of HalOmi that are well supplied with text.
HIGH = {"ara", "arb", "deu", "eng", "rus", "spa", "zho"}


class CleanText(NamedTuple):
    """Clean pairs: two languages, files, how many are drawn, the fewest words of a side, and the credit."""

    languages: tuple[str, str]
    source: str
    target: str
    pairs: int
    fewest: int
    credit: str


def _clean(languages: str, folder: str, part: str, pairs: int, fewest: int, credit: str, end: str = "") -> CleanText:
    both = tuple(languages.split("-"))
    return CleanText(both, *(f"{folder}/{part}.{one}{end}" for one in both), pairs, fewest, credit)


TEXTS = {
    "tatoeba": _clean("de-en", "tatoeba-deen", "train", 600, 8, TATOEBA, ".gz"),
    "ges": _clean("en-sv", "ges-ensv", "test", 500, 6, f"text of GES (Holmqvist and Ahrenberg 2011): {EUROPARL}"),
    "enfr": _clean("en-fr", "europarl-enfr", "train", 600, 8, EUROPARL, ".gz"),
    "es": _clean("en-es", "golden-enes", "test", 50, 4, f"text of Graca et al. 2008: {EUROPARL}"),
    "pt": _clean("en-pt", "golden-enpt", "test", 50, 4, f"text of Graca et al. 2008: {EUROPARL}"),
    "tanaka": _clean("en-ja", "tanaka-enja", "train", 600, 8, TANAKA, ".gz"),
}
# Texts of one language, whose words are judged by a network that has read the others while the rest is learned: so
# words look to the verdict as those of a language that nothing was learned from.
FOLDS = ({"tatoeba"}, {"ges", "pt"}, {"enfr", "es"}, {"tanaka"})


class Line(NamedTuple):
    """A pair: its group (a text in one direction), what was planted ("clean" for nothing), and the words in which.

    Args:
        wrong: places of the words without a partner on both sides; None where they are not known.
        original: number of the clean pair in its group.
    """

    group: tuple[str, bool]
    kind: str
    sides: Pair
    wrong: tuple[Sequence[int] | None, Sequence[int]]
    original: int


def rows_of(root: Path, text: CleanText) -> Pairs:
    sides = []
    for name in (text.source, text.target):
        with open_to_read(root / name) as file:
            sides.append(file.read().decode("utf-8").splitlines())
    return list(zip(*sides, strict=True))


def written(words: Sequence[str], language: str) -> str:
    """Return words as a text is written, not as it is cut for a corpus."""
    text = " ".join(words)
    if language in ("ja", "zh"):
        return text.replace(" ", "")
    text = re.sub(r" ([,.;:!?%)\]}…»])", r"\1", text)
    text = re.sub(r"([(\[{«¿¡]) ", r"\1", text)
    text = re.sub(r" ('s|'t|n't|'re|'ve|'ll|'d|'m)\b", r"\1", text)
    return re.sub(r"(\w') (?=\w)", r"\1", text)


def planted_lines(root: Path, texts: dict[str, CleanText], rng: random.Random) -> list[Line]:
    """Return clean pairs of texts, half of each in either direction, and errors planted into them."""
    found = []
    for name, text in texts.items():
        rows = [
            row
            for row in rows_of(root, text)
            if min(len(segment(side).words) for side in row) >= text.fewest and max(map(len, row)) < 400
        ]
        rows = rng.sample(rows, min(text.pairs, len(rows)))
        pairs = [tuple(written([side], one) for side, one in zip(row, text.languages, strict=True)) for row in rows]
        for turned in (False, True):
            languages = text.languages[::-1] if turned else text.languages
            sides = [tuple(map(segment, pair[::-1] if turned else pair)) for pair in pairs[turned::2]]
            found += [Line((name, turned), "clean", pair, ((), ()), n) for n, pair in enumerate(sides)]
            words = [(source.words, target.words) for source, target in sides]
            errors = [error for error in plant_errors(words, FIRST_KINDS, SEED) if rng.random() <= KEPT]
            errors += plant_errors(words, OTHER_KINDS, SEED)
            of_words = {side.words: side for pair in sides for side in pair}
            for error in errors:
                if error.kind in OTHER_KINDS[:2] and error.original % 3:
                    continue
                made = [
                    of_words.get(side) or segment(written(side, language))
                    for side, language in zip((error.source, error.target), languages, strict=True)
                ]
                if (made[0].words, made[1].words) == (error.source, error.target):  # else words are cut otherwise
                    found.append(
                        Line((name, turned), error.kind, tuple(made), (error.omission, error.addition), error.original)
                    )
    return found


class Group:
    """A text in one direction: its lines, their states, and what is usual."""

    def __init__(self, lines: list[Line], languages: tuple[str, str], encoder: EncoderPrior, common: np.ndarray):
        self.name, self.languages = lines[0].group, languages
        self.evidence_reader = EvidenceReader(encoder, None, common)
        self.lines, self.reads = [], []
        self.add(lines)

    def add(self, lines: list[Line]) -> None:
        """Read lines; the first to be added are clean, and tell what is usual."""
        self.reads += self.evidence_reader.read_states([line.sides for line in lines])
        self.lines += lines

    def features(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return (
            self.evidence_reader.features(line.sides, read) for line, read in zip(self.lines, self.reads, strict=True)
        )

    def small_errors(self, rng: random.Random) -> list[Line]:
        """Replace or drop one to three words of the target that are linked surely: errors that are hard to see."""
        pool = [
            (word, rare)
            for line, read in zip(self.lines, self.reads, strict=True)
            for word, rare in zip(line.sides[1].words, read[1].surprisal.tolist(), strict=True)
            if not is_punctuation(word)
        ]
        found = []
        for line, read in zip(list(self.lines), self.reads, strict=True):
            target, rare = line.sides[1].words, read[1].surprisal
            together = harmonic_softmax(self.evidence_reader.statistics.cosines(*(one.states for one in read)))
            links = [
                (i, j)
                for i, j in enumerate(together.argmax(axis=1).tolist())
                if together[i, j] > SURE and together[:, j].argmax() == i and not is_punctuation(target[j])
            ]
            for kind in LIKE if links else ():
                if rng.random() > SMALL:
                    continue
                _, start = rng.choice(links)
                stop = min(len(target), start + rng.choice((1, 1, 2, 3)))
                new: list[str] = []
                for place in range(start, stop if kind == "word" else start):
                    near = min(rng.sample(pool, min(len(pool), 12)), key=lambda one: abs(one[1] - rare[place]))
                    new.append(near[0])
                words = (*target[:start], *new, *target[stop:])
                made = segment(written(words, self.languages[1]))
                before = {word.lower() for word in target}
                if made.words != words or len(words) < 3 or any(word.lower() in before for word in new):
                    continue
                gone = tuple(i for i, j in links if start <= j < stop)
                wrong = gone, tuple(range(start, start + len(new)))
                found.append(Line(line.group, kind, (line.sides[0], made), wrong, line.original))
        return found


def labels(line: Line, clean: Line, together: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which words of both sides have no partner: 1, 0, or not a number where it is not known.

    Args:
        line: with an error. clean: the pair before. together: its e (S, T).
    """
    found = [np.zeros(len(side.words)) for side in line.sides]
    for side, places in zip(found, line.wrong, strict=True):
        side[list(places or ())] = 1
    if line.wrong[0] is None and line.kind != "repetition":
        # Where words of the target are gone, so are the partners of the source words that were linked with them.
        before, after = clean.sides[1].words, line.sides[1].words
        start = next((n for n, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 10**6)
        start = min(start, len(before), len(after))
        pairs = zip(before[start:][::-1], after[start:][::-1], strict=False)
        same = next((n for n, (one, other) in enumerate(pairs) if one != other), 10**6)
        stop = len(before) - min(same, len(before) - start, len(after) - start)
        partner = together.argmax(axis=1)
        gone = ((partner >= start) & (partner < stop)).astype(float)
        found[0] = np.where(together.max(axis=1) > 0.4, gone, np.nan)
    for side, words in zip(found, line.sides, strict=True):
        for place, word in enumerate(words.words):
            if line.kind != "clean" and side[place] == 0 and is_punctuation(word):
                side[place] = np.nan
    return tuple(found)


def learn(options: argparse.Namespace) -> None:
    """Learn the network and the model over it, and write the file."""
    encoder = EncoderPrior.from_pretrained(options.encoder, adapted=False)
    rng = random.Random(SEED)
    lines = planted_lines(options.data, TEXTS, rng)
    groups = grouped(lines, TEXTS, encoder)
    clean = {
        (line.group, line.original): (line, together)
        for group in groups
        for line, (together, *_) in zip(group.lines, group.features(), strict=True)
        if line.kind == "clean"
    }
    words = {
        group.name: [
            (values.astype(np.float32), truth)
            for line, (_, *sides) in zip(group.lines, group.features(), strict=True)
            if line.kind not in (*OTHER_KINDS, "repetition")  # what is said again has a partner
            for values, truth in zip(sides, labels(line, *clean[line.group, line.original]), strict=True)
        ]
        for group in groups
    }
    for held_out in FOLDS:
        network = fit_words(words, held_out)
        for group in groups:
            if group.name[0] in held_out:
                group.evidence_reader.network = network
    write_model(encoder, groups[0].evidence_reader.common, fit_words(words), fit_model(groups))


def fit_words(
    words: dict[tuple[str, bool], list[tuple[np.ndarray, np.ndarray]]], but: Collection[str] = ()
) -> Network:
    """Learn which words have no partner, from all texts but some."""
    found = [one for (text, _), lines in words.items() if text not in but for one in lines]
    values, truth = map(np.concatenate, zip(*found, strict=True))
    return fit_network(values[~np.isnan(truth)], truth[~np.isnan(truth)])


def grouped(lines: list[Line], texts: dict[str, CleanText], encoder: EncoderPrior, small: bool = True) -> list[Group]:
    """Read all lines, and plant small errors where the states link words surely."""
    size = encoder.reader.model.config.hidden_size
    names = list(dict.fromkeys(line.group for line in lines))
    pure = {name: [line for line in lines if line.group == name and line.kind == "clean"] for name in names}
    reader = EvidenceReader(encoder, None, np.zeros(size, np.float32))
    states = [
        one.states
        for of_group in pure.values()
        for read in reader.read_states([line.sides for line in of_group])
        for one in read
    ]
    common = np.concatenate(states).mean(axis=0)
    rng, groups = random.Random(SEED), []
    for name in names:
        languages = texts[name[0]].languages
        group = Group(pure[name], languages[::-1] if name[1] else languages, encoder, common)
        errors = group.small_errors(rng) if small else []
        group.add([*(line for line in lines if line.group == name and line.kind != "clean"), *errors])
        groups.append(group)
    return groups


class OfManyTexts(EncoderCheckModel):
    """The model while it is learned: how long a target usually is depends on the text of the pair.

    Attributes:
        usual_length: (source, target) -> `TextStatistics.length` of the text.
    """

    usual_length: dict[tuple[str, str], float]

    def length_deviation(self, source: str, target: str) -> float:
        self.lengths = self.usual_length[source, target], *self.lengths[1:]
        return super().length_deviation(source, target)


def fit_model(groups: Sequence[Group]) -> EncoderCheckModel:
    """Learn the causes, the facts, the rules and the verdict over what the networks of the groups say."""
    spreads, usual_length = [], {}
    found: dict[str, list[tuple[EncoderEvidence, Line]]] = {}
    for group in groups:
        clean = [tuple(side.text for side in line.sides) for line in group.lines if line.kind == "clean"]
        spreads += [fit_lengths(clean)[1:]] * len(clean)
        for line, read in zip(group.lines, group.reads, strict=True):
            usual_length[line.sides[0].text, line.sides[1].text] = group.evidence_reader.statistics.length
            found.setdefault(line.kind, []).append((group.evidence_reader.evidence(line.sides, read), line))
    model = OfManyTexts(
        Vocabulary(({}, {}), (0, 0)), ({}, {}), (0.0, *np.mean(spreads, axis=0).tolist()), 1.0,
        {"pairs": len(found["clean"]), "sample": len(found["clean"]), "seed": SEED},
    )  # fmt: skip
    model.usual_length = usual_length
    seen = {kind: [(one, model.seen(one)) for one, _ in lines] for kind, lines in found.items()}
    looked = {kind: model_inputs(model, lines) for kind, lines in seen.items()}
    values = {kind: one.features for kind, one in looked.items()}
    planted = [kind for kind in values if kind in (*PLANTED, *LIKE)]
    kinds = np.repeat([LIKE.get(kind, kind) for kind in planted], [len(values[kind]) for kind in planted])
    fit_heads(model, values["clean"], np.concatenate([values[kind] for kind in planted]), kinds)
    good = [one for one, _ in found["clean"]]
    model.rules = fit_rules(good, (None, None))
    changed = [
        (one, kind, (line.wrong[0] or (), line.wrong[1])) for kind in PLANTED_FACTS for one, line in found[kind]
    ]
    model.facts = fit_facts(good, changed, (None, None), model.denials)
    texts = [line.group for _, line in found["clean"]]
    fit_verdict(model, {kind: [one for one, _ in lines] for kind, lines in seen.items()}, looked, texts)
    return model


def fit_verdict(
    model: EncoderCheckModel,
    lines: dict[str, list[EncoderEvidence]],
    looked: dict[str, ModelInputs],
    texts: Sequence[tuple[str, bool]],
) -> None:
    """Set how rare each part of what is known is in clean lines, what their sum makes probable, and the alarm.

    A network over all features, as an aligner has one, learns what planted errors look like and ranks what was
    annotated less well (docs/log.md). All `texts` count the same in what is usual, and in the alarm, which is where
    one in a hundred of their clean lines lies.
    """
    causes = {kind: CheckModel.judge(model, lines[kind], of).causes for kind, of in looked.items()}
    parts = {kind: model.line_parts(of, causes[kind]) for kind, of in looked.items()}
    number = {text: texts.count(text) for text in texts}
    weights = np.array([1 / number[text] for text in texts])
    model.tails = {part: levels_of(parts["clean"][part], weights) for part, _, _ in PARTS_OF_VERDICT}
    values = {kind: model.rarity(one) for kind, one in parts.items()}
    shares = {kind: ONE_IN if kind == "clean" else 1 / (len(lines) - 1) for kind in lines}
    truths = np.concatenate([np.full(len(one), float(kind != "clean")) for kind, one in values.items()])
    of_rows = np.concatenate([np.full(len(one), shares[kind] / len(one)) for kind, one in values.items()])
    bias, slope = fit_logistic(np.concatenate(list(values.values()))[:, None], truths, of_rows)
    model.added = float(bias), float(slope)
    of_clean = model.scores(model.judge(lines["clean"], looked["clean"]).verdict_features)
    order = of_clean.argsort()
    below = weights[order].cumsum() / weights.sum()
    model.alarm = float(sigmoid(of_clean[order][np.searchsorted(below, 1 - FALSE_ALARMS)]))


def write_model(encoder: EncoderPrior, common: np.ndarray, network: Network, model: EncoderCheckModel) -> None:
    """Write the file of the package, with numbers of five digits."""
    values = {
        "encoder": encoder_kind(encoder),
        "name": DEFAULT_ENCODER[0],
        "made_by": "experiments/encoder_check.py learn",
        "text": {
            name: f"{'-'.join(text.languages)}, {text.pairs} pairs: {text.credit}" for name, text in TEXTS.items()
        },
        "learned": model.learned,
        "common": common,
        "network": network.to_dict(),
        "lengths": model.lengths,
        "scale": model.scale,
        "heads": model.heads,
        "facts": {"field": model.facts.field, "table": model.facts.table, "head": model.facts.head},
        "rules": model.rules,
        "tails": model.tails,
        "added": model.added,
        "alarm": model.alarm,
    }
    FILE.write_text(json.dumps(rounded(values), ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {FILE}, {FILE.stat().st_size} bytes")


def rounded(value):
    """Return plain data with numbers of five digits."""
    if isinstance(value, np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


# ---- how good it is ----


def marked_words(text: Segments, marked: str) -> list[bool]:
    """Return which words of a text stand between `<<<` and `>>>` in the marked text."""
    spans, end, inside = [], 0, False
    for part in re.split("(<<<|>>>)", marked):
        if part in ("<<<", ">>>"):
            inside = part == "<<<"
        else:
            spans += [(end, end + len(part))] if inside else []
            end += len(part)
    return [any(start < last and first < stop for first, last in spans) for start, stop in text.spans]


def halomi(options: argparse.Namespace) -> None:
    """Score the annotated translations of 18 directions, each a text of its own."""
    path = options.data / "halomi" / "dev.tsv"
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    directions, encoder = {}, EncoderPrior.from_pretrained(options.encoder, adapted=False)
    for direction in dict.fromkeys((row[0], row[1]) for row in rows):
        some = [row for row in rows if (row[0], row[1]) == direction]
        pairs = [tuple(map(_plain, row[4:6])) for row in some]
        judge = AskedAllTheSame(encoder)
        verdicts = Checker(None, encoder=judge).check(pairs)
        known = judge.evidence_reader.statistics.known
        evidence = judge.evidence_reader.read([tuple(map(segment, pair)) for pair in pairs])
        made_up, left_out = ([row[column][0] > "1" for row in some] for column in (6, 7))
        any_fault = [any(both) for both in zip(made_up, left_out, strict=True)]
        scores = {
            "sentence_auc": (made_up, [verdict.hallucinated for verdict in verdicts]),
            "sentence_wrong_auc": (made_up, [verdict.wrong for verdict in verdicts]),
            "sentence_words_auc": (made_up, [unpartnered(one, 1) for one in evidence]),
            "sentence_left_out_auc": (left_out, [verdict.omission for verdict in verdicts]),
            "sentence_left_out_words_auc": (left_out, [unpartnered(one, 0) for one in evidence]),
            "sentence_any_auc": (any_fault, [verdict.wrong for verdict in verdicts]),
            "sentence_any_words_auc": (any_fault, [unpartnered(one, 0) + unpartnered(one, 1) for one in evidence]),
            "left_out_auc": (of_words(some, 4), [one for verdict in verdicts for one in verdict.source_words]),
            "made_up_auc": (of_words(some, 5), [one for verdict in verdicts for one in verdict.target_words]),
        }
        found = {name: detection(*both, 0).auc.value for name, both in scores.items()}
        languages = [code[:3] for code in direction]
        directions["-".join(languages)] = {
            "lines": len(some),
            "known": known,
            "verdict": known >= MIN_COVERAGE,
            "high": set(languages) <= HIGH,
            "auc": found,
        }
        print(*languages, directions["-".join(languages)], flush=True)
    means = {
        name: {
            of: float(np.mean([one["auc"][of] for one in directions.values() if name == "all" or one["high"]]))
            for of in scores
        }
        for name in ("all", "high")
    }
    save(options, "halomi", {"dev.tsv": path}, {"means": means, "directions": directions})


def of_words(rows: Sequence[Sequence[str]], column: int) -> list[bool]:
    """Return which words of a column are marked."""
    return [one for row in rows for one in marked_words(segment(_plain(row[column])), row[column])]


def unpartnered(evidence: EncoderEvidence, side: int) -> float:
    """Return the mean probability of the words of a side to have no partner; a mark weighs a tenth of a word."""
    words = (evidence.source, evidence.target)[side].words
    weights = np.where(list(map(is_punctuation, words)), 0.1, 1.0)
    return float((sigmoid(evidence.against[side]) * weights).sum() / max(weights.sum(), 0.1))


def _plain(marked: str) -> str:
    return re.sub("<<<|>>>", "", marked)


class AskedAllTheSame(EncoderJudge):
    """Judges languages that the encoder does not know, too: for the mean of all directions, as others are measured."""

    covers_languages = True


def hallucinations(options: argparse.Namespace) -> None:
    """Score the annotated German-English translations by the encoder, alone or with an aligner."""
    path = options.data / "hallucinations-deen" / "dev.tsv"
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    pairs = [(row[0], row[1]) for row in rows]
    marks = [dict(zip(COLUMNS, map(int, row[3:]), strict=True)) for row in rows]
    checker = Checker.from_pretrained(options.model, encoder=options.encoder)
    verdicts = checker.check(pairs, shared=SharedTargets(pairs))
    found = {}
    for fault, (columns, score) in FAULTS.items():
        truths = [any(mark[column] for column in columns) for mark in marks]
        found[fault] = dataclasses.asdict(detection(truths, [getattr(one, score) for one in verdicts], BOOTSTRAP))
        print(fault, found[fault]["auc"])
    name = "hallucinations-deen" + ("_with_counts" if options.model else "")
    save(options, name, {"dev.tsv": path}, {"lines": len(pairs), "faults": found})


def save(options: argparse.Namespace, name: str, files: dict[str, Path], numbers: dict) -> None:
    """Write DIR/encoder/NAME.json."""
    weights = Path(options.encoder) / WEIGHTS
    config = {"part": options.part, "encoder_sha256": sha256(weights) if weights.is_file() else options.encoder}
    config["model_sha256"] = sha256(FILE)
    path = options.output / "encoder" / f"{name}.json"
    write_json(records.record(config, files, "cpu") | numbers, path)
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", required=True, type=Path, metavar="ROOT")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER[0], metavar="NAME", help="folder or Hub name")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="hallucinations: an aligner that judges, too")
    parser.add_argument("--output", type=Path, default=Path("results/check"), metavar="DIR")
    options = parser.parse_args()
    torch.set_num_threads(1)
    PARTS[options.part](options)


PARTS = {"learn": learn, "halomi": halomi, "hallucinations": hallucinations}

if __name__ == "__main__":
    main()
