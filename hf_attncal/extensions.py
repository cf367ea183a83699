"""Tables that other packages add to, by entry points of their own: `attncal.families`, `attncal.attributions`.

    [project.entry-points."attncal.families"]
    toy = "toy_package:FAMILY"

Commands are added in the same way (`attncal.commands`, read by `commands/app.py`).
"""

import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeVar

Row = TypeVar("Row")


class Table(Mapping[str, Row]):
    """Rows of ours by their names, then those of entry points, under names that we do not have.

    Entry points are read when a name is asked for that is not ours, or when all rows are listed.

    Args:
        own: our rows.
        group: the group of entry points; each names the object that is its row.
    """

    def __init__(self, own: Mapping[str, Row], group: str):
        self.own, self.group = own, group

    @cached_property
    def others(self) -> dict[str, Row]:
        """Rows of other packages. One that cannot be imported is left out, with a warning."""
        from importlib.metadata import entry_points  # not needed for what is ours

        rows = {}
        for entry in entry_points(group=self.group):
            if entry.name in self.own:
                continue
            try:
                rows[entry.name] = entry.load()
            except Exception as error:  # whatever someone else's package raises
                package = "" if entry.dist is None else f" of the package {entry.dist.name}"
                warnings.warn(
                    f"{self.group}: `{entry.name}`{package} is left out, as {entry.value} cannot be imported "
                    f"({type(error).__name__}: {error}). Update or remove that package.",
                    stacklevel=2,
                )
        return rows

    def __getitem__(self, name: str) -> Row:
        return self.own[name] if name in self.own else self.others[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.others

    def __len__(self) -> int:
        return len(self.own) + len(self.others)
