"""Headroom itself, as `headroom run` would read: the port with all its watches, and the loop, which may not write."""

import asyncio
import random
import sys

from bench.readers import cost
from headroom.adapters.kube import config
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.store import KubePort
from headroom.runtime.clock import RealClock
from headroom.runtime.leader import Never
from headroom.runtime.operator import Operator
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime


async def main(kubeconfig: str, expected: int) -> None:
    """Report when all pods are there, then again for each line on standard input."""
    cost.begin()
    clock = RealClock()
    transport = HttpTransport(config.load(kubeconfig, None), clock)
    kube = Kube(transport, clock)
    port = KubePort(kube, Events(kube, clock), clock=clock, rng=random.Random(1))
    operator = Operator(port, Never(), Settings(), Runtime(clock=clock))
    await port.start()
    running = asyncio.create_task(operator.run())
    await port.synced(600)
    held = len(port.world(clock.now()).pods)
    assert held == expected, f"{held} pods instead of {expected}"
    cost.report(pods=held)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        cost.report(generation=port.world(clock.now()).pods.generation, ticks=operator.loop.ticks)
    running.cancel()
    await port.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
