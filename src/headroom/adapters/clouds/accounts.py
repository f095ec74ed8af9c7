"""Which account of a cloud keys are of: asked once for each, since machines that another account does not know are not gone."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from headroom.adapters.clouds.providers import Keys


class Accounts:
    """The accounts of keys, by a digest: no key is kept here."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    async def of(self, cloud: str, keys: Keys, ask: Callable[[], Awaitable[str]]) -> str:
        """The account; whoever is asked may raise. A key never moves to another one."""
        values = "\0".join((cloud, str(keys.ambient), *(keys[name] for name in sorted(keys))))
        name = hashlib.sha256(values.encode()).hexdigest()
        if name not in self._known:
            self._known[name] = await ask()
        return self._known[name]
