"""`headroom run` with offers from a file, and with a ladder that waits for seconds where it waits for minutes.

    python -P tests/integration/offering.py offers.json run

Clouds tell of their prices every few minutes; here a price counts as soon as it is written.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from headroom.adapters.kube.store import KubePort
from headroom.cli import serving
from headroom.cli.main import main
from headroom.core.offers import rungs
from headroom.model.changes import Topic
from headroom.model.cloud_facts import Offer
from headroom.model.world import World

FILE = Path(sys.argv.pop(1))


class OfferingPort(KubePort):
    """The cluster, and what the file says beside it."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._offers: dict[str, Offer] = {}
        self._read_at = -1
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to watch, the file too."""
        self._read()
        self._reading = asyncio.create_task(self._follow())
        await super().start()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            if self._read():
                self.tell(Topic.OFFERS)

    def _read(self) -> bool:
        changed = FILE.stat().st_mtime_ns
        if changed == self._read_at:
            return False
        found = msgspec.json.decode(FILE.read_bytes(), type=list[Offer])
        # A price is of the moment at which it was written.
        at = changed // 1_000_000
        self._read_at, self._offers = changed, {each.name: structs.replace(each, at=at) for each in found}
        return True

    def world(self, now: int) -> World:
        """The view at this instant."""
        return structs.replace(super().world(now), offers=self._offers)


serving.KubePort = OfferingPort  # type: ignore[attr-defined]  # in place of the cloud's own feed
rungs.REST_MS = 8_000  # type: ignore[misc]  # in place of five minutes
rungs.STUCK_REST_MS = 40_000  # type: ignore[misc]  # in place of seven, and longer than Karpenter keeps a claim here
rungs.LINGER_MS = 3_000  # type: ignore[misc]  # in place of ten

if __name__ == "__main__":
    main()
