"""Figures: what is drawn where, in which font, and on which scale."""

import shutil
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import font_manager
from picture_helpers import HOSTILE

from hf_attncal.drawing.plots import bars, families_for, head_map, heat_map, lines

SOURCE = ["the", "old", "teacher", "."]
TARGET = ["die", "alte", "Lehrerin"]


@pytest.fixture
def matrix():
    return torch.arange(12, dtype=torch.float32).reshape(3, 4) / 12


def panels_of(figure):
    """The axes of the matrices: those with an image of the size of the sentence pair."""
    return [axes for axes in figure.axes if any(image.get_array().shape == (3, 4) for image in axes.get_images())]


def test_a_panel_shows_its_matrix_with_the_words_on_both_axes(matrix):
    first, second = panels_of(heat_map({"a": matrix, "phi": matrix * 2}, SOURCE, TARGET))
    assert first.get_images()[0].get_array().tolist() == matrix.tolist()
    assert second.get_images()[0].get_array().tolist() == (matrix * 2).tolist()
    assert [label.get_text() for label in first.get_xticklabels()] == SOURCE
    assert [label.get_text() for label in first.get_yticklabels()] == TARGET
    assert [label.get_text() for label in second.get_xticklabels()] == SOURCE
    assert [axes.get_xlabel() for axes in (first, second)] == ["source", "source"]
    assert (first.get_ylabel(), second.get_ylabel()) == ("target", "")
    top, bottom = first.get_ylim()[::-1]
    assert top < bottom  # the first target word is the top row


def test_all_panels_have_one_scale_on_which_dark_is_more(matrix):
    figure = heat_map({"a": matrix, "phi": matrix / 4}, SOURCE, TARGET)
    images = [axes.get_images()[0] for axes in panels_of(figure)]
    assert {image.get_clim() for image in images} == {(0, float(matrix.max()))}
    light, dark = (sum(images[0].cmap(end)[:3]) for end in (0.0, 1.0))
    assert dark < light
    scales = [axes for axes in figure.axes if axes not in panels_of(figure)]
    assert [[label.get_text() for label in axes.get_xticklabels()] for axes in scales] == [["0", "0.92"]]


def test_gold_links_are_outlined_in_every_panel(matrix):
    for axes in panels_of(heat_map({"a": matrix, "m": matrix}, SOURCE, TARGET, links={(2, 0), (3, 1)})):
        centres = {tuple(box.get_center()) for box in axes.patches}
        assert centres == {(2, 0), (3, 1)}  # x is the source word, y the target word


