"""Which method finds what was planted, and which metric can tell a method that does from one that does not?

A small translator is trained on pairs of which it is known what comes from where: the links of the synthetic grammar,
and invented words that nothing but their place in the source can tell. On others of their kind each method of
attribution is scored by how often its best source word is a true one, and each measure of faithfulness by whether it
finds scores that are the truth better than random ones. What fails here says nothing elsewhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.attributions import word_posteriors
from hf_attncal.analysis.attribution import CONTROLS, word_scores, works_on
from hf_attncal.analysis.faithfulness import CUTS, PairFalls, faithfulness_falls, measures, word_effects
from hf_attncal.analysis.perturbations import OPERATORS
from hf_attncal.analysis.reading import decoder_size
from hf_attncal.data.synthetic.english_german import AlignedPair, generate_split, write_pairs
from hf_attncal.data.synthetic.planted import copied_words, is_only_signs, plant_copies
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.metrics.faithfulness import (
    CIRCULAR,
    Faithfulness,
    faithfulness,
    kendall_tau,
    metric_of,
    operator_agreement,
    sign_of,
)
from hf_attncal.metrics.means import mean_difference
from hf_attncal.metrics.planted import MEASURES, PlantedScore, planted_counts, planted_score
from hf_attncal.training.settings import load_yaml
from hf_attncal.training.translation import TranslationConfig, train_translation
from hf_attncal.training.word_alignment import AlignerConfig, train_aligner

SENTENCES = {"train": 20_000, "dev": 100, "test": 200}
STEPS = 1000
MEASURED = 30
VOCABULARY_SIZE = 800
# As in a file of configs/.
SETTINGS = """
data: {train: {source: train.en, target: train.de}, dev: {source: dev.en, target: dev.de},
  test: {source: test.en, target: test.de}}
tokenizer: {vocab_size: %d}
model: {d_model: 128, encoder_layers: 2, decoder_layers: 2, encoder_attention_heads: 4, decoder_attention_heads: 4,
  encoder_ffn_dim: 256, decoder_ffn_dim: 256, max_position_embeddings: 128, activation_function: relu,
  scale_embedding: true, init_std: 0.06, dropout: 0.1, label_smoothing: 0.1, calibration: gated,
  attn_implementation: eager}
training: {tokens_per_batch: 1024, tokens_per_step: 1024, learning_rate: 0.003, warmup_steps: 0.1,
  lr_scheduler_type: cosine, adam_beta2: 0.98, bf16: false, logging_steps: 0.1, save_strategy: no, report_to: none,
  disable_tqdm: true}
evaluation: {batch_size: 100, max_new_tokens: 48, bleu_tokenize: none}
"""
ORACLE, CHANCE = "oracle", "random"
BY_LAYER = ("attention", "contribution", "value_zeroing")  # of these each layer, too, is a method
_OF_LAYER = "@layer"
_BATCH = 128  # sources are short
ALIGNER = "posterior"  # the method that an aligner stands behind


@dataclass(frozen=True)
class Task:
    """Pairs of which it is known what comes from where.

    Args:
        sources, targets: texts.
        truths: kind -> for each pair booleans (target words, source words): `links`, of all words but punctuation, and
            `copies`, of target words that stand exactly once in the source.
    """

    sources: list[str]
    targets: list[str]
    truths: dict[str, list[np.ndarray]]

    @classmethod
    def of(cls, pairs: Sequence[AlignedPair]) -> "Task":
        """Of pairs of the grammar."""
        sources, targets = ([" ".join(pair[side]) for pair in pairs] for side in (0, 1))
        copies = [copied_words(*texts) for texts in zip(sources, targets, strict=True)]
        kinds = {"links": [pair.links for pair in pairs], "copies": copies}
        truths = {kind: [_truth(*both) for both in zip(pairs, of, strict=True)] for kind, of in kinds.items()}
        return cls(sources, targets, truths)

    def first(self, count: int) -> "Task":
        """The first pairs of it."""
        truths = {kind: of[:count] for kind, of in self.truths.items()}
        return Task(self.sources[:count], self.targets[:count], truths)


def _truth(pair: AlignedPair, links) -> np.ndarray:
    truth = np.zeros((len(pair.target), len(pair.source)), dtype=bool)
    for i, j in links:
        truth[j, i] = not is_only_signs(pair.target[j])
    return truth


# ---- training ----


def planted_pairs(seed: int = 0) -> dict[str, list[AlignedPair]]:
    """Training, dev and test pairs, `SENTENCES` of each."""
    split = generate_split(*SENTENCES.values(), seed=seed)
    return {name: plant_copies(pairs, seed) for name, pairs in zip(SENTENCES, split, strict=True)}


def train_planted(folder: Path, pairs: Mapping[str, Sequence[AlignedPair]], steps: int, seed: int) -> dict:
    """Train the translator into `folder/model`, of text that is written to `folder`; what its `results.json` holds.

    Where the same training is there already it is taken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, of in pairs.items():
        write_pairs(of, folder / f"{name}.en", folder / f"{name}.de")
    values = load_yaml(SETTINGS % VOCABULARY_SIZE)
    values["data"]["root"] = str(folder)
    values["training"] |= {"output_dir": str(folder / "model"), "max_steps": steps, "seed": seed}
    return train_translation(TranslationConfig.make(values), resume=True)


