"""Table of the variants of cross-attention: one row per variant, read by commands and tests.

A variant has a formula in `models/functional.py`, a value in `models/configuration_attncal.py`, a slow reference that
the fast one is compared with, and a line in docs/papers.md. tests/test_variants.py names and checks them.
"""

from typing import NamedTuple


class Variant(NamedTuple):
    """Variant of cross-attention.

    Args:
        name: name on the command line and in the table of a card.
        field: configuration field that switches it on.
        value: value of that field.
        adapter: True if an adapter can add it to a finished model. Default: False.
    """

    name: str
    field: str
    value: str | bool
    adapter: bool = False


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("fixed", "calibration", "fixed", adapter=True),
        Variant("annealed", "calibration", "annealed", adapter=True),
        Variant("gated", "calibration", "gated", adapter=True),
        Variant("leaky", "leaky", True, adapter=True),
        Variant("gumbel", "gumbel", True),
        Variant("output_gate", "output_gate", True, adapter=True),
        Variant("copy", "copy", True),
        Variant("guided", "guided", True, adapter=True),
    )
}
