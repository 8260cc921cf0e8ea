"""From samples to a model, and from a model to numbers."""
