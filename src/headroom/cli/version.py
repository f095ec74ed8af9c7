"""`headroom version`: what is installed."""

from __future__ import annotations


def version() -> None:
    """Print the version of Headroom and of its API.

    Example: headroom version
    """
    from importlib import metadata

    from headroom.api.resources import API_VERSION
    from headroom.cli import output

    output.line(f"headroom {metadata.version('headroom')} ({API_VERSION})")
