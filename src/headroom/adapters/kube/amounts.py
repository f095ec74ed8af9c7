"""What pods reserve and nodes offer, computed as kube-scheduler does, in whole millionths.

Headroom reads amounts of others here only. One that nobody can read (`1e309`, `-5`, a list) is never an error and never nothing: for
a pod it counts as `UNREADABLE`, for a node it is left out, so no pod is ever placed because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from headroom.adapters.kube import raw
from headroom.api.quantities import MAX_LENGTH, InvalidQuantity, nano
from headroom.model import facts
from headroom.model.facts import UNREADABLE

_UNREADABLE_NANO: Final = UNREADABLE * 1000
_NOTHING: Final = (b"", b"null", b"{}")
_LONGEST_REMEMBERED: Final = 2048


def requested(spec: raw.PodSpec) -> facts.Amounts:
    """What kube-scheduler reserves for the pod."""
    main = tuple([bytes(each.resources) for each in spec.containers or ()])
    known = sum(map(len, main)) <= _LONGEST_REMEMBERED
    if known and not (spec.init_containers or spec.overhead or spec.resources):
        return _few_requests(main)
    total = _sum(main)
    if spec.init_containers:
        _add_init(total, spec.init_containers)
    if spec.resources is not None:
        total |= _wanted_of(spec.resources)  # what the pod asks for as a whole stands instead of its containers' sum
    if spec.overhead:
        _add(total, _nanos(spec.overhead))
    return _amounts(total)


@lru_cache(maxsize=1024)
def _few_requests(containers: tuple[bytes, ...]) -> facts.Amounts:
    return _amounts(_sum(containers))


def _sum(containers: tuple[bytes, ...]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in containers:
        _add(total, _wanted(each))
    return total


def _add_init(total: dict[str, int], containers: list[raw.Container]) -> None:
    """Init containers run one after another, each beside the sidecars that were started before it."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers:
        wanted = _wanted(bytes(container.resources))
        if container.restart_policy == "Always":
            _add(sidecars, wanted)
            continue
        for name in {*wanted, *sidecars}:
            peak[name] = max(peak.get(name, 0), wanted.get(name, 0) + sidecars.get(name, 0))
    _add(total, sidecars)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)


def _wanted(json: bytes) -> dict[str, int]:
    return {} if json in _NOTHING else _wanted_of(raw.read(json, raw.Requirements))


def _wanted_of(resources: raw.Requirements) -> dict[str, int]:
    """The requests; where there is only a limit, that is the request."""
    wanted = _nanos(resources.requests) if resources.requests else {}
    for name, value in (resources.limits or {}).items():
        if name not in wanted:
            wanted[name] = _nano(value)
    return wanted


def _nanos(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {name: _nano(value) for name, value in quantities.items() if value is not None}


def _nano(value: object) -> int:
    if isinstance(value, float):
        value = repr(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return _UNREADABLE_NANO
    return _few_nanos(value) if isinstance(value, int) or len(value) <= MAX_LENGTH else _UNREADABLE_NANO


@lru_cache(maxsize=4096)
def _few_nanos(value: str | int) -> int:
    amount = nano(value)
    return _UNREADABLE_NANO if isinstance(amount, InvalidQuantity) or amount < 0 else amount


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _amounts(nanos: Mapping[str, int]) -> facts.Amounts:
    """Whole millionths, rounded up; nothing of something is left out."""
    return tuple(sorted((name, min(-(-each // 1000), UNREADABLE)) for name, each in nanos.items() if each > 0))


def listed(quantities: Mapping[str, Any] | None, names: tuple[str, ...]) -> facts.Amounts:
    """Those of some names that are named there, nothing included."""
    if not quantities or not any(name in quantities for name in names):
        return ()
    found = _nanos({name: quantities[name] for name in names if name in quantities})
    return tuple(sorted((name, min(-(-each // 1000), UNREADABLE)) for name, each in found.items()))


def offered(status: raw.NodeStatus) -> facts.Amounts:
    """What a node has to give to pods; without `allocatable` all it has, as the API server fills it in."""
    return given(status.capacity if status.allocatable is None else status.allocatable)


def given(quantities: Mapping[str, Any] | None) -> facts.Amounts:
    """What is there; an amount that nobody can read is not."""
    read = _nanos(quantities or {})
    return _amounts({name: amount for name, amount in read.items() if amount < _UNREADABLE_NANO})
