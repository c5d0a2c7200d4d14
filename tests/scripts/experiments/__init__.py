"""Experiments as they lie on disk."""
