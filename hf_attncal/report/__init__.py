"""Make the report of `hf_attncal.analyze`: its text, its probe and its measurements, put together."""
