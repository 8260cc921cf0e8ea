"""Commands that measure what the project claims; each prints a table and writes compact JSON."""
