"""Who is here: asking nodes who they are, and whom a round asks."""
