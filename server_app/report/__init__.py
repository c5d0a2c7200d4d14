"""What is known of a round when it is over."""
