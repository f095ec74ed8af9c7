"""The ConfigMaps of the operator's namespace that it reads: the cluster-wide settings and the price book."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headroom.adapters import prices
from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.listwatch import Identity
from headroom.adapters.kube.parse import RawConfigMap
from headroom.adapters.kube.sinks import is_older
from headroom.model.changes import Topic
from headroom.model.facts import Price

SETTINGS: Final = "headroom"
"""The ConfigMap with the cluster-wide settings, in the operator's namespace."""
PRICES: Final = "headroom-prices"
"""The ConfigMap with the price book, in the operator's namespace."""
NOT_STOPPED: Final = ("", "false", "no", "off", "0")


def is_stopped(data: Mapping[str, str]) -> bool:
    """Whether the kill switch is thrown: whoever writes anything there but a clear no wants it to be."""
    return data.get("stop", "").strip().lower() not in NOT_STOPPED


class ConfigMapSink:
    """Keeps one ConfigMap of the operator's namespace."""

    NAME = ""

    def __init__(self, changes: Subscriptions) -> None:
        self.current: RawConfigMap | None = None
        self._changes = changes

    @property
    def data(self) -> Mapping[str, str]:
        """What stands in it; nothing if there is none."""
        return self.current.data if self.current else {}

    def key(self, fact: RawConfigMap) -> str:
        """The uid."""
        return fact.uid

    def keys(self) -> Iterable[str]:
        """The uid of the one ConfigMap, if it exists."""
        return [self.current.uid] if self.current else []

    def identity(self, key: str) -> Identity | None:
        """Which ConfigMap it is."""
        known = self.current
        return Identity(known.namespace, known.name, key) if known is not None and known.uid == key else None

    def put(self, fact: RawConfigMap, *, listed: bool = False) -> None:
        """Take it in."""
        if fact.name != self.NAME or (self.current and not listed and is_older(fact, self.current)):
            return
        before, self.current = self.current, fact
        if before is None or before.data != fact.data:
            self._read()

    def remove(self, key: str, _last: RawConfigMap | None, _seen_until: int) -> None:
        """It is gone: everything has its default again."""
        if self.current is not None and self.current.uid == key:
            self.current = None
            self._read()

    def listed(self) -> None:
        """Whether there is one is known."""

    def _read(self) -> None:
        raise NotImplementedError


class SettingsSink(ConfigMapSink):
    """Keeps the cluster-wide settings."""

    NAME = SETTINGS

    @property
    def stopped(self) -> bool:
        """Whether the kill switch is thrown."""
        return is_stopped(self.data)

    def _read(self) -> None:
        self._changes.fact(Topic.SETTINGS)


class PriceSink(ConfigMapSink):
    """Keeps the price book: every key of the ConfigMap is a list of prices."""

    NAME = PRICES

    def __init__(self, changes: Subscriptions) -> None:
        super().__init__(changes)
        self.book: tuple[Price, ...] = ()
        self.problems: list[str] = []
        """Why entries are left out, one sentence for each."""

    def _read(self) -> None:
        before, self.book, self.problems = self.book, *prices.of_config_map(self.data)
        if self.book != before:
            self._changes.fact(Topic.PRICES)
