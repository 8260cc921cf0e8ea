"""Motions for a robot to follow: letters, cosines and excitation for identification."""
