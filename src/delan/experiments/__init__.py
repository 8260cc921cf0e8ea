"""Experiments: one file each, `run` computes."""
