"""What can go wrong before anything runs."""

from __future__ import annotations


class DeploymentError(ValueError):
    """A federation, a bundle or a process can't be set up; the message says what to do."""


class SuperLinkError(DeploymentError):
    """``flwr`` could not do what it was asked for; another try may succeed."""


class UnregistersManyError(DeploymentError):
    """More nodes would lose their keys than anybody has asked for."""
