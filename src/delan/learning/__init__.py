"""From samples to a model: the fit, its contenders, and how good and how sure the result is."""
