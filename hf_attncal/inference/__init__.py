"""From a name to a model, and from a model to text."""
