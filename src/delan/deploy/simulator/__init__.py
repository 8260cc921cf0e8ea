"""Modules that `delan export --format mjcf` writes beside a model: they need no delan."""
