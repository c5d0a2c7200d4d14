"""Runs inside flower-supernode."""
