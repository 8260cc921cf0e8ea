"""Robots: their description as data, and adapters that move them."""
