"""How near the app's own work comes to a bare PyTorch loop, measured side by side."""
