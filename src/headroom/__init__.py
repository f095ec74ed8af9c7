"""Headroom: one operator for a Kubernetes GPU fleet."""

__version__ = "0.1.0"
