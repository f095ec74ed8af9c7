"""`headroom run` with the plan of tests/probe.py, as a process that tests kill and restart.

Run as `python -m tests.integration.probe KUBECONFIG IDENTITY FOLDER`.
"""

import asyncio
import sys

from headroom.cli import serving
from headroom.runtime.settings import Settings
from tests.probe import PROBE_PLANS


def main(kubeconfig: str, identity: str, folder: str) -> int:
    """Run until told to end."""
    settings = Settings(
        kubeconfig=kubeconfig,
        identity=identity,
        state_dir=folder,
        metrics_address="",
        health_address="",
        log_format="json",
    )
    return asyncio.run(serving.serve(settings, PROBE_PLANS))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
