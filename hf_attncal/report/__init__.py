"""The report of `hf_attncal.analyze`: its text, its probe, all that is measured for it, put together."""
