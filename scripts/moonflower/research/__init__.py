"""What a researcher runs: the benchmark and the papers' tables."""
