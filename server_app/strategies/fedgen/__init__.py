"""FedGen on the server: generator, teacher and label counts."""
