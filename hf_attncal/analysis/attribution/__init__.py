"""Which source tokens does the prediction of a target token come from? The answers of many methods, in one form.

`attribute` is the one entry. The methods are in `cross_attention.py` (with the vectors that attention adds up),
`flow.py` and `predictions.py`, what they are compared with in `controls.py`.
"""

from .base import Attribution
from .methods import CONTROLS, METHODS, attribute, word_scores, works_on

__all__ = ["CONTROLS", "METHODS", "Attribution", "attribute", "word_scores", "works_on"]
