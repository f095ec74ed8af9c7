"""What `headroom run` loads before it has anything to do: memory that every operator takes for good."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

NOT_LOADED: Final = (
    "aiobotocore",
    "aiohttp.web",
    "cryptography",
    "headroom.adapters.clouds.markets",
    "headroom.core.demand",
    "headroom.core.power",
    "zoneinfo",
)
"""A web server and its certificate are for the processes that serve; the rest is loaded with the first pool or schedule."""


def test_the_operator_loads_neither_a_web_server_nor_what_decides_on_pools() -> None:
    code = f"""
import sys
from headroom.cli import capabilities, serving
from headroom.runtime.metrics import Metrics

capabilities.pages()
capabilities.measured(Metrics())
found = [name for name in {NOT_LOADED} if name in sys.modules]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)
