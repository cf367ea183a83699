"""The picture of `docs/which_aligner.md`: AER by the pairs of text, with counts, eflomal, and counts with an encoder.

    python experiments/which_aligner.py --output docs/images/which_aligner.png

It shows what `adapting.py ... quick` has measured (`results/adapting/quick_*.json`), and measures nothing.
"""

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path

from committed import RESULTS
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter

from hf_attncal.io.files import write_bytes

PANELS = {
    "wpt03-enfr": "English-French",
    "rwth-deen": "German-English",
    "czenali-encs": "English-Czech",
    "kftt-jaen": "Japanese-English",
    "dermit-derm": "German-Romansh\n(unknown to the encoder)",
}
# Of each system: its name in the legend, colour, line and marker.
LINES = {
    "eflomal": ("eflomal", "#6b6b6b", "--", "s"),
    "quick": ("counts", "#2166ac", "-", "o"),
    "both": ("counts with an encoder", "#e08214", "-", "D"),
}
OTHERWISE = {"quick": "counts"}  # where counts were learned before
TICKS = {100: "100", 1000: "1,000", 10_000: "10,000", 100_000: "100,000"}


def draw(sizes: dict[str, dict[str, dict]]) -> Figure:
    """Return a figure with a panel for each pair of languages, two in a row, and one for the legend.

    Args:
        sizes: by pair and number of pairs, the systems with their `aer`.
    """
    rows = len(sizes) // 2 + 1
    figure = Figure(figsize=(7.2, 2.7 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).flatten()
    for axes in panels[len(sizes) :]:
        axes.set_axis_off()
    for axes, (pair, of_pair) in zip(panels, sizes.items(), strict=False):
        for system, (name, colour, line, marker) in LINES.items():
            found = {int(size): row.get(system) or row.get(OTHERWISE.get(system)) for size, row in of_pair.items()}
            points = [(size, 100 * row["aer"]) for size, row in found.items() if row is not None]
            places, rates = zip(*sorted(points), strict=True) if points else ((), ())
            axes.plot(places, rates, line, color=colour, marker=marker, markersize=5, label=name)
        axes.set_title(PANELS[pair], fontsize=12)
        axes.set(xscale="log", xlim=(80, 125_000), ylim=(0, None))
        axes.xaxis.set_major_locator(FixedLocator(list(TICKS)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xticks(list(TICKS), TICKS.values(), fontsize=10)
        axes.tick_params(axis="y", labelsize=10)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("pairs of text", fontsize=11)
    figure.supylabel("AER, lower is better", fontsize=11)
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center", fontsize=12)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / "adapting", metavar="FOLDER")
    parser.add_argument("--output", type=Path, default=Path("docs/images/which_aligner.png"), metavar="FILE")
    args = parser.parse_args(arguments)
    paths = {pair: args.results / f"quick_{pair}.json" for pair in PANELS}
    sizes = {
        pair: json.loads(path.read_text(encoding="utf-8"))["sizes"] for pair, path in paths.items() if path.is_file()
    }
    image = io.BytesIO()
    draw(sizes).savefig(image, format="png", dpi=150)
    write_bytes(image.getvalue(), args.output)


if __name__ == "__main__":
    main()
