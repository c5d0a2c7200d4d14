"""Provisioning and supervising, without Flower."""
