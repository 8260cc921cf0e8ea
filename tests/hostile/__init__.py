"""Attacks on the package: generators with a seed and a count, which end by themselves."""
