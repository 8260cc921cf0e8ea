"""The command line: one file for each command. Imports everything, imported by nothing."""
