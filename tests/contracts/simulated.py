"""The simulated side of the contract tests: a namespace of an API server in memory."""

from __future__ import annotations

import random

from headroom.adapters.kube.transport import Transport
from headroom.sim.apiserver import Actor, ApiServer
from headroom.sim.clock import SimClock
from headroom.sim.connection import SimTransport
from headroom.sim.rights import User
from tests.contracts.cluster import Cluster

START_MS = 1_767_225_600_000
SPEED = 20.0
"""Simulated seconds in a real one: fast, yet with room for what a test measures."""


class SimulatedCluster(Cluster):
    """A namespace of a cluster that no other test shares."""

    def __init__(self, namespace: str) -> None:
        clock = SimClock(START_MS, SPEED)
        super().__init__(namespace, clock)
        self.server = ApiServer(clock, random.Random(1))
        users = self.server.users
        self._users = {
            "admin": users["admin"],
            "nobody": users.add(User(name="nobody", rights=())),
            "expired": users.add(User(name="expired", expires_ms=START_MS)),
            "unknown": User(name="unknown", token="token-of-a-stranger"),
        }
        self._transports: dict[str, SimTransport] = {}

    def transport(self, user: str = "admin") -> Transport:
        if user not in self._transports:
            self._transports[user] = SimTransport(self.server, Actor(name=user, user=self._users[user]))
        return self._transports[user]

    def token(self, user: str) -> str:
        return self._users[user].token

    async def compact(self) -> None:
        self.server.compact()

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()
