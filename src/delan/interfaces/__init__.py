"""The doors for people: commands and pages. Imports everything, imported by nothing."""
