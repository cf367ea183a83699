"""Which source tokens does the prediction of a target token come from? The answers of many methods, in one form.

`attribute` is the one entry. The methods are in `cross_attention.py`, `flow.py`, `gradients.py` and `perturbation.py`,
what they are compared with in `controls.py`, the vectors that attention adds up in `blocks.py`.
"""

from .base import Attribution
from .methods import CONTROLS, METHODS, attribute, word_scores, works_on

__all__ = ["CONTROLS", "METHODS", "Attribution", "attribute", "word_scores", "works_on"]
