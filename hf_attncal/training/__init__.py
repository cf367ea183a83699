"""Training runs: settings, arguments, Trainers, and a job for each task."""

from hf_attncal.extras import need

need("train")
