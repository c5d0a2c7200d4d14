"""Runs inside flower-superlink."""
