"""Check hf_attncal/models with transformers' linter of model code (`make check`); exit with 1 if it finds something.

Like `mlinter hf_attncal/models`, which has no option to leave out a rule.
"""

import sys
from pathlib import Path

import mlinter

MODELS = Path(__file__).parents[1] / "hf_attncal" / "models"
LEFT_OUT = {
    # `@auto_docstring` needs docstrings in another format. With ours it prints errors when a file is imported, and
    # raises ValueError if an output inherits its documented fields.
    "TRF057"
}


def main() -> int:
    rules = set(mlinter.DEFAULT_ENABLED_TRF_RULES) - LEFT_OUT
    findings = [
        finding
        for path in mlinter.iter_modeling_files(search_paths=[MODELS])
        for finding in mlinter.analyze_file(path, path.read_text(encoding="utf-8"), rules)
    ]
    for finding in findings:
        print(f"{finding.file_path}:{finding.line_number}: {finding.message}")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
