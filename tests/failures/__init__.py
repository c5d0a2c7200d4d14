"""Failures of real processes: one test per row of the table in docs/operations.md."""
