"""The heat map: what is drawn where."""

import pytest
import torch

from hf_attncal.analysis.plots import heat_map

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
    top, bottom = first.get_ylim()[::-1]
    assert top < bottom  # the first target word is the top row


def test_gold_links_are_outlined_in_every_panel(matrix):
    for axes in panels_of(heat_map({"a": matrix, "m": matrix}, SOURCE, TARGET, links={(2, 0), (3, 1)})):
        centres = {tuple(box.get_center()) for box in axes.patches}
        assert centres == {(2, 0), (3, 1)}  # x is the source word, y the target word


def test_nothing_is_cut_off(matrix, tmp_path):
    figure = heat_map({"attention": matrix}, SOURCE, TARGET, links={(0, 0)}, title="A sentence")
    path = tmp_path / "map.png"
    figure.savefig(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    page = figure.bbox
    labels = [label for axes in figure.axes for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    for text in [*figure.texts, *(label for label in labels if label.get_text())]:
        box = text.get_window_extent()
        inside = page.x0 <= box.x0 < box.x1 <= page.x1 and page.y0 <= box.y0 < box.y1 <= page.y1
        assert inside, text.get_text()


def test_a_matrix_of_zeros_can_be_drawn(matrix):
    heat_map({"a": torch.zeros_like(matrix)}, SOURCE, TARGET).savefig("/dev/null", format="png")


def test_bad_input_is_refused(matrix):
    with pytest.raises(ValueError, match=r"Panel 'a' has the shape \(4, 3\), but there are 3 target and 4 source"):
        heat_map({"a": matrix.T}, SOURCE, TARGET)
    with pytest.raises(ValueError, match="`panels` is empty"):
        heat_map({}, SOURCE, TARGET)
