"""Analyse a model: measure everything that a report says of it, and put the report together."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from hf_attncal.data.languages import languages_of, set_leading_code
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.hub.model_cards import CardFacts, read_model_card
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.reading import batches_of_pairs
from hf_attncal.inference.source_use import source_use
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
from .probe import check_can_have_probe, parted, trained_probe


@dataclass(frozen=True, kw_only=True)
class Analysis(Report):
    """The report of `analyze_corpus`, with the measurements that it was written from.

    Args:
        observed: observations of the cross-attention over the corpus.
        scored: method -> its links against the gold links; None without gold.
        judged: faithfulness of the methods; None if it was not measured.
        verdict: whether to trust the attention; the summary begins with it, of a stock model after the share of its
            attention that is parked on what is no word.
    """

    observed: Observations
    scored: dict[str, ScoredLinks] | None
    judged: JudgedFaithfulness | None
    verdict: AttentionVerdict

    def save(self, folder: str | Path) -> None:
        """Write the page, `report.html`, and every chart as `attncal analyze --report` does, into a folder.

        Raises:
            OSError, ModuleNotFoundError: see `write_page` and `write_files`.
        """
        write_files(self, folder)
        write_page(self, Path(folder) / "report.html")


@dataclass(frozen=True)
class _Pairs(Iterable[PairView]):
    """Sentence pairs that the model reads again at each iteration."""

    read: Callable[[], Iterator[PairView]]

    def __iter__(self) -> Iterator[PairView]:
        return self.read()


def chosen_methods(model, names: Sequence[str] | None = None) -> list[str]:
    """Return the methods of attribution to compare: those named, or all that work on the model.

    Raises:
        ValueError: a name is that of no method, or of one that does not work on this model.
    """
    usable = [name for name in works_on(model) if name != "posterior"]  # which needs an aligner
    unknown = [name for name in names or () if name not in usable]
    if unknown:
        raise ValueError(f"methods must be among {', '.join(usable)}, got {unknown[0]!r}.")
    return usable if names is None else list(dict.fromkeys(names))


def analyze_corpus(
    model,
    pairs: Corpus | Iterable[tuple[str, str]] | Iterable[str],
    tokenizer=None,
    *,
    methods: Sequence[str] | None = None,
    probe: bool = True,
    probe_text: Corpus | None = None,
    measured: int = 30,
    browsed: int = 100,
    batch_size: int = 32,
    bootstrap: int = 1000,
    seed: int = 1,
    load: Callable[[str], tuple] = load_seq2seq,
    step: Callable[..., None] = lambda name, done=0.0: None,
) -> Analysis:
    """Measure what cross-attention and methods of attribution say about a model, and whether to believe them.

    Arguments are checked before a probe is trained or a pair is read. Texts are kept in memory; of what the model
    computes, only sums and links are.

    Args:
        model: folder or Hub name of an encoder-decoder with cross-attention, stock, ours, or of an adapter; or such a
            model, on the device to use. Its mode is left as it is.
        pairs: sentence pairs (source, target), or sources alone, for which the model writes the targets; or a
            `Corpus`, which may have gold links and tags.
        tokenizer: tokenizer of the model; None for a model given by name.
        methods: names of methods of attribution; None for those that work on the model.
        probe: train a probe for a model without masks; False for no contributions.
        probe_text: text that the probe learns from; None for the rest of `pairs`, see `probe.parted`.
        measured: number of pairs, from the first, on which faithfulness is measured; 0 for none.
        browsed: number of pairs, from the first, that the page shows; 0 for none.
        batch_size: pairs read at once.
        bootstrap: resamples of the pairs for each interval.
        seed: seed of draws, resamples and the probe.
        load: function that loads model and tokenizer by name, and the adapter of a probe.
        step: is told what begins (`messages.progress_reports`).

    Raises:
        ValueError: a method does not work on this model; tags are of another number than words; the text is too
            little, or a pair too long; a probe cannot be trained.
        OSError: the model cannot be loaded.
    """
    corpus = Corpus.of(pairs)
    checkpoint = str(model) if isinstance(model, str | Path) else model.name_or_path
    if isinstance(model, str | Path):
        model, tokenizer = load(checkpoint)
    elif tokenizer is None:
        raise ValueError(
            "`tokenizer` must be the tokenizer of the model, got None: give both, or a model by its name."
        )
    corpus = replace(corpus, sources=set_leading_code(tokenizer, corpus.sources))  # no word that could be taken away
    learned = None
    if probe and CONTRIBUTION not in works_on(model):
        chosen_methods(model, methods and [name for name in methods if name != CONTRIBUTION])
        check_can_have_probe(model, checkpoint)
        corpus, learned = parted(corpus, probe_text, checkpoint)
    else:
        chosen_methods(model, methods)
    if not corpus.targets:
        step(f"translating {len(corpus.sources):,} sentences")
        corpus = corpus.written_by(model, tokenizer, batch_size)  # with a probe the model would write the same
    corpus.check(measured)
    with corpus.naming_lines():  # before minutes of training and measuring
        next(batches_of_pairs(model, tokenizer, corpus.sources, corpus.targets), None)
    if learned is not None:
        if not learned.targets:
            learned = learned.written_by(model, tokenizer, batch_size)
        step("training a probe")
        with trained_probe(checkpoint, learned, seed, languages_of(tokenizer)) as adapter:
            model, tokenizer = load(adapter)

    resampled: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed}
    texts = model, tokenizer, corpus.sources, corpus.targets
    step(f"reading {len(corpus.sources):,} pairs")
    observed = observe(*texts, tags=corpus.tags, alignments=corpus.gold is not None, batch_size=batch_size)
    step("asking what the model loses without its source")
    verdict = verdict_of(source_use(*texts, batch_size=batch_size), bootstrap=bootstrap)
    names = chosen_methods(model, methods)
    if observed.idle and not observed.calibrated:
        names = [name for name in names if name != CONTRIBUTION]
    scored = judged = None
    if corpus.gold is not None and names:
        gold = Gold(list(zip(corpus.sources, corpus.targets, strict=True)), list(corpus.gold))
        step("comparing methods with annotated links")
        scored = score_attributions(model, tokenizer, gold, names, batch_size=batch_size, **resampled)
    if measured and names:
        few = corpus.with_words(measured)
        few_texts = model, tokenizer, few.sources, few.targets
        step(f"taking words away, by each of {len(names)} methods")
        judged = judge_faithfulness(
            *few_texts,
            {name: word_scores(*few_texts, name, batch_size=batch_size) for name in names},
            kind=_kind(corpus),
            frequencies=Counter(word for source in corpus.sources for word in source.split()),
            batch_size=batch_size,
            **resampled,
        )
    card = read_model_card(checkpoint) if checkpoint else CardFacts()
    settings: dict[str, Any] = {
        "title": card.name or Path(checkpoint).resolve().name if checkpoint else model.config.model_type,
        "pairs": len(corpus.sources),
        "batch_size": batch_size,
        "probe_pairs": None if learned is None else len(learned.sources),
        **resampled,
    }
    shown = corpus.first(browsed)
    views = partial(
        pair_views,
        *(model, tokenizer, shown.sources, shown.targets, [name for name in BROWSED if name in names]),
        links=None if shown.gold is None else [pair.possible for pair in shown.gold],
        informed=observed.calibrated,
        batch_size=batch_size,
    )
    record_files = dict(corpus.files)
    if probe and probe_text is not None:
        record_files |= {f"probe_{name}": file for name, file in probe_text.files.items()}
    return _report(corpus, observed, verdict, names, scored, judged, settings, card, _Pairs(views), record_files)


def _report(
    corpus: Corpus,
    observed: Observations,
    verdict: AttentionVerdict,
    names: Sequence[str],
    scored: dict[str, ScoredLinks] | None,
    judged: JudgedFaithfulness | None,
    settings: dict[str, Any],
    card: CardFacts,
    views: _Pairs,
    files: dict[str, Path],
) -> Analysis:
    """Put the report together: findings, charts, and how it was made; `names` are the methods."""
    kind, count, probe_pairs = _kind(corpus), settings["pairs"], settings["probe_pairs"]
    resampled: dict[str, Any] = {name: settings[name] for name in ("bootstrap", "seed")}
    is_stock = probe_pairs is not None or not (observed.layers["mask"] or observed.layers["null"])
    charts = observation_charts(
        observed, gold=corpus.gold, sources=corpus.sources, targets=corpus.targets, **resampled
    )
    sections = [section("corpus", charts)]
    if scored is not None:
        sections.append(section("gold", [errors_by_method(scored)]))
    if judged is not None:
        sections.append(section("faithfulness", faithfulness_charts(judged)))
    withheld = why_withheld(observed)
    settings = {
        **settings,
        "targets": kind,
        "measured": 0 if judged is None else len(judged.words),
        "methods": names,
        "withheld": withheld and {"layers": list(observed.idle), "why": withheld},
    }
    written = "what the model writes" if corpus.are_output else "reference translations"
    probed = "" if probe_pairs is None else f"; probe trained on {probe_pairs:,} others"
    return Analysis(
        title=settings["title"],
        summary=[
            *([parked_in(observed, **resampled)] if is_stock else []),
            str(verdict),
            *findings_of(observed, scored, judged, gold=corpus.gold or (), level=verdict.level, **resampled),
        ],
        caveats=caveats_of(observed, judged, targets=kind, pairs=count, probe_pairs=probe_pairs),
        sections=sections,
        pairs=views,
        record={**records.record(settings, files), "verdict": verdict.to_dict()},
        about={
            **card.facts,
            "Text": f"{count:,} sentence pairs, {written}{probed}",
            "Date": date.today().isoformat(),
        },
        observed=observed,
        scored=scored,
        judged=judged,
        verdict=verdict,
    )


def _kind(corpus: Corpus) -> str:
    return "output" if corpus.are_output else "reference"
