"""Real processes, started by the scripts that a person uses, on loopback and in namespaces."""
