"""The cluster as the loop sees it and acts on it: what is watched, the World that is made of it, and what is written."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from headroom.adapters.kube import parse, paths, raw
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects import Effects
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.viewing import Viewing
from headroom.adapters.kube.watching import Options
from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model.actions import Action
from headroom.model.decisions import status_wire
from headroom.model.ports import Clock, Recording
from headroom.model.world import ref_of


class KubePort(Viewing):
    """A real cluster, or a simulated API server, as the loop's port."""

    def __init__(
        self,
        kube: Kube,
        events: Events,
        *,
        clock: Clock,
        rng: random.Random,
        recording: Recording | None = None,
        **more: Unpack[Options],
    ) -> None:
        """Without the switches in `beside` no machine is woken, without the clouds none is bought."""
        beside = more.get("beside")
        super().__init__(kube, clock=clock, rng=rng, recording=recording, **more)
        self.enforced: Callable[[str, AnyResource], None] = lambda _reason, _resource: None
        """Told of what was really done for a resource, as one word."""
        self._effects = Effects(kube, events, clock=clock, view=self, beside=beside, told=self._told)

    def _told(self, reason: str, resource: AnyResource) -> None:
        self.enforced(reason, resource)

    async def write_status(self, resource: AnyResource, status: Status) -> None:
        """Write a status. Raises `Conflict` if the resource is no longer the one, in the version, that was decided on.

        The version is the guard: in a merge patch of a status the API server does not look at the uid.
        """
        known = self._resources.get(ref_of(resource), resource)
        answer = await self._kube.patch_status(
            paths.status(resource.kind, resource.namespace, resource.name),
            status_patch(known.status, status),
            uid=resource.uid,
            resource_version=resource.resource_version,
        )
        self._sinks[resource.kind].confirm(parse.resource(raw.plain(answer)))

    async def perform(self, action: Action, resource: AnyResource) -> None:
        """Carry out one action that a decision on `resource` asked for."""
        await self._effects.perform(action, resource)


# --- statuses ------------------------------------------------------------------------------------------------------------------


def status_patch(before: Status, after: Status) -> dict[str, Any]:
    """The merge patch that makes a status equal to `after`: what `after` does not have is null, which removes it."""
    wanted = status_wire(after)
    # By the type's own fields, not only by those of `before`: our view may be behind, or unreadable.
    gone: dict[str, Any] = {name: None for name in after.__struct_encode_fields__ if name not in wanted}
    return gone | _patch(status_wire(before), wanted)


def _patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        was = before.get(name)
        out[name] = _patch(was if isinstance(was, dict) else {}, value) if isinstance(value, dict) else _clean(value)
    return out


def _clean(value: Any) -> Any:
    """A value inside a list is taken as it is, so a null there would be stored; it means absent."""
    if isinstance(value, dict):
        return {name: _clean(each) for name, each in value.items() if each is not None}
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value