# ---- judging ----


def count_planted(folder: Path, seed: int) -> WordAligner:
    """An aligner that counts (some seconds) in `folder/aligner`, of the training text that is in `folder`.

    Where the same training is there already it is taken.
    """
    data = {"train": {"source": "train.en", "target": "train.de"}, "root": str(folder), "held_out_pairs": 0}
    training = {"output_dir": str(folder / "aligner"), "seed": seed}
    values = {"preset": "hmm", "data": data, "tokenizer": {"vocab_size": VOCABULARY_SIZE}, "training": training}
    train_aligner(AlignerConfig.make(values), resume=True)
    return WordAligner.from_pretrained(folder / "aligner", device="cpu")


def method_scores(model, tokenizer, task: Task, aligner: WordAligner | None = None) -> dict[str, list[np.ndarray]]:
    """For each method that works on the model, and for layers of some, the scores between the words of each pair.

    With an aligner, what it says is a method, too.
    """
    layers, _ = decoder_size(model.config)
    methods = [name for name in works_on(model) if name != ALIGNER]
    chosen = {name: (name, {}) for name in methods}
    if aligner is not None:
        chosen[ALIGNER] = (ALIGNER, {"weights": word_posteriors(aligner)})
    chosen |= {
        f"{name}{_OF_LAYER}{layer}": (name, {"layer": layer})
        for name in BY_LAYER
        if name in methods
        for layer in range(layers)
    }
    return {
        label: word_scores(model, tokenizer, task.sources, task.targets, name, **options)
        for label, (name, options) in chosen.items()
    }


def judge_methods(
    task: Task, scores: Mapping[str, Sequence[np.ndarray]], bootstrap: int = 1000, seed: int = 0
) -> dict[str, dict[str, PlantedScore]]:
    """Method -> kind of truth -> how far its scores recover it."""
    return {
        name: {kind: planted_score(truths, of, bootstrap=bootstrap, seed=seed) for kind, truths in task.truths.items()}
        for name, of in scores.items()
    }


def compared_with_controls(
    task: Task, scores: Mapping[str, Sequence[np.ndarray]], method: str, bootstrap: int = 1000, seed: int = 0
) -> dict[str, dict]:
    """By how much a method recovers more of the links than each that never looks at the model, on the same resamples.

    Returns:
        Control -> `value`, the difference of the accuracies, and its `interval`; the strongest control first.
    """
    place, truths = MEASURES.index("accuracy"), task.truths["links"]
    counts = {name: planted_counts(truths, scores[name])[:, place] for name in (method, *CONTROLS) if name in scores}
    found = {
        name: asdict(mean_difference(counts[method], of, bootstrap, seed))
        for name, of in counts.items()
        if name != method
    }
    return dict(sorted(found.items(), key=lambda item: item[1]["value"]))


def judged_faithfulness(
    model, tokenizer, task: Task, scores: Mapping[str, Sequence[np.ndarray]], bootstrap: int = 1000, **options
) -> Faithfulness:
    """Faithfulness of methods and of the truth, of target words whose link is known, given the references.

    Args:
        options: of `faithfulness_falls`.
    """
    truths = task.truths["links"]
    # Where words are equally true, or untrue, what comes first is drawn.
    generators = (np.random.default_rng([0, index]) for index in range(len(truths)))
    oracle = [truth + 1e-6 * of.random(truth.shape) for truth, of in zip(truths, generators, strict=True)]
    falls = faithfulness_falls(model, tokenizer, task.sources, task.targets, {**scores, ORACLE: oracle}, **options)
    known = (_known_words(one, truths) for one in falls)
    names = options.get("operators", OPERATORS), measures(options.get("cuts", CUTS), options.get("soft", True))
    circular = {name: CIRCULAR.get(name.partition(_OF_LAYER)[0], ()) for name in scores}
    return faithfulness(known, *names, targets="reference", circular=circular, bootstrap=bootstrap)


