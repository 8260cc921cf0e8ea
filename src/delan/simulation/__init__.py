"""A learned model in motion: implicit steps, replays of logs, and the fit for simulation."""
