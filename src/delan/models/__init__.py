"""Models of a robot's dynamics: equinox modules that keep the promises of `dynamics`."""
