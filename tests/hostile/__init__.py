"""Attacks on delan: files, logs and signals made to break it, each with a seed and a count."""
