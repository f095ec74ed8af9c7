"""`headroom version`: what is installed."""

from __future__ import annotations

from headroom.cli.options import Form, Output


def version(form: Output = Form.table) -> None:
    """Print the version of Headroom and of its API.

    Example: headroom version
    """
    from importlib import metadata

    from headroom.api.resources import API_VERSION
    from headroom.cli import output

    installed = metadata.version("headroom")
    if form.is_data:
        output.as_data({"version": installed, "apiVersion": API_VERSION}, form)
    else:
        output.line(f"headroom {installed} ({API_VERSION})")
