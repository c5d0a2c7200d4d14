"""Experiments as pages and pictures that people read."""
