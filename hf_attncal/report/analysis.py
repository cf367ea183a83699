"""Analysis of a model: measure its attention and methods of attribution, and build the report."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hf_attncal.data.languages import languages_of, set_leading_code
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.reading import batches_of_pairs
from hf_attncal.inference.source_use import source_use
from hf_attncal.io.messages import LOG, SILENCE, minutes
from hf_attncal.metrics import records
from hf_attncal.metrics.trust import AttentionVerdict, verdict_of
from hf_attncal.report.attribution import ScoredLinks, score_attributions, word_scores, works_on
from hf_attncal.report.corpus import Corpus
from hf_attncal.report.figures.charts import errors_by_method, faithfulness_charts, observation_charts, section
from hf_attncal.report.figures.conclusions import CONTRIBUTION, caveats_of, findings_of, parked_in, why_withheld
from hf_attncal.report.figures.contents import PairView, Report
from hf_attncal.report.figures.report_files import write_files, write_page
from hf_attncal.report.judged_faithfulness import JudgedFaithfulness, judge_faithfulness
from hf_attncal.report.observations import Observations, observe

from .pairs import BROWSED, pair_views

_MAX_REPEATED = 0.1  # share of analysed pairs in the probe's text; short sentences recur in any text
_MAX_ANALYSED_PAIRS = 500  # pairs to analyse if the probe is trained on the rest
_MIN_TRAINING_PAIRS = 500
_TRAINING = {"disable_tqdm": True}


@dataclass(frozen=True, kw_only=True)
class Analysis(Report):
    """Report of `analyze_corpus`, with its measurements.

    Args:
        observed: observations of the cross-attention over the corpus.
        scored: method -> links and AER; None without gold links.
        judged: faithfulness of the methods; None if not measured.
        verdict: verdict on the attention, the first entry of the summary.
    """

    observed: Observations
    scored: dict[str, ScoredLinks] | None
    judged: JudgedFaithfulness | None
    verdict: AttentionVerdict

    def save(self, folder: str | Path) -> None:
        """Write `report.html` and the files of all charts into a folder.

        Raises:
            OSError, ModuleNotFoundError: see `write_page` and `write_files`.
        """
        write_files(self, folder)
        write_page(self, Path(folder) / "report.html")


@dataclass(frozen=True)
class _Pairs(Iterable[PairView]):
    """Sentence pairs, which the model reads again for each iteration."""

    read: Callable[[], Iterator[PairView]]

    def __iter__(self) -> Iterator[PairView]:
        return self.read()


# Methods that need more than one pass per pair, and the name that stands for all methods.
SLOW_METHODS, ALL_METHODS = ("alti", "occlusion"), "all"


def chosen_methods(model, names: Sequence[str] | None = None) -> list[str]:
    """Return the names of the methods to compare: `names`, all for "all", or the fast ones that work on the model.

    Raises:
        ValueError: an unknown method, or one that does not work on this model.
    """
    usable = works_on(model)
    if names is None:
        return [name for name in usable if name not in SLOW_METHODS]
    names = usable if ALL_METHODS in names else names
    unknown = [name for name in names if name not in usable]
    if unknown:
        raise ValueError(f"`methods` must be among {', '.join(usable)}, got {unknown[0]!r}.")
    return list(dict.fromkeys(names))


def analyze_corpus(
    model,
    pairs: Corpus | Iterable[tuple[str, str]] | Iterable[str],
    tokenizer=None,
    *,
    methods: Sequence[str] | str | None = None,
    probe: bool = True,
    probe_text: Corpus | None = None,
    measured: int = 0,
    browsed: int = 100,
    batch_size: int = 32,
    bootstrap: int = 1000,
    seed: int = 1,
    load: Callable[[str], tuple] = load_seq2seq,
    step: Callable[..., None] = lambda name, done=0.0: None,
) -> Analysis:
    """Measure cross-attention and methods of attribution of a model, and judge whether to trust them.

    Arguments are checked before a probe is trained or a pair is read. Memory holds the texts, but only sums and links
    of the model's outputs.

    Args:
        model: folder or Hub name of an encoder-decoder with cross-attention, or of an adapter; or such a model on the
            device to use. Its mode does not change.
        pairs: sentence pairs (source, target); or sources, which the model then translates; or a `Corpus`, which may
            have gold links and tags.
        tokenizer: tokenizer of the model. Default: loaded with a model given by name.
        methods: names of methods of attribution, or "all". Default: all but `SLOW_METHODS`.
        probe: train a probe for a model without masks. Default: True.
        probe_text: training text of the probe. Default: most of `pairs` (see `parted`).
        measured: number of first pairs on which faithfulness is measured, the slowest part. Default: 0.
        browsed: number of first pairs shown on the page. Default: 100.
        batch_size: number of pairs per batch. Default: 32.
        bootstrap: number of resamples of the pairs per interval. Default: 1000.
        seed: seed of the probe and of all draws and resamples but the verdict's. Default: 1.
        load: function that loads model and tokenizer by name, and the adapter of a probe.
        step: callback with the name of each step that begins (`messages.progress_reports`).

    Raises:
        ValueError: a method does not work on this model; numbers of tags and words differ; too little text, or a pair
            that is too long; a probe cannot be trained.
        OSError: the model cannot be loaded.
    """
    corpus = Corpus.of(pairs)
    methods = [methods] if isinstance(methods, str) else methods
    checkpoint = str(model) if isinstance(model, str | Path) else model.name_or_path
    if isinstance(model, str | Path):
        model, tokenizer = load(checkpoint)
    elif tokenizer is None:
        raise ValueError(
            "`tokenizer` must be the tokenizer of the model, got None. Give it, or give the model by name."
        )
    corpus = replace(corpus, sources=set_leading_code(tokenizer, corpus.sources))  # the code is no word to take away
    needs_probe = probe and CONTRIBUTION not in works_on(model)
    chosen_methods(model, methods and [name for name in methods if not (needs_probe and name == CONTRIBUTION)])
    learned = None
    if needs_probe:
        check_can_have_probe(model, checkpoint)
        corpus, learned = parted(corpus, probe_text, checkpoint)
    if not corpus.targets:
        step(f"translating {len(corpus.sources):,} sentences")
        corpus = corpus.translated_by(model, tokenizer, batch_size)  # a probe does not change translations
    corpus.check(measured)
    with corpus.naming_lines():  # before the slow training and measuring
        next(batches_of_pairs(model, tokenizer, corpus.sources, corpus.targets), None)
    if learned is not None:
        if not learned.targets:
            learned = learned.translated_by(model, tokenizer, batch_size)
        step("training a probe")
        with trained_probe(checkpoint, learned, seed, languages_of(tokenizer)) as adapter:
            model, tokenizer = load(adapter)

    resampled: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed}
    texts = model, tokenizer, corpus.sources, corpus.targets
    step(f"reading {len(corpus.sources):,} pairs")
    observed = observe(*texts, tags=corpus.tags, alignments=corpus.gold is not None, batch_size=batch_size)
    step("measuring the loss without the source")
    effects = source_use(*texts, batch_size=batch_size)
    verdict = verdict_of(effects, pairs=len(corpus.sources), bootstrap=bootstrap)
    names = chosen_methods(model, methods)
    if observed.idle and not observed.calibrated:
        names = [name for name in names if name != CONTRIBUTION]
    scored, judged = _scores(model, tokenizer, corpus, names, measured, step, batch_size=batch_size, **resampled)
    kind, count = _kind(corpus), len(corpus.sources)
    probe_pairs = None if learned is None else len(learned.sources)
    gold = None if corpus.gold is None else [pair.possible for pair in corpus.gold]
    charts = observation_charts(observed, gold=corpus.gold, sources=texts[2], targets=texts[3], **resampled)
    sections = [section("corpus", charts)]
    if scored is not None:
        sections.append(section("gold", [errors_by_method(scored)]))
    if judged is not None:
        sections.append(section("faithfulness", faithfulness_charts(judged)))
    is_stock = probe_pairs is not None or not (observed.layers["mask"] or observed.layers["null"])
    withheld = why_withheld(observed)
    settings = {
        "title": Path(checkpoint).resolve().name if checkpoint else model.config.model_type,
        "pairs": count,
        "batch_size": batch_size,
        "probe_pairs": probe_pairs,
        **resampled,
        "targets": kind,
        "measured": 0 if judged is None else len(judged.words),
        "methods": names,
        "withheld": withheld and {"layers": list(observed.idle), "why": withheld},
    }
    files = dict(corpus.files)
    if probe and probe_text is not None:
        files |= {f"probe_{name}": file for name, file in probe_text.files.items()}
    shown = corpus.first(browsed)
    views = partial(
        pair_views,
        *(model, tokenizer, shown.sources, shown.targets, [name for name in BROWSED if name in names]),
        links=None if gold is None else gold[:browsed],
        informed=observed.calibrated,
        batch_size=batch_size,
    )
    target_kind = "translations of the model" if corpus.are_output else "reference translations"
    probed = "" if probe_pairs is None else f"; probe trained on {probe_pairs:,} other pairs"
    return Analysis(
        title=settings["title"],
        summary=[
            str(verdict),
            *([parked_in(observed, **resampled)] if is_stock else []),
            *findings_of(observed, scored, judged, gold=corpus.gold or (), level=verdict.level, **resampled),
        ],
        caveats=caveats_of(observed, judged, targets=kind, pairs=count, probe_pairs=probe_pairs),
        sections=sections,
        pairs=_Pairs(views),
        record={**records.record(settings, files), "verdict": verdict.to_dict()},
        about={"Text": f"{count:,} sentence pairs, {target_kind}{probed}", "Date": date.today().isoformat()},
        observed=observed,
        scored=scored,
        judged=judged,
        verdict=verdict,
    )


def _scores(
    model,
    tokenizer,
    corpus: Corpus,
    names: Sequence[str],
    measured: int,
    step: Callable[..., None],
    batch_size: int,
    **resampled: Any,
) -> tuple[dict[str, ScoredLinks] | None, JudgedFaithfulness | None]:
    """Return the AER of methods, None without gold links, and their faithfulness, None if not measured."""
    scored = judged = None
    if corpus.gold is not None and names:
        gold = Gold(list(zip(corpus.sources, corpus.targets, strict=True)), list(corpus.gold))

        def score(part: Gold, **options: Any) -> dict[str, ScoredLinks]:
            return score_attributions(model, tokenizer, part, names, batch_size=batch_size, **options)

        first = Gold(gold.pairs[:1], gold.links[:1])
        _announce("comparing methods with annotated links", len(gold.pairs), lambda: score(first, bootstrap=0), step)
        scored = score(gold, **resampled)
    if measured and names:
        sample = corpus.with_words(measured)
        frequencies = Counter(word for source in corpus.sources for word in source.split())

        def judge(part: Corpus, **options: Any) -> JudgedFaithfulness:
            texts = model, tokenizer, part.sources, part.targets
            scores = {name: word_scores(*texts, name, batch_size=batch_size) for name in names}
            options |= {"kind": _kind(corpus), "frequencies": frequencies, "batch_size": batch_size}
            return judge_faithfulness(*texts, scores, **options)

        task = f"measuring faithfulness of {len(names)} methods"
        _announce(task, len(sample.sources), lambda: judge(sample.first(1), bootstrap=0), step)
        judged = judge(sample, **resampled)
    return scored, judged


def _announce(task: str, pairs: int, on_first_pair: Callable[[], object], step: Callable[..., None]) -> None:
    """Begin a step, and log its time, estimated on the first pair, if it is long."""
    step(task)
    began = time.monotonic()
    on_first_pair()
    seconds = (time.monotonic() - began) * pairs
    if seconds > SILENCE:
        LOG.warning("%s, %s pairs: about %s", task, f"{pairs:,}", minutes(seconds))


def _kind(corpus: Corpus) -> str:
    return "output" if corpus.are_output else "reference"


# ---- a probe for a model without masks: an adapter that learns masks and does not change translations ----


def parted(corpus: Corpus, text: Corpus | None, checkpoint: str) -> tuple[Corpus, Corpus]:
    """Return the pairs to analyse and the training pairs of the probe.

    Args:
        corpus: pairs to analyse.
        text: training pairs of the probe. None splits `corpus`: the first 500 pairs (at most a fifth) are analysed,
            the others train the probe.
        checkpoint: name of the model, for messages.

    Raises:
        ValueError: the corpus is too small for both, or shares too many sources with `text`, on which masks would look
            too good.
    """
    if text is not None:
        training_sources = set(text.sources)
        repeated = sum(source in training_sources for source in corpus.sources)
        if repeated > _MAX_REPEATED * len(corpus.sources):
            raise ValueError(
                f"{repeated} of the {len(corpus.sources)} sources to analyse are also in the text of the probe. "
                "Give other text with --source."
            )
        return corpus, text
    if corpus.gold is not None or corpus.tags is not None:
        raise ValueError(
            f"{checkpoint} has no masks, and a probe needs other text than that of --gold or --tags. "
            "Give --probe-text SOURCE TARGET, or --no-probe."
        )
    count = min(_MAX_ANALYSED_PAIRS, max(1, len(corpus.sources) // 5))
    if len(corpus.sources) - count < _MIN_TRAINING_PAIRS:
        raise ValueError(
            f"the text has {len(corpus.sources)} lines, too few to train a probe on most of them. "
            "Give some thousand pairs with --probe-text SOURCE TARGET, or --no-probe."
        )
    return corpus.first(count), corpus.rest(count)


@contextmanager
def trained_probe(checkpoint: str, text: Corpus, seed: int, languages: str | None = None) -> Iterator[str]:
    """Train a probe with its preset, as `attncal adapt MODEL --config probe` does.

    Args:
        checkpoint: folder or Hub name of the model; its weights do not change.
        text: training pairs.
        seed: seed of the adapter and of the order of the text.
        languages: languages of the text, for a multilingual model. Default: none.

    Yields:
        The folder of the adapter, which is deleted at the end of the block.

    Raises:
        ValueError: see `train_adapter`.
    """
    from hf_attncal.training.adapter import AdapterJob  # needs PEFT and the Trainer

    with TemporaryDirectory(prefix="attncal-probe-") as folder:
        files = {}
        for side, lines in (("source", text.sources), ("target", text.targets)):
            file = Path(folder).resolve() / f"text.{side}"
            file.write_bytes("".join(f"{line}\n" for line in lines).encode())
            files[side] = str(file)
        adapter = str(Path(folder) / "adapter")
        values: dict[str, Any] = {
            "preset": "probe",
            "data": {"train": files},
            "model": {"checkpoint": checkpoint},
            "training": {"output_dir": adapter, "seed": seed, **_TRAINING},
        }
        if languages is not None:
            values["languages"] = languages
        AdapterJob.train(AdapterJob.settings.make(values))
        yield adapter


def check_can_have_probe(model, checkpoint: str) -> None:
    """Raise ValueError if the model cannot have a probe."""
    try:
        from hf_attncal.adapters.tuner import check_adaptable

        check_adaptable(model)
        if not checkpoint:
            raise ValueError("an adapter needs a saved model. Give the model by name.")
    except ValueError as error:
        raise ValueError(f"No probe: {error} Or pass --no-probe.") from error
