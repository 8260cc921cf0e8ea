"""Identification of a known arm's links, and identifiable axes and links of a learned arm."""
