"""Numerical methods that fit weights to samples: losses, Adam, Levenberg–Marquardt, training."""
