"""Trained models as C code, and the gate before a model may drive a robot."""
