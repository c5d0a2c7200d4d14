"""What of an experiment is on disk."""
