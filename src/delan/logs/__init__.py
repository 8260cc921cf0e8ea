"""Logs of robots: reading, checking, segments, preparation and splitting."""
