"""All that is measured of a model for its report."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from pathlib import Path

from hf_attncal.alignment.attributions import WayOfReading, score_attributions
from hf_attncal.alignment.gold import Gold, gold_links
from hf_attncal.analysis.attribution import METHODS, word_scores, works_on
from hf_attncal.analysis.observations import Observations, observe
from hf_attncal.analysis.reading import PairTooLongError, batches_of_pairs
from hf_attncal.analysis.tags import Tagger, load_tags
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.files import read_lines, read_pairs
from hf_attncal.inference.generation import LineTooLongError
from hf_attncal.inference.translation import translate
from hf_attncal.metrics import records

from .charts import observation_charts
from .contents import Chart, Report, Section
from .faithfulness import judge_faithfulness
from .faithfulness_charts import faithfulness_charts
from .findings import CONTRIBUTION, caveats_of, findings_of, why_withheld
from .method_charts import errors_by_method
from .pair_view import PairView
from .pairs import pair_views

# Each costs less than some fifty forward passes (benchmarks/attribution.py), and none needs an aligner.
QUICK = tuple(name for name in METHODS if name not in ("integrated_gradients", "posterior"))
SHOWN = ("alti", "occlusion")  # in the sentence browser, beside attention and contributions


@dataclass(frozen=True)
class Corpus:
    """What a model is analysed on.

    Args:
        sources: texts.
        targets: their references, or what the model wrote; None: not known yet.
        are_output: whether the model wrote them.
        gold: annotated links of each pair.
        tags: parts of speech of the words of the targets, as `analysis.tags` takes them.
        start: the line of its first pair, from 0, in the files that it is from.
    """

    sources: Sequence[str]
    targets: Sequence[str] | None = None
    are_output: bool = False
    gold: Sequence[GoldAlignment] | None = None
    tags: Sequence[Sequence[str]] | Tagger | None = None
    start: int = 0

    @classmethod
    def read(
        cls,
        source: str | Path,
        target: str | Path | None = None,
        gold: str | Path | None = None,
        tags: str | None = None,
    ) -> "Corpus":
        """From files: text, links in Pharaoh format (`i-j` sure, `ipj` possible, from 0), tags.

        Raises:
            ValueError: a file that cannot be read, another number of lines, links outside of their sentences, or gold
                links or tags without the target that they belong to.
        """
        if target is None:
            if gold or tags:
                raise ValueError(
                    "gold links and tags belong to the words of a target text: give it (--target), or leave them out."
                )
            return cls(read_lines(source))
        sources, targets = read_pairs(source, target)
        return cls(
            sources,
            targets,
            gold=None if gold is None else gold_links(gold, list(zip(sources, targets, strict=True))),
            tags=None if tags is None else load_tags(tags, targets),
        )

    def first(self, count: int) -> "Corpus":
        """The first pairs of it."""
        return self._rows(range(min(count, len(self.sources))))

    def rest(self, count: int) -> "Corpus":
        """All but the first pairs of it."""
        return replace(self._rows(range(count, len(self.sources))), start=self.start + count)

    def with_words(self, count: int) -> "Corpus":
        """The first pairs with words on both sides."""
        both = enumerate(zip(self.sources, self.targets or (), strict=True))
        return self._rows([row for row, pair in both if all(side.strip() for side in pair)][:count])

    def _rows(self, rows: Sequence[int]) -> "Corpus":
        given = {name: getattr(self, name) for name in ("sources", "targets", "gold", "tags")}
        cut = {name: of for name, of in given.items() if of is not None and not callable(of)}
        return replace(self, **{name: [of[row] for row in rows] for name, of in cut.items()})

    def written_by(self, model, tokenizer, batch_size: int) -> "Corpus":
        """With what a model makes of the sources, with 4 beams, as targets.

        Raises:
            ValueError: a source of more tokens than the model has positions; it names the line.
        """
        try:
            targets = translate(model, tokenizer, list(self.sources), batch_size=batch_size)
        except LineTooLongError as error:
            raise ValueError(self.too_long(error.index, "source", error.tokens, error.limit)) from error
        return replace(self, targets=targets, are_output=True)

    def check(self, measured: int = 0) -> None:
        """Refuse text, targets included, that has too little in it to be analysed.

        Args:
            measured: pairs on which faithfulness is.

        Raises:
            ValueError: no pair with words on both sides, or a single source word where faithfulness is measured.
        """
        both = zip(self.sources, self.targets or (), strict=True)
        if not any(source.strip() and target.strip() for source, target in both):
            raise ValueError(
                f"the text must have a pair with words on both sides, got none of {len(self.sources)} pairs."
            )
        if measured and len({word for source in self.sources for word in source.split()}) < 2:
            raise ValueError(
                "the source text must have two different words at least, of which one can replace the other, got 1. "
                "Give more text, or leave faithfulness out (--measured 0)."
            )

    def check_lengths(self, model, tokenizer) -> None:
        """Raises ValueError, which names the line, for a pair of more tokens than the model has positions."""
        with self.naming_lines():
            next(batches_of_pairs(model, tokenizer, list(self.sources), list(self.targets)), None)

    @contextmanager
    def naming_lines(self) -> Iterator[None]:
        """Around what reads the pairs: the error of one that is too long names its line."""
        try:
            yield
        except PairTooLongError as error:
            raise ValueError(self.too_long(error.index, error.side, error.tokens, error.limit)) from error

    def too_long(self, index: int, side: str, tokens: int, limit: int) -> str:
        """What is told of a pair that the model cannot read, by its line."""
        return (
            f"line {self.start + index + 1} has {tokens} {side} tokens, the model takes at most {limit}. Split it, or "
            "leave it out, in all files."
        )


def chosen_methods(model, names: Sequence[str] | None = None) -> list[str]:
    """The methods of attribution to compare: those named, or all that work on the model and take seconds.

    Raises:
        ValueError: a name of none, or a method that does not work on this model.
    """
    there = [name for name in works_on(model) if name != "posterior"]  # which needs an aligner
    if names is None:
        return [name for name in there if name in QUICK]
    unknown = [name for name in names if name not in there]
    if unknown:
        raise ValueError(f"methods must be among {', '.join(there)}, got {unknown[0]!r}.")
    return list(dict.fromkeys(names))


def analyze(
    model,
    tokenizer,
    corpus: Corpus,
    *,
    title: str,
    methods: Sequence[str] | None = None,
    measured: int = 30,
    browsed: int = 100,
    batch_size: int = 32,
    bootstrap: int = 1000,
    seed: int = 1,
    probe_pairs: int | None = None,
    files: Mapping[str, Path] | None = None,
    about: Mapping[str, str] | None = None,
) -> Report:
    """Measure what cross-attention and methods of attribution say of a model, and whether to believe them.

    Texts are in memory; of what the model computes only sums and links are kept.

    Args:
        model: an encoder-decoder of transformers with cross-attention, stock, ours, or with an adapter.
        tokenizer: the model's.
        corpus: sentence pairs, with targets.
        title: what the report calls the model.
        methods: see `chosen_methods`.
        measured: pairs on which faithfulness is measured, the first; 0 for none.
        browsed: pairs that can be looked at, the first; 0 for none.
        batch_size: pairs read at once.
        bootstrap: resamples of the pairs for each interval.
        seed: of draws and resamples.
        probe_pairs: how many pairs a probe was trained on for this; None for none.
        files: name -> file that was read: the record has its checksum.
        about: what else the page says beside the title, such as the languages of the model and its scores.

    Raises:
        ValueError: a method that does not work on this model, tags of another number than words, and see
            `Corpus.check` and `observe`.
    """
    sources, targets = list(corpus.sources), list(corpus.targets or ())
    corpus.check(measured)
    frequencies = Counter(chain.from_iterable(source.split() for source in sources))
    names = chosen_methods(model, methods)
    resampled = {"bootstrap": bootstrap, "seed": seed}
    options = {"tags": corpus.tags, "alignments": corpus.gold is not None, "batch_size": batch_size}
    with corpus.naming_lines():
        observed = observe(model, tokenizer, sources, targets, **options)
    sections = [_over_the_corpus(observed, corpus, resampled)]
    withheld = why_withheld(observed)
    if withheld and not observed.calibrated:
        names = [name for name in names if name != CONTRIBUTION]
    scored = None
    if corpus.gold is not None and names:
        gold = Gold(list(zip(sources, targets, strict=True)), corpus.gold)
        ways = {name: WayOfReading(name) for name in names}
        scored = score_attributions(model, tokenizer, gold, ways=ways, batch_size=batch_size, **resampled)
        sections.append(_against_gold(errors_by_method(scored)))
    judged = None
    if measured and names:
        few = corpus.with_words(measured)
        texts = (few.sources, few.targets)
        judged = judge_faithfulness(
            model,
            tokenizer,
            *texts,
            {name: word_scores(model, tokenizer, *texts, name, batch_size=batch_size) for name in names},
            kind="output" if corpus.are_output else "reference",
            soft=False,
            draws=1,
            frequencies=frequencies,
            batch_size=batch_size,
            **resampled,
        )
        sections.append(_of_faithfulness(faithfulness_charts(judged)))
    settings = {
        "title": title,
        "targets": "output" if corpus.are_output else "reference",
        "pairs": len(sources),
        "measured": 0 if judged is None else len(judged.found.words),
        "methods": names,
        "batch_size": batch_size,
        "probe_pairs": probe_pairs,
        "withheld": withheld and {"layers": list(observed.idle), "why": withheld},
        **resampled,
    }
    return Report(
        title=title,
        summary=findings_of(observed, scored, judged, gold=corpus.gold or (), **resampled),
        caveats=caveats_of(
            observed,
            judged,
            targets=settings["targets"],
            pairs=len(sources),
            probe_pairs=probe_pairs,
        ),
        sections=sections,
        pairs=_to_look_at(model, tokenizer, corpus.first(browsed), names, observed.calibrated, batch_size),
        record=records.record(settings, files or {}),
        about={**(about or {}), "Text": _text_read(corpus, probe_pairs), "Date": date.today().isoformat()},
    )


def _text_read(corpus: Corpus, probe_pairs: int | None) -> str:
    written = "what the model writes" if corpus.are_output else "reference translations"
    learned = "" if probe_pairs is None else f"; probe trained on {probe_pairs:,} others"
    return f"{len(corpus.sources):,} sentence pairs, {written}{learned}"


def _over_the_corpus(found: Observations, corpus: Corpus, resampled: Mapping[str, int]) -> Section:
    texts = {"gold": corpus.gold, "sources": corpus.sources, "targets": corpus.targets}
    return Section(
        "Attention over the corpus",
        "What the cross-attention does at the prediction of every target token of the text, layer by layer.",
        observation_charts(found, **texts, **resampled),
    )


def _against_gold(chart: Chart) -> Section:
    return Section(
        "Against gold links",
        "Every target word is linked to the source word with its highest score, and held against the links that "
        "people have drawn. What a model needs for a prediction and what a person links need not be the same.",
        [chart],
    )


def _of_faithfulness(charts: Sequence[Chart]) -> Section:
    return Section(
        "Which method names the words that the model uses",
        "The source words with the highest scores of a method are taken away, or all others, and the fall of the "
        "log-probability of a target word is measured. There is no best way to take a word away, so four stand side "
        "by side, and there is a verdict only where all of them agree. Attribution by occlusion is what such a "
        "measure looks for, so it is the yardstick and not a competitor.",
        charts,
    )


def _to_look_at(
    model, tokenizer, corpus: Corpus, names: Sequence[str], informed: Sequence[int], batch_size: int
) -> Iterator[PairView]:
    shown = {name: {} for name in SHOWN if name in names}
    links = None if corpus.gold is None else [pair.possible for pair in corpus.gold]
    options = {"links": links, "informed": informed, "batch_size": batch_size}
    return pair_views(model, tokenizer, corpus.sources, corpus.targets, shown, **options)
