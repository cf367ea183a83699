"""Run the notebooks of examples/ as they stand, on generated text, and keep in them what a reader should see.

    python experiments/notebooks.py                  # all of them, some twenty minutes
    python experiments/notebooks.py word_alignment   # one

Left out is what training prints, and what goes to standard error.
"""

import argparse
import tempfile
from pathlib import Path

import nbclient
import nbformat

EXAMPLES = Path(__file__).parents[1] / "examples"


def shown(cell: dict) -> list[dict]:
    """Of a cell's outputs, those that are kept."""
    outputs = [] if "training" in cell.metadata.get("tags", ()) else cell.get("outputs", [])
    return [output for output in outputs if output.get("name") != "stderr"]


def main() -> None:
    """Run and rewrite the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=sorted(path.stem for path in EXAMPLES.glob("*.ipynb")))
    for name in parser.parse_args().names:
        path = EXAMPLES / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": folder}}).execute()
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times
            if cell.cell_type == "code":
                cell.outputs = shown(cell)
        notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec",)}
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
