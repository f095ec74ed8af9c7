"""Kubernetes: the only place that reads its JSON."""
