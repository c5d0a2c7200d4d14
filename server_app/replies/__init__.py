"""Which replies count, and where they wait."""
