"""What a training takes from the wing of alignment, by name: the core imports no wing."""

from pkgutil import resolve_name
from typing import Any

ALIGNMENT_NAMES = {
    "guided_head_on_gold": "hf_attncal.alignment.attention_heads:guided_head_on_gold",
    "nearest_head": "hf_attncal.alignment.attention_heads:nearest_head",
    "with_counted_links": "hf_attncal.alignment.counting:with_counted_links",
}


def of_alignment(name: str) -> Any:
    """Import one of `ALIGNMENT_NAMES` and return it."""
    return resolve_name(ALIGNMENT_NAMES[name])
