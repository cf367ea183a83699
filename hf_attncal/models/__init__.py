"""Everything that travels to the Hub: flat files that import only each other, torch and transformers."""
