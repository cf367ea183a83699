"""Table of the variants of cross-attention: one row per variant, read by commands and tests.

A variant has a formula in `models/functional.py`, a value in `models/configuration_attncal.py`, a slow reference that
the fast one is compared with, and a line in docs/papers.md. tests/test_variants.py checks that a row is complete.
"""

from typing import NamedTuple


class Variant(NamedTuple):
    """Variant of cross-attention.

    Args:
        name: name on the command line and in the table of a card.
        field: configuration field that switches it on.
        value: value of that field.
        equation: formula of the weights, with `a` for plain attention and `a_c` for calibrated attention.
        learned: classes in `hf_attncal.models` with the parameters added to the stock model.
        reference: slow version under tests/, as "module:name".
        paper: first cell of the line in docs/papers.md.
        adapter: True if an adapter can add it to a finished model. Default: False.
    """

    name: str
    field: str
    value: str | bool
    equation: str
    learned: tuple[str, ...]
    reference: str
    paper: str
    adapter: bool = False


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            "fixed",
            "calibration",
            "fixed",
            "a + lambda a_c",
            learned=("calibration.MaskNetwork",),
            reference="reference:fixed",
            paper="eq. 10 fixed",
            adapter=True,
        ),
        Variant(
            "annealed",
            "calibration",
            "annealed",
            "gamma a + (1 - gamma) a_c, gamma = exp(-s / 1e5)",
            learned=("calibration.MaskNetwork",),
            reference="reference:annealed",
            paper="eq. 11 annealed",
            adapter=True,
        ),
        Variant(
            "gated",
            "calibration",
            "gated",
            "g a + (1 - g) a_c, g = sigmoid(q W^g + b^g)",
            learned=("calibration.MaskNetwork", "calibration.HeadGate"),
            reference="reference:gated",
            paper="eq. 12 gated",
            adapter=True,
        ),
        Variant(
            "leaky",
            "leaky",
            True,
            "softmax(q [k_NULL; K]^T / sqrt(d_k))",
            learned=("calibration.NullToken",),
            reference="reference:null_scores",
            paper="Mask-Align, sec. 3.2",
            adapter=True,
        ),
        Variant(
            "gumbel",
            "gumbel",
            True,
            "softmax((log a + g) / tau); the argmax once trained",
            learned=(),
            reference="reference:gumbel_softmax",
            paper="Discrete Transformer",
        ),
        Variant(
            "output_gate",
            "output_gate",
            True,
            "a, and what a head reads times 2 sigmoid(w_h q + b_h)",
            learned=("calibration.OutputGate",),
            reference="reference:gated_output",
            paper="output gate (ours)",
            adapter=True,
        ),
        Variant(
            "copy",
            "copy",
            True,
            "p_gen P_vocab(w) + (1 - p_gen) sum_(s: x_s = w) a_s",
            learned=("copying.CopyMechanism",),
            reference="reference_copying:word_probabilities",
            paper="eq. 9",
        ),
        Variant(
            "guided",
            "guided",
            True,
            "a, with the loss -(1/T) sum_t sum_s p_ts log a_ts",
            learned=(),
            reference="reference:guided",
            paper="alignment loss",
            adapter=True,
        ),
    )
}
