"""What a round is: instructions out, replies in, a new model."""
