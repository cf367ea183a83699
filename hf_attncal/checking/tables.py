"""Tables of `tables.yaml`: kinds of findings, causes, and words and units of the languages that the rules compare."""

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # five times as fast, where PyYAML was built with libyaml

TABLES: dict[str, Any] = yaml.load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"), _LOADER)
