"""Training runs: settings, arguments, Trainers, and a job for each task."""

from hf_attncal.io.extras import need

need("train")
