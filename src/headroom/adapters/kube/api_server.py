"""Where the API server is reached from within the cluster: the numbers of the Service `kubernetes` and of what stands behind it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.looking import ASK_SECONDS, Looking
from headroom.model.errors import HeadroomError

NAMESPACE: Final = "default"
NAME: Final = "kubernetes"
VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
"""The kubelet tells every container the number of that Service."""


class _ServiceSpec(Struct, rename="camel"):
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: list[str] = msgspec.field(name="clusterIPs", default_factory=list)


class _Service(Struct):
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


class _Endpoint(Struct):
    addresses: list[str] = []


class _Slice(Struct):
    endpoints: list[_Endpoint] | None = None


class ApiServerNumbers(Looking):
    """Keeps somebody informed of all numbers by which the API server is reached."""

    def __init__(self, kube: Kube, protect: Callable[[Iterable[str]], None], tell: Callable[[str], None]) -> None:
        """`protect` takes all numbers that are known; `tell` hears why some are not."""
        super().__init__(kube, tell)
        self._protect = protect
        self._known: dict[str, frozenset[str]] = {"": frozenset({os.environ.get(VARIABLE, "")} - {""})}
        """By the path at which they were read; those stay while it cannot be read."""

    async def _look(self) -> str:
        problems = [await self._read(path, of) for path, of in _READ]
        self._protect(number for numbers in self._known.values() for number in numbers)
        return next((each for each in problems if each), "")

    async def _read(self, path: str, of: Callable[[bytes], Iterable[str]]) -> str:
        """Why they cannot be read; empty if they were."""
        try:
            self._known[path] = frozenset(of(await self._kube.get(path, timeout=ASK_SECONDS)))
        except errors.NotFound:
            self._known[path] = frozenset()  # one that is reached by the loopback only has none
        except HeadroomError as error:
            return str(error)
        except msgspec.DecodeError as error:
            return f"reading {paths.spoken(path)}: {error}"
        return ""


def _of_service(body: bytes) -> Iterable[str]:
    spec = msgspec.json.decode(body, type=_Service).spec
    return (each for each in (spec.cluster_ip, *spec.cluster_ips) if each and each != "None")


def _of_slice(body: bytes) -> Iterable[str]:
    endpoints = msgspec.json.decode(body, type=_Slice).endpoints or []
    return (number for each in endpoints for number in each.addresses)


# The API server itself keeps both, under that name, whatever labels others give theirs.
_READ: Final = (
    (paths.of("", "v1", "services", NAMESPACE, NAME), _of_service),
    (paths.of("discovery.k8s.io", "v1", "endpointslices", NAMESPACE, NAME), _of_slice),
)
