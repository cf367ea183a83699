"""YAML as users write it, and other programs: nothing in it is taken in silence for something else."""

import re
from typing import Any, TextIO

import yaml


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but `1e-3` (no dot) is a number, and a key that is given twice an error.

    YAML 1.1 takes the first for text, which no other reader does, nor any user. YAML forbids the second; PyYAML keeps
    the last of both.
    """

    def compose_mapping_node(self, anchor):
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                problem = f"the key `{key.value}` is given twice, in lines {lines[key.value]} and {line}"
                raise yaml.composer.ComposerError(problem=problem)
            lines[key.value] = line
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load_yaml(text: str | TextIO) -> Any:
    """Parse YAML.

    Raises:
        ValueError: it is no YAML, or has a key twice (with the lines); on one line.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
