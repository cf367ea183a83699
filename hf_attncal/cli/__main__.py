"""`python -m hf_attncal.cli` is `attncal`."""

import sys

from . import main

sys.exit(main())
