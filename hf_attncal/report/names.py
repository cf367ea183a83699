"""What a report calls methods and measures, where a program has a name like `input_x_gradient`."""

import re

NAMES = {
    "value_norm": "value norms",
    "transformed_norm": "transformed norms",
    "full_norm": "full norms",
    "alti": "ALTI+",
    "value_zeroing": "value zeroing",
    "input_x_gradient": "input × gradient",
    "integrated_gradients": "integrated gradients",
    "layer_gradient_x_activation": "layer gradient × activation",
    "attention_shifted": "attention of the step after",
}
_ANY = re.compile(rf"(?<![\w`])(?:{'|'.join(sorted(NAMES, key=len, reverse=True))})(?!\w)(?!\.\w)(?!`)")


def display(text: str) -> str:
    """The text with names for people in the place of those for programs."""
    return _ANY.sub(lambda found: NAMES[found[0]], text)
