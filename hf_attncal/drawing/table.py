"""A table as lines of text."""

from collections.abc import Iterator, Mapping, Sequence


def text_table(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: its headings, then its rows; the first column is aligned left, numbers right."""
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns.items()]
    for name, *numbers in [list(columns), *zip(*columns.values(), strict=True)]:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *padded]).rstrip()
