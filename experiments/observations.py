"""What the attention of trained models says over a corpus: the analyses of Lu et al. (2022) and of Mask-Align.

    python experiments/observations.py --corpus multi30k --source test.en --target test.de --tags test.tags \
        --model gated=runs/gated1 --model gated=runs/gated2 ... --pictures docs/images/analysis

Written is results/analysis/observations_CORPUS_NAME_seedN.json for each model: the tables of all charts of `attncal
analyze` (Figs. 3, 4, 5 and 8, Tables V and VI; Table 3 and Fig. 7 of Mask-Align), and the numbers behind the paper's
observations. With `--pictures`, the figures of the first model of each name, as PNG. `--gold` has links in Pharaoh
format.
"""

import argparse
from pathlib import Path

import numpy as np
from committed import RESULTS
from frozen import Frozen, add_models, read_models

from hf_attncal.io.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.base import mean_difference, means
from hf_attncal.report.corpus import Corpus
from hf_attncal.report.figures.charts import observation_charts
from hf_attncal.report.observations import ENTROPY_THRESHOLDS, Observations, observe

BOOTSTRAP, SEED = 1000, 0
SHARP = 1.5  # nats


def observations_of_the_paper(found: Observations) -> dict:
    """The numbers behind observations 1 and 3 of Lu et al. and their Fig. 8, in the top layer with masks.

    Returns:
        `overall`: reliability of all steps (observation 3: it varies between language pairs). `sharp`: of those whose
        entropy of attention is at most `SHARP` (observation 1: it falls with entropy). `above_first_layer`: `overall`
        less that of the first layer. `spread_changes_more`: divergence before and after calibration of the rows with
        the most entropy less that of those with the least; buckets of less than a hundredth of all rows are left out.
    """
    top, first = found.top(), min(found.calibrated)
    options = {"bootstrap": BOOTSTRAP, "seed": SEED}
    overall = found.counts("reliability", top)
    buckets = found.divergence_in(top)
    rows = buckets[..., 1].sum(axis=0)
    filled = np.flatnonzero(rows >= 0.01 * rows.sum())
    measured = {
        "overall": means(overall, **options)[0],
        "sharp": means(found.reliability_up_to(top)[:, ENTROPY_THRESHOLDS.index(SHARP)], **options)[0],
        "above_first_layer": mean_difference(overall, found.counts("reliability", first), **options),
        "spread_changes_more": mean_difference(buckets[:, filled[-1]], buckets[:, filled[0]], **options),
    }
    return {name: {"value": one.value, "interval": one.interval} for name, one in measured.items()}


def measure(frozen: Frozen, corpus: Corpus, pictures: Path | None) -> dict:
    """All that is observed of a model; its figures."""
    model, tokenizer = frozen.load()
    sources, targets = (frozen.in_its_case(side) for side in (corpus.sources, corpus.targets))
    gold = corpus.gold is not None
    found = observe(model, tokenizer, sources, targets, tags=corpus.tags, alignments=gold)
    texts = {"gold": corpus.gold, "sources": sources, "targets": targets} if gold else {}
    charts = observation_charts(found, **texts, bootstrap=BOOTSTRAP, seed=SEED)
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for chart in charts:
            if chart.draw is not None:
                chart.draw().savefig(pictures / f"{frozen.name}_{chart.name}.png", dpi=110)
    tables = {chart.name: {"columns": chart.columns, "rows": [list(row) for row in chart.rows]} for chart in charts}
    paper = {"paper": observations_of_the_paper(found)} if found.calibrated else {}
    return {"steps": int(found.steps.sum()), **paper, "charts": tables}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, metavar="NAME", help="what results files call the text")
    for side in ("source", "target"):
        parser.add_argument(f"--{side}", type=Path, required=True, metavar="FILE")
    parser.add_argument("--tags", metavar="FILE", help="parts of speech of the target words")
    parser.add_argument("--gold", type=Path, metavar="FILE")
    parser.add_argument("--pictures", type=Path, metavar="DIR")
    add_models(parser)
    args = parser.parse_args(arguments)
    corpus = Corpus.read(args.source, args.target, args.gold, args.tags)
    files = {path.name: path for path in (args.source, args.target, args.gold) if path}
    if args.tags:
        files[Path(args.tags).name] = Path(args.tags)
    drawn: set[str] = set()
    for frozen in read_models(args.models):
        model_files = files | frozen.files
        found = measure(frozen, corpus, None if frozen.name in drawn else args.pictures)
        drawn.add(frozen.name)
        config = {"experiment": "observations", "corpus": args.corpus, "setting": frozen.name}
        config |= {"bootstrap": BOOTSTRAP, "training": {"seed": frozen.seed}}
        result = records.record(config, model_files) | found
        write_json(result, RESULTS / "analysis" / f"observations_{args.corpus}_{frozen.stem}.json")


if __name__ == "__main__":
    main()
