"""Judge methods of attribution and measures of faithfulness on text whose true links are known: the self-test.

A small translator is trained on pairs with planted truth: the links of the synthetic grammar, and invented words that
only their place in the source predicts. On held-out pairs each method of attribution is scored by how often its best
source word is a true one, and each measure of faithfulness by whether it rates the truth above random scores. A method
or measure that fails here cannot be trusted elsewhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
from hf_attncal.data.strict_yaml import load_yaml
from hf_attncal.data.synthetic.english_german import AlignedPair, generate_split, write_pairs
from hf_attncal.data.synthetic.planted import copied_words, is_only_signs, plant_copies
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.reading import decoder_size
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
from hf_attncal.metrics.planted import PLANTED_MEASURES, PlantedScore, planted_counts, planted_score
from hf_attncal.report.attribution import CONTROLS, word_scores, works_on
from hf_attncal.report.attributions import word_posteriors
from hf_attncal.report.faithfulness import CUTS, faithfulness_falls, measures, word_effects
from hf_attncal.report.perturbations import OPERATORS
from hf_attncal.training.translation import TranslationConfig, train_translation

SENTENCES = {"train": 20_000, "dev": 100, "test": 200}
SELF_TEST_STEPS = 1000
MEASURED = 30
VOCABULARY_SIZE = 800
# Settings in the format of configs/.
SELF_TEST_SETTINGS = """
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
BY_LAYER = ("attention", "contribution", "value_zeroing")  # each layer of these is judged as a method, too
_OF_LAYER = "@layer"
_BATCH = 128  # sources are short
ALIGNER = "posterior"  # the method that reads links off an aligner


@dataclass(frozen=True)
class Task:
    """Sentence pairs with their true links.

    Args:
        sources, targets: texts.
        truths: for each kind of truth, booleans (target words, source words) for each pair. `links` are the links of
            all words but punctuation; `copies` those of target words that appear exactly once in the source.
    """

    sources: list[str]
    targets: list[str]
    truths: dict[str, list[np.ndarray]]

    @classmethod
    def of(cls, pairs: Sequence[AlignedPair]) -> "Task":
        """Make a task of pairs of the synthetic grammar."""
        sources, targets = ([" ".join(pair[side]) for pair in pairs] for side in (0, 1))
        copies = [copied_words(*texts) for texts in zip(sources, targets, strict=True)]
        kinds = {"links": [pair.links for pair in pairs], "copies": copies}
        truths = {kind: [_truth(*pair) for pair in zip(pairs, links, strict=True)] for kind, links in kinds.items()}
        return cls(sources, targets, truths)

    def first(self, count: int) -> "Task":
        """Return a task of the first `count` pairs."""
        truths = {kind: matrices[:count] for kind, matrices in self.truths.items()}
        return Task(self.sources[:count], self.targets[:count], truths)


def _truth(pair: AlignedPair, links) -> np.ndarray:
    truth = np.zeros((len(pair.target), len(pair.source)), dtype=bool)
    for i, j in links:
        truth[j, i] = not is_only_signs(pair.target[j])
    return truth


# ---- training ----


def planted_pairs(seed: int = 0) -> dict[str, list[AlignedPair]]:
    """Generate training, dev and test pairs in the numbers of `SENTENCES`."""
    split = generate_split(*SENTENCES.values(), seed=seed)
    return {name: plant_copies(pairs, seed) for name, pairs in zip(SENTENCES, split, strict=True)}


def train_planted(folder: Path, pairs: Mapping[str, Sequence[AlignedPair]], steps: int, seed: int) -> dict:
    """Write the text to `folder`, train the translator into `folder/model`, and return its results.

    If `folder/model` has the same training already, it is not repeated.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in pairs.items():
        write_pairs(split, folder / f"{name}.en", folder / f"{name}.de")
    values = load_yaml(SELF_TEST_SETTINGS % VOCABULARY_SIZE)
    values["data"]["root"] = str(folder)
    values["training"] |= {"output_dir": str(folder / "model"), "max_steps": steps, "seed": seed}
    return train_translation(TranslationConfig.make(values), resume=True)


# ---- judging ----


def count_planted(folder: Path, seed: int) -> WordAligner:
    """Train an aligner by counting (some seconds) into `folder/aligner`, on the training text in `folder`.

    If `folder/aligner` has the same training already, it is not repeated.
    """
    data = {"train": {"source": "train.en", "target": "train.de"}, "root": str(folder), "held_out_pairs": 0}
    training = {"output_dir": str(folder / "aligner"), "seed": seed}
    values = {"preset": "hmm", "data": data, "tokenizer": {"vocab_size": VOCABULARY_SIZE}, "training": training}
    AlignerJob.train(AlignerConfig.make(values), resume=True)
    return WordAligner.from_pretrained(folder / "aligner", device="cpu")


def method_scores(model, tokenizer, task: Task, aligner: WordAligner | None = None) -> dict[str, list[np.ndarray]]:
    """Score the words of each pair by every method that works on the model, and by each layer of `BY_LAYER`.

    With an aligner, its links are judged as a method, too.
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
    """Return, for each method and kind of truth, how well its scores recover the truth."""
    options = {"bootstrap": bootstrap, "seed": seed}
    return {
        name: {kind: planted_score(truths, matrices, **options) for kind, truths in task.truths.items()}
        for name, matrices in scores.items()
    }


