"""Extender mode as a server: what kube-scheduler asks and is answered, and the watches that its answers rest on."""
