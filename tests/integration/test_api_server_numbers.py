"""A real API server says by which numbers it is reached, and the guard takes its word."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from headroom.adapters.egress import Guard, Request, entries
from headroom.adapters.kube.api_server import ApiServerNumbers
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import load
from headroom.adapters.kube.http import HttpTransport
from headroom.model.errors import Refused
from headroom.runtime.clock import RealClock
from tests.control_plane import ControlPlane

SLICE = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "kubernetes", "namespace": "default"},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.9.8.7"]}],
}


async def test_the_numbers_behind_the_service_are_refused(control_plane: ControlPlane) -> None:
    # This API server listens on the loopback, which no slice may name.
    control_plane.apply(SLICE)
    clock, told, found = RealClock(), list[str](), list[str]()
    kube = Kube(HttpTransport(load(str(control_plane.kubeconfig())), clock), clock, random.Random(1))
    guard = Guard(entries("http://0.0.0.0/0:9"))

    def protect(numbers: Iterable[str]) -> None:
        found.extend(numbers)
        guard.protect(found)

    try:
        await ApiServerNumbers(kube, protect, told.append).look()
    finally:
        await kube.close()
        control_plane.kubectl("delete", "endpointslice", "kubernetes")
    assert not told
    service = control_plane.kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    assert {service, "10.9.8.7"} <= set(found)
    for number in (service, "10.9.8.7"):
        with pytest.raises(Refused, match="is the API server"):
            await guard.call(Request(url=f"http://{number}:9/"), 5)
    guard.close()