def compared_with_controls(
    task: Task, scores: Mapping[str, Sequence[np.ndarray]], method: str, bootstrap: int = 1000, seed: int = 0
) -> dict[str, dict]:
    """Compare a method's accuracy on links with that of each control, which never looks at the model.

    Returns:
        For each control the difference of accuracies, `value`, and its `interval` on the same resamples; the strongest
        control first.
    """
    place, truths = PLANTED_MEASURES.index("accuracy"), task.truths["links"]
    counts = {name: planted_counts(truths, scores[name])[:, place] for name in (method, *CONTROLS) if name in scores}
    differences = {
        name: asdict(mean_difference(counts[method], control, bootstrap, seed))
        for name, control in counts.items()
        if name != method
    }
    return dict(sorted(differences.items(), key=lambda item: item[1]["value"]))


def judged_faithfulness(
    model, tokenizer, task: Task, scores: Mapping[str, Sequence[np.ndarray]], bootstrap: int = 1000, **options
) -> Faithfulness:
    """Measure the faithfulness of methods and of the truth, on target words of the references with a known link.

    Args:
        options: options of `faithfulness_falls`.
    """
    truths = task.truths["links"]
    # Words that are equally true, or untrue, come in random order.
    oracle = [
        truth + 1e-6 * np.random.default_rng([0, index]).random(truth.shape) for index, truth in enumerate(truths)
    ]
    falls = faithfulness_falls(model, tokenizer, task.sources, task.targets, {**scores, ORACLE: oracle}, **options)
    known = (
        {name: by_word[..., truths[pair.index].any(axis=1)] for name, by_word in pair.falls.items()} for pair in falls
    )
    names = options.get("operators", OPERATORS), measures(options.get("cuts", CUTS), options.get("soft", True))
    circular = {name: CIRCULAR.get(name.partition(_OF_LAYER)[0], ()) for name in scores}
    return faithfulness(known, *names, targets="reference", circular=circular, bootstrap=bootstrap)


def judge_metrics(measured: Faithfulness, accuracies: Mapping[str, float]) -> dict[str, dict[str, dict]]:
    """Decide for each operator and measure of faithfulness whether it can be used.

    Args:
        measured: faithfulness of methods, including the scores `oracle` and `random`.
        accuracies: for each method how well it recovers the planted truth.

    Returns:
        For each operator and measure: `usable`, whether the interval shows that the truth beats random scores;
        `above_random`, by how much, in nats, with its `interval`; `tau`, Kendall's tau between the ranking of methods
        by this measure and by `accuracies`, without methods that are circular for the operator (None for fewer than
        two).
    """
    judged: dict[str, dict[str, dict]] = {}
    for operator in measured.operators:
        judged[operator] = {}
        for measure in measured.measures:
            difference = measured.difference(ORACLE, CHANCE, operator, measure)
            scores = {name: measured.score(name, operator, measure) for name in accuracies}
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
    folder: str | Path, *, steps: int = SELF_TEST_STEPS, seed: int = 1, measured: int = MEASURED, bootstrap: int = 1000
) -> dict:
    """Train a translator on planted truth, and judge methods and metrics by it.

    Args:
        folder: folder for text and model; empty, or from an earlier run with the same `steps` and `seed`.
        steps: number of training steps.
        seed: seed of the model, its training and all draws. The data are always the same.
        measured: number of test pairs that faithfulness is measured on.
        bootstrap: number of resamples for each interval.

    Returns:
        The results of the training, `training`, and those of `judge`.
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
    """Judge methods and metrics on a translator.

    Args:
        model, tokenizer: the translator, in evaluation mode.
        pairs: splits of `planted_pairs`: `train`, from which words are drawn, `dev` and `test`.
        seed, measured, bootstrap: as for `run_self_test`.
        aligner: aligner of the same languages, for the method `posterior`; None for none.

    Returns:
        Results on test: `methods` (`judge_methods`); `best_method`, the most accurate on the links of dev among those
        that look at the model; `above_control` (`compared_with_controls`); `faithfulness`, with value, interval and
        `circular` for each method, operator and measure; `metrics` (`judge_metrics`); `operator_agreement`, Kendall's
        tau for every two operators.
    """
    dev, test = (Task.of(pairs[name]) for name in ("dev", "test"))
    on_dev = _accuracies(judge_methods(dev, method_scores(model, tokenizer, dev), bootstrap=0))
    best = max((name for name in on_dev if name not in CONTROLS), key=on_dev.get)
    scores = method_scores(model, tokenizer, test, aligner)
    methods = judge_methods(test, scores, bootstrap, seed)
    few, few_scores = test.first(measured), {name: matrices[:measured] for name, matrices in scores.items()}
    frequencies = Counter(word for pair in pairs["train"] for word in pair.source)
    options = {"frequencies": frequencies, "seed": seed, "batch_size": _BATCH}
    faithful = judged_faithfulness(model, tokenizer, few, few_scores, bootstrap, **options)
    effects = word_effects(model, tokenizer, few.sources, few.targets, **options)
    agreement = operator_agreement((pair.effects for pair in effects), OPERATORS, bootstrap=bootstrap, seed=seed)
    return {
        "methods": {name: {kind: asdict(score) for kind, score in kinds.items()} for name, kinds in methods.items()},
        "best_method": best,
        "above_control": compared_with_controls(test, scores, best, bootstrap, seed),
        "faithfulness": {"signature": faithful.signature, "methods": faithful.table()},
        "metrics": judge_metrics(faithful, _accuracies(methods)),
        "operator_agreement": {"+".join(names): asdict(tau) for names, tau in agreement.items()},
    }


def _accuracies(methods: Mapping[str, Mapping[str, PlantedScore]]) -> dict[str, float]:
    return {name: by_kind["links"].accuracy for name, by_kind in methods.items()}
