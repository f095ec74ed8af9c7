"""kopf with an empty handler for every pod event."""

import asyncio
import logging
import os
import sys
from typing import Any

import kopf

from bench.readers import cost

seen: set[str] = set()


@kopf.on.event("pods")
def on_pod(uid: str, **_: Any) -> None:
    seen.add(uid)
    if len(seen) == int(sys.argv[2]):
        cost.report(pods=len(seen))
        os._exit(0)


@kopf.on.login()
def login(**arguments: Any) -> Any:
    return kopf.login_with_kubeconfig(**arguments)


if __name__ == "__main__":
    logging.getLogger("kopf").setLevel(logging.ERROR)
    logging.getLogger("kopf.objects").setLevel(logging.CRITICAL)

    cost.begin()
    asyncio.run(kopf.operator(clusterwide=True, standalone=True))