def _known_words(found: PairFalls, truths: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    known = truths[found.index].any(axis=1)
    return {name: falls[..., known] for name, falls in found.falls.items()}


def judge_metrics(found: Faithfulness, accuracies: Mapping[str, float]) -> dict[str, dict[str, dict]]:
    """Operator -> measure -> whether it can be used.

    Args:
        found: with the scores `oracle` and `random` among its methods.
        accuracies: method -> how far it recovers what was planted.

    Returns:
        `usable`: the truth is better than random scores, and the interval says so. `above_random`: by how much, in
        nats, with its `interval`. `tau`: Kendall's tau between the ranking of the methods by this measure and by
        `accuracies`, those left out that are circular for this operator; None of fewer than two.
    """
    judged: dict[str, dict[str, dict]] = {}
    for operator in found.operators:
        judged[operator] = {}
        for measure in found.measures:
            difference = found.difference(ORACLE, CHANCE, operator, measure)
            scores = {name: found.score(name, operator, measure) for name in accuracies}
            compared = [name for name, score in scores.items() if not score.circular]
            sign = -1 if metric_of(measure).lower_is_better else 1
            by_measure = np.array([sign * scores[name].value for name in compared])
            tau = float(kendall_tau(by_measure, np.array([accuracies[name] for name in compared])))
            judged[operator][measure] = {
                "usable": sign_of(difference, measure) == 1,
                "above_random": difference.value,
                "interval": difference.interval,
                "tau": None if np.isnan(tau) else tau,
            }
    return judged


# ---- all of it ----


def run_self_test(
    folder: str | Path, *, steps: int = STEPS, seed: int = 1, measured: int = MEASURED, bootstrap: int = 1000
) -> dict:
    """Train, attribute, and judge methods and metrics.

    Args:
        folder: for text and model; an empty one, or that of an earlier run with the same `steps` and `seed`.
        steps: of the training.
        seed: of the model, of its training and of all draws. The data are always the same.
        measured: how many test pairs faithfulness is measured on.
        bootstrap: resamples for each interval.

    Returns:
        What the training says of itself, `training`, and what `judge` finds.
    """
    folder, pairs = Path(folder), planted_pairs()
    training = train_planted(folder, pairs, steps, seed)
    model, tokenizer = load_seq2seq(folder / "model", dtype="float32")
    model.set_attn_implementation("eager")  # the fastest for sources as short as these
    aligner = count_planted(folder, seed)
    return {"training": training, **judge(model.eval(), tokenizer, pairs, seed, measured, bootstrap, aligner)}


def judge(
    model,
    tokenizer,
    pairs: Mapping[str, Sequence[AlignedPair]],
    seed: int = 0,
    measured: int = MEASURED,
    bootstrap: int = 1000,
    aligner: WordAligner | None = None,
) -> dict:
    """Judge methods and metrics by what they say of a translator.

    Args:
        model, tokenizer: the translator, in evaluation mode.
        pairs: `train`, from which words are drawn, `dev` and `test`; see `planted_pairs`.
        seed, measured, bootstrap: see `run_self_test`.
        aligner: of the same languages, for the method `posterior`; None for none.

    Returns:
        All of test: `methods`, see `judge_methods`; `best_method`, the one that is most accurate on the links of dev
        (of those that look at the model); `above_control`, see `compared_with_controls`;
        `faithfulness`: method -> operator -> measure -> value, interval, circular; `metrics`: see `judge_metrics`;
        `operator_agreement`: two operators -> Kendall's tau.
    """
    dev, test = (Task.of(pairs[name]) for name in ("dev", "test"))
    on_dev = _accuracies(judge_methods(dev, method_scores(model, tokenizer, dev), bootstrap=0))
    best = max((name for name in on_dev if name not in CONTROLS), key=on_dev.get)
    scores = method_scores(model, tokenizer, test, aligner)
    methods = judge_methods(test, scores, bootstrap, seed)
    few, some = test.first(measured), {name: of[:measured] for name, of in scores.items()}
    frequencies = Counter(word for pair in pairs["train"] for word in pair.source)
    options = {"frequencies": frequencies, "seed": seed, "batch_size": _BATCH}
    found = judged_faithfulness(model, tokenizer, few, some, bootstrap, **options)
    effects = word_effects(model, tokenizer, few.sources, few.targets, **options)
    agreement = operator_agreement((one.effects for one in effects), OPERATORS, bootstrap=bootstrap, seed=seed)
    return {
        "methods": {name: {kind: asdict(of) for kind, of in kinds.items()} for name, kinds in methods.items()},
        "best_method": best,
        "above_control": compared_with_controls(test, scores, best, bootstrap, seed),
        "faithfulness": {"signature": found.signature, "methods": _table(found)},
        "metrics": judge_metrics(found, _accuracies(methods)),
        "operator_agreement": {"+".join(both): asdict(tau) for both, tau in agreement.items()},
    }


def _accuracies(methods: Mapping[str, Mapping[str, PlantedScore]]) -> dict[str, float]:
    return {name: by_kind["links"].accuracy for name, by_kind in methods.items()}


def _table(found: Faithfulness) -> dict[str, dict[str, dict[str, dict]]]:
    return {
        method: {
            operator: {measure: asdict(found.score(method, operator, measure)) for measure in found.measures}
            for operator in found.operators
        }
        for method in found.sums
    }
