"""Training runs: settings, arguments, Trainers, and a job for each task."""
