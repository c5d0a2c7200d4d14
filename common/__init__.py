"""What the server and the clients must agree on."""
