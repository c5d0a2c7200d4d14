"""From a text to the ids of its words."""
