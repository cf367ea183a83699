"""Settings of the site (`make site`): Sphinx reads README, docs, notebooks and docstrings as they are.

The folder of sources is the root of the repository, so that links between the files work on the site and in a clone.
"""

import dataclasses
import inspect
import re

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

from hf_attncal import __version__

CONTENTS = """
```{toctree}
:hidden:
:caption: Guides

docs/start
docs/gallery
docs/for_corpora
docs/for_localisers
docs/check_week
docs/for_linguists
docs/for_attention
docs/compared
docs/models
docs/adapters
docs/observers
docs/alignment
docs/which_aligner
docs/check
docs/analysis
docs/summarization
docs/language
docs/data
docs/distributed
docs/publishing
docs/reliability
docs/licences
```

```{toctree}
:hidden:
:caption: Notebooks

examples/README
examples/corpus
examples/localisation
examples/few_sentences
examples/translation
examples/adapters
examples/observers
examples/word_alignment
```

```{toctree}
:hidden:
:caption: Measurements

docs/experiments
docs/log
docs/papers
```

```{toctree}
:hidden:
:caption: Python

docs/api/hf_attncal
docs/api/models
docs/api/adapters
docs/api/alignment
docs/api/analysis
docs/api/metrics
docs/api/training
docs/api/inference
docs/api/speech
docs/api/figures
docs/api/hub
```

```{toctree}
:hidden:
:caption: Project

CONTRIBUTING
RELEASE
SECURITY
CHANGELOG
```
"""
MORE = {  # document -> pages below it
    "docs/experiments": "docs/experiments/*"
}

project = html_title = "hf_attncal"
version = release = __version__
author = "the authors of hf_attncal"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "README"
include_patterns = ["*.md", "docs/**", "examples/*"]
exclude_patterns = ["**/.ipynb_checkpoints"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the notebooks are committed with their outputs, and the tests run them
default_role = "py:obj"  # docstrings write names between single backticks; what is no object stays code
napoleon_use_param = False  # a line of ours may name several parameters
napoleon_use_rtype = False  # and one that says what is returned may hold a colon
linkcheck_ignore = [r"https://doi\.org/"]  # leads to publishers, who refuse programs
html_theme = "furo"
html_extra_path = ["index.html"]
html_static_path = ["static"]
html_css_files = ["site.css"]
autodoc_default_options = {"exclude-members": "validate, set"}  # made by huggingface_hub and matplotlib
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # those of torch and transformers are not ours
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the table of contents of the site to README, which shows none where it is read as a file."""
    if name == root_doc:
        source[0] += CONTENTS
    elif name in MORE:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n/{MORE[name]}\n```\n"


def mark_up(app: Sphinx, kind: str, name: str, of: object, options: object, lines: list[str]) -> None:
    """Mark the indented paragraphs of a docstring as code, as Markdown would, and `Args of ...:` as a section.

    The fields of a dataclass whose metadata explain them become a section, too.
    """
    marked: list[str] = []
    for line in lines:
        if of_what := re.fullmatch(r"( *)Args (of .*):", line):
            marked += [f"{of_what[1]}O{of_what[2][1:]}:", ""]
            line = f"{of_what[1]}Args:"
        before = next((old for old in reversed(marked) if old.strip()), "")
        begins = line.strip() and marked and not marked[-1].strip()
        if begins and indentation(line) >= indentation(before) + 4 and not before.endswith("::"):
            marked += [" " * indentation(before) + "::", ""]
        marked.append(line)
    if kind == "class" and dataclasses.is_dataclass(of):
        told = {one.name: one.metadata["help"] for one in dataclasses.fields(of) if "help" in one.metadata}
        ours = [f"    {name}: {told[name]}" for name in own_fields(of) if name in told]
        marked += ["", "Args:", *ours, ""] if ours else []
    lines[:] = marked


def leave_out_inherited(
    app: Sphinx, kind: str, name: str, of: object, options: object, signature: str, returned: str
) -> tuple[str, str] | None:
    """Shorten the signature of a configuration to the fields that this package adds to those of transformers."""
    if not dataclasses.is_dataclass(of):
        return None
    full = inspect.signature(of)
    kept = [parameter for name, parameter in full.parameters.items() if name in own_fields(of)]
    if len(kept) == len(full.parameters):
        return None
    kept.append(inspect.Parameter("inherited", inspect.Parameter.VAR_KEYWORD))
    short = full.replace(parameters=kept, return_annotation=inspect.Signature.empty)
    return stringify_signature(short, unqualified_typehints=True), ""


def own_fields(of: type) -> list[str]:
    """Return the names of the fields that classes of this package declare."""
    ours = [cls for cls in of.__mro__ if cls.__module__.startswith("hf_attncal.")]
    return [name for cls in ours for name in inspect.get_annotations(cls)]


def indentation(line: str) -> int:
    """Return the number of blanks that a line begins with."""
    return len(line) - len(line.lstrip())


def find_elsewhere(app: Sphinx, env: object, node: pending_xref, text: nodes.Element) -> nodes.Node | None:
    """Resolve the bare name of a class that is documented in one other module."""
    domain, asked = app.env.domains.python_domain, node.get("reftarget", "")
    found = [name for name, of in domain.objects.items() if name.endswith(f".{asked}") and not of.aliased]
    if node.get("refdomain") != "py" or not asked[:1].isupper() or len(found) != 1:
        return None
    node["reftarget"] = found[0]
    return domain.resolve_xref(app.env, node["refdoc"], app.builder, "obj", found[0], node, text)


def setup(app: Sphinx) -> None:
    """Register the functions; docstrings are marked up before napoleon reads the sections of a docstring."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", mark_up, priority=400)
    app.connect("autodoc-process-signature", leave_out_inherited)
    app.connect("missing-reference", find_elsewhere)
