"""Find fonts that have the characters of a figure, and warn once of those that no font has."""

import warnings
from functools import cache
from pathlib import Path

import matplotlib
from matplotlib import font_manager


def families_for(text: str) -> list[str]:
    """Return the font families that matplotlib shall try in turn, so that each character of a text is found.

    They are the configured ones, and installed fonts with the characters that those lack.

    Warns:
        UserWarning: no installed font has some of the characters, which are drawn as boxes.
    """
    families = list(matplotlib.rcParams["font.family"])
    missing = {character for character in text if character.isprintable() and not character.isspace()}
    for family in families:
        missing -= _characters(font_manager.findfont(font_manager.FontProperties(family=[family])))
    for font in _installed() if missing else ():
        if found := missing & _characters(font.fname):
            families.append(font.name)
            missing -= found
    if missing:
        shown = "".join(sorted(missing)[:10]) + ("..." if len(missing) > 10 else "")
        warnings.warn(
            f"No installed font has the characters {shown}: boxes are drawn in their place. Install a font that has "
            "them (the Noto fonts have those of most scripts) and start Python again.",
            stacklevel=3,
        )
    return families


def _installed() -> list[font_manager.FontEntry]:
    """Return the upright fonts of the machine. Those that matplotlib brings are its defaults, or for formulas."""
    own = Path(matplotlib.get_data_path())
    upright = (font for font in font_manager.fontManager.ttflist if font.style == "normal")
    return sorted((font for font in upright if own not in Path(font.fname).parents), key=lambda font: font.name)


@cache
def _characters(path: str) -> frozenset[str]:
    try:
        return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
    except (OSError, RuntimeError):  # removed since matplotlib made its list, or no font at all
        return frozenset()
