"""Everything that travels to the Hub: flat files that import only each other, torch and transformers."""

import transformers  # noqa: F401 (registers our classes, which must not begin in the middle of one of these files)