@pytest.mark.parametrize("words", [SOURCE, ["."] * 4, ["Donaudampfschifffahrt"] * 4, ["WWWWWWWW"] * 4])
def test_nothing_is_cut_off(matrix, tmp_path, words):
    panels = {"attention": matrix, "a much longer name of a panel": matrix}
    figure = heat_map(panels, words, words[1:], links={(0, 0)}, title="A title that is longer than the panels")
    path = tmp_path / "map.png"
    figure.savefig(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    page = figure.bbox
    labels = [label for axes in figure.axes for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    titles = [axes._left_title for axes in figure.axes if axes.get_title(loc="left")]
    for text in [*figure.texts, *titles, *(label for label in labels if label.get_text())]:
        box = text.get_window_extent()
        inside = page.x0 <= box.x0 < box.x1 <= page.x1 and page.y0 <= box.y0 < box.y1 <= page.y1
        assert inside, text.get_text()
    names = [title.get_window_extent() for title in titles]
    assert [title.get_text() for title in titles] == list(panels)
    assert names[0].x1 < names[1].x0
    source = [axes.xaxis.label.get_window_extent() for axes in panels_of(figure)]
    assert all(box.y1 <= name.y0 for box, name in zip(source, names, strict=True))  # below the name of the panel


def test_a_matrix_of_zeros_can_be_drawn(matrix):
    heat_map({"a": torch.zeros_like(matrix)}, SOURCE, TARGET).savefig("/dev/null", format="png")


def test_bad_input_is_refused(matrix):
    with pytest.raises(ValueError, match=r"`panels`.*\(3, 4\).*got \(4, 3\).*'a'"):
        heat_map({"a": matrix.T}, SOURCE, TARGET)
    with pytest.raises(ValueError, match=r"`panels`.*got none"):
        heat_map({}, SOURCE, TARGET)


def test_hostile_words_are_drawn_as_they_are(matrix):
    """`$x^2$` is no formula."""
    figure = heat_map({"a": torch.zeros(1, len(HOSTILE))}, HOSTILE, ["a\x00"])
    figure.savefig("/dev/null", format="png")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == HOSTILE
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a\ufffd"]


# ---- fonts ----


@pytest.fixture
def own_fonts(monkeypatch):
    """Hide all fonts except matplotlib's; the returned function adds a font (name, file)."""
    own = matplotlib.get_data_path()
    fonts = [font for font in font_manager.fontManager.ttflist if font.fname.startswith(own)]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
    monkeypatch.setitem(matplotlib.rcParams, "font.family", ["DejaVu Sans"])
    return lambda name, file: fonts.append(font_manager.FontEntry(fname=str(file), name=name))


def test_one_warning_for_all_missing_characters(own_fonts):
    with pytest.warns(UserWarning, match="No installed font") as found:
        heat_map({"a": torch.zeros(1, 2)}, ["東京", "に"], ["Tokyo"]).savefig("/dev/null", format="png")
    assert len(found) == 1
    assert all(character in str(found[0].message) for character in "東京に")
    assert "Tokyo" not in str(found[0].message)


def test_a_font_that_has_the_characters_is_chosen(own_fonts, tmp_path):
    """STIX, which comes with matplotlib for formulas, stands for a font of the machine."""
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    plain, other = (
        font_manager.get_font(folder / f"{name}.ttf").get_charmap() for name in ("DejaVuSans", "STIXGeneral")
    )
    letter = chr(next(code for code in other if code not in plain))
    own_fonts("Without it", shutil.copy(folder / "DejaVuSerif.ttf", tmp_path))
    own_fonts("With it", shutil.copy(folder / "STIXGeneral.ttf", tmp_path))
    own_fonts("Removed", tmp_path / "removed.ttf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert families_for(f"word {letter}") == ["DejaVu Sans", "With it"]


# ---- lines ----


def test_every_line_goes_through_its_points():
    series = {"a": [(1, 8.0), (2, 4.0)], "b": [(2, 1.0)]}
    axes = lines(series, "steps", "perplexity", bands={"b": [(0.5, 1.5)]}).axes[0]
    assert [list(map(tuple, line.get_xydata())) for line in axes.lines] == list(series.values())
    first, other = axes.lines
    assert first.get_color() != other.get_color()
    assert len(axes.collections) == 1
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("steps", "perplexity")
    assert (axes.get_xlim()[0], axes.get_ylim()[0]) == (0, 0)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_legend_of_lines_is_inside_the_figure_and_below_the_axis_labels(count):
    names = [f"a name of some length, {n}" for n in range(count)]
    figure = lines({name: [(10, 0.001), (20, 30.5)] for name in names}, "words", "BLEU")
    figure.draw_without_rendering()
    box, whole, (axes,) = figure.legends[0].get_window_extent(), figure.bbox, figure.axes
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    said = axes.get_tightbbox()
    assert whole.y0 <= box.y0 < box.y1 <= said.y0 < said.y1 <= whole.y1
    assert whole.x0 <= said.x0 < said.x1 <= whole.x1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names


# ---- bars ----

BARS = {
    "share": {"attention": [(0.5, (0.4, 0.7)), (0.25, None)], "phi": [(0.1, (0.1, 0.2)), (float("nan"), None)]},
    "difference": {"attention less phi": [(0.4, None), (-0.2, (-0.3, 0.1))]},
}


def test_bars_are_as_long_as_their_numbers_with_lines_for_their_intervals():
    first, second = bars(BARS, ["noun", "verb"]).axes
    attention, phi = first.containers
    assert [bar.get_width() for bar in attention] == [0.5, 0.25]
    assert phi[0].get_width() == 0.1
    assert np.isnan(phi[1].get_width())
    assert [bar.get_width() for (bar,) in zip(second.containers[0], strict=True)] == [0.4, -0.2]
    spans = [tuple(line.get_xdata()) for line in first.lines if len(set(line.get_xdata())) == 2]
    assert spans == [(0.4, 0.7), (0.1, 0.2)]
    assert [label.get_text() for label in first.get_yticklabels()] == ["noun", "verb"]
    top, bottom = (attention[row].get_y() for row in (0, 1))
    assert top < bottom
    assert first.yaxis_inverted()
    assert (first.get_xlabel(), second.get_xlabel()) == ("share", "difference")


def test_heads_are_across_and_layers_down():
    values = np.arange(8.0).reshape(2, 4) / 10
    figure = head_map("reliability level", values, [0, 3], "share")
    (axes,) = (axes for axes in figure.axes if any(image.get_array().shape == (2, 4) for image in axes.get_images()))
    np.testing.assert_allclose(axes.get_images()[0].get_array(), values, atol=1e-7)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "3"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "3"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("head", "layer")


def test_a_change_has_a_panel_with_its_own_scale():
    change = torch.tensor([[0.1, -0.2]])
    figure = heat_map({"a": torch.tensor([[0.9, 0.1]])}, ["x", "y"], ["z"], change=("change", change))
    first, second = (image for axes in figure.axes[:3] for image in axes.get_images())
    assert first.get_clim() == pytest.approx((0, 0.9))
    assert second.get_clim() == pytest.approx((-0.2, 0.2))
    assert {"weight, left panels", "change"} <= {axes.get_xlabel() for axes in figure.axes}
