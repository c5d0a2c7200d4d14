"""Messages out and in, bounded in every way."""
