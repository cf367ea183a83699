"""`python -m hf_attncal.cli` is `attncal`, too."""

import sys

from hf_attncal.__main__ import main

sys.exit(main())
