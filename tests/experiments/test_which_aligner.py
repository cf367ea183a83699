"""The picture of the page "which aligner": what its lines show."""


def test_lines_have_the_rates_of_all_sizes_and_counts_stand_in(experiment):
    script = experiment("which_aligner")
    few, many = {"eflomal": {"aer": 0.4}, "quick": {"aer": 0.3}}, {"counts": {"aer": 0.2}, "both": {"aer": 0.1}}
    figure = script.draw({"wpt03-enfr": {"200": few, "1000": many}})
    panel, legend = figure.axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in panel.lines}
    assert lines["eflomal"] == [[200, 40]]
    assert lines["counts"] == [[200, 30], [1000, 20]]
    assert lines["counts with an encoder"] == [[1000, 10]]
    assert [text.get_text() for text in legend.get_legend().get_texts()] == list(lines)
