"""Attribute the prediction of a target token to source tokens, by many methods with results of one form.

Call `attribute`. The methods are in `cross_attention.py` (with the vectors that attention adds up),
`flow.py` and `predictions.py`, what they are compared with in `controls.py`.
"""

from hf_attncal.report.attribution.method import Attribution

from .methods import CONTROLS, METHODS, attribute, word_scores, works_on

__all__ = ["CONTROLS", "METHODS", "Attribution", "attribute", "word_scores", "works_on"]
