"""Tables of `tables.yaml`: kinds of findings, causes, and words and units of the languages that the rules compare."""

from pathlib import Path
from typing import Any

import yaml

TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
