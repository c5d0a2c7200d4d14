"""Experiments as they lie on disk: read, never written."""
