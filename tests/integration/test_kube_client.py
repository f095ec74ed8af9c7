"""Our Kubernetes client against a real API server: what it answers, and that the list-watch survives it."""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from headroom.adapters.kube import config, errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.leases import KubeLeases
from headroom.adapters.kube.listwatch import Event, Identity, ListPage
from headroom.adapters.kube.transport import Reply, Transport
from headroom.adapters.kube.watch import Reflector
from headroom.model.errors import Unavailable
from headroom.model.ports import LeaseTaken
from tests.control_plane import CLIENT_CERTIFICATE_USER, ControlPlane
from tests.processes import PATIENCE_SECONDS

MakePlane = Callable[..., ControlPlane]


class Clock:
    def now(self) -> int:
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class HurriedClock(Clock):
    """Has no patience for backoff."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.2))


@contextlib.asynccontextmanager
async def connected(plane: ControlPlane, user: str = "admin") -> AsyncIterator[Kube]:
    kube = Kube(HttpTransport(config.load(str(plane.kubeconfig(user))), Clock()), Clock())
    try:
        yield kube
    finally:
        await kube.close()


@pytest.fixture
async def kube(control_plane: ControlPlane) -> AsyncIterator[Kube]:
    async with connected(control_plane) as made:
        yield made


@pytest.fixture
async def namespace(kube: Kube) -> AsyncIterator[str]:
    name = f"client-{uuid4().hex[:8]}"
    await kube.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await kube.delete(paths.namespace(name))


async def read(kube: Kube, path: str) -> Any:
    return json.loads(await kube.get(path))


async def add_pod(kube: Kube, namespace: str, name: str, **labels: str) -> Any:
    # Of a scheduler that does not exist, so that nobody else writes to it.
    spec = {"schedulerName": "none", "containers": [{"name": "c", "image": "none"}]}
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    return json.loads(await kube.create(paths.pods(namespace), body))


# Identity


@pytest.mark.parametrize("user", [CLIENT_CERTIFICATE_USER, "admin"])
async def test_client_certificate_and_token(control_plane: ControlPlane, user: str) -> None:
    async with connected(control_plane, user) as kube:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await kube.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert json.loads(answer)["status"]["userInfo"]["username"] == user


async def test_a_missing_right_is_named(control_plane: ControlPlane) -> None:
    async with connected(control_plane, "nobody") as kube:
        with pytest.raises(errors.Forbidden, match=r"^reading pods: ") as caught:
            await kube.get(paths.pods())
        assert (caught.value.verb, caught.value.resource) == ("list", "pods")
        with pytest.raises(errors.Forbidden) as caught:
            await kube.get(paths.leases("default"))
        assert caught.value.resource == "leases.coordination.k8s.io"


async def test_an_unknown_token(control_plane: ControlPlane) -> None:
    known = config.load(str(control_plane.kubeconfig()))
    unknown = config.ClientConfig(source="a test", server=known.server, authority=known.authority, token="wrong")
    transport = HttpTransport(unknown, Clock())
    with pytest.raises(errors.Unauthorized):
        await Kube(transport, Clock()).get(paths.pods())
    await transport.close()


# Writes


async def test_apply_names_the_field_that_somebody_else_owns(kube: Kube, namespace: str) -> None:
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"a": "1", "b": "1"},
    }
    path = paths.configmap(namespace, "c")
    await kube.apply(path, body)
    with pytest.raises(errors.Conflict) as caught:
        await kube.apply(path, body | {"data": {"a": "2"}}, owner="other")
    assert caught.value.causes == ((".data.a", 'conflict with "headroom"'),)
    await kube.apply(path, body | {"data": {"a": "2"}}, owner="other", force=True)
    await kube.apply(path, body | {"data": {}})
    assert (await read(kube, path))["data"] == {"a": "2"}


async def test_writes_on_another_object_or_version_are_refused(kube: Kube, namespace: str) -> None:
    pod = await add_pod(kube, namespace, "p")
    path, status_path = paths.pod(namespace, "p"), paths.pod(namespace, "p") + "/status"
    uid, version = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
    conflicts: list[Callable[[], Any]] = [
        lambda: kube.patch_status(status_path, {"message": "m"}, uid="other"),
        lambda: kube.patch_status(status_path, {"message": "m"}, uid="other", resource_version=version),
        lambda: kube.patch_status(status_path, {"message": "m"}, uid=uid, resource_version="1"),
        lambda: kube.merge_patch(path, {"metadata": {"uid": "other", "labels": {"a": "b"}}}),
        lambda: kube.delete(path, uid="other"),
        lambda: kube.delete(path, uid=uid, resource_version="1"),
        lambda: kube.evict(namespace, "p", uid=uid, resource_version="1", grace_seconds=0),
    ]
    for write in conflicts:
        with pytest.raises(errors.Conflict):
            await write()
    assert (await read(kube, path))["metadata"]["resourceVersion"] == version
    with pytest.raises(errors.Invalid):
        await kube.json_patch(path, [{"op": "test", "path": "/metadata/uid", "value": "other"}])
    await kube.patch_status(status_path, {"message": "m"}, uid=uid)
    await kube.delete(path, uid=uid, grace_seconds=0)


def crd(group: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing"}
    spec = {
        "group": group,
        "scope": "Cluster",
        "names": names,
        "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": spec,
    }


async def test_the_status_of_a_custom_resource_made_anew_is_not_written(
    kube: Kube, control_plane: ControlPlane
) -> None:
    group = f"client-{uuid4().hex[:8]}.dev"
    control_plane.apply(crd(group))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", f"crd/things.{group}")
    collection, path = paths.of(group, "v1", "things"), paths.of(group, "v1", "things", name="t")
    body = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "t"}}
    old = json.loads(await kube.create(collection, body))["metadata"]
    await kube.delete(path, uid=old["uid"])
    new = json.loads(await kube.create(collection, body))["metadata"]
    for version in ("", old["resourceVersion"]):
        with pytest.raises(errors.Conflict):
            await kube.patch_status(path + "/status", {"a": 1}, uid=old["uid"], resource_version=version)
    assert "status" not in await read(kube, path)
    await kube.patch_status(path + "/status", {"a": 1}, uid=new["uid"])
    assert (await read(kube, path))["status"] == {"a": 1}
    # The trap that makes this test needed: the server does not look at a uid that comes with such a status.
    await kube.merge_patch(path + "/status", {"metadata": {"uid": old["uid"]}, "status": {"a": 2}})
    await kube.delete(paths.of("apiextensions.k8s.io", "v1", "customresourcedefinitions", name=f"things.{group}"))


async def test_evictions_and_disruption_budgets(kube: Kube, namespace: str) -> None:
    def budget(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}}}

    budgets = paths.of("policy", "v1", "poddisruptionbudgets", namespace)
    pod = await add_pod(kube, namespace, "p", app="x")
    uid = pod["metadata"]["uid"]
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await kube.patch_status(paths.pod(namespace, "p") + "/status", ready, uid=uid)
    await kube.create(budgets, budget("one"))
    with pytest.raises(errors.DisruptionBlocked, match="The disruption budget one"):
        await kube.evict(namespace, "p", uid=uid)
    await kube.create(budgets, budget("two"))
    with pytest.raises(errors.EvictionImpossible, match="more than one PodDisruptionBudget"):
        await kube.evict(namespace, "p", uid=uid)
    for name in ("one", "two"):
        await kube.delete(paths.of("policy", "v1", "poddisruptionbudgets", namespace, name))
    await kube.evict(namespace, "p", uid=uid, grace_seconds=0)
    with pytest.raises(errors.NotFound):
        await kube.evict(namespace, "p", uid=uid)


async def test_mistakes_name_their_fields(kube: Kube, namespace: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await kube.create(paths.pods(namespace), {"metadata": {"name": "p"}, "spec": {"containers": []}})
    assert caught.value.causes == (("spec.containers", "Required value"),)
    with pytest.raises(errors.NotFound, match=r"^reading things\.example\.com"):
        await kube.get("/apis/example.com/v1/things")
    await add_pod(kube, namespace, "p")
    with pytest.raises(errors.AlreadyExists):
        await add_pod(kube, namespace, "p")


async def test_events_are_counted(kube: Kube, namespace: str) -> None:
    pod = await add_pod(kube, namespace, "p")
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p", "uid": pod["metadata"]["uid"]}
    for teller in (Events(kube, Clock()), Events(kube, Clock())):
        await teller.emit(about, "Warning", "Held", "over budget " + "x" * 3000)
        await teller.emit(about, "Warning", "Held", "over budget " + "x" * 3000)
        await teller.emit(about, "Normal", "Released", "room again", once="1")
    selector = {"fieldSelector": "source=headroom"}
    found = json.loads(await kube.get(paths.events(namespace), query=selector))["items"]
    assert {(event["reason"], event["count"]) for event in found} == {("Held", 4), ("Released", 1)}


# Leases


async def test_only_one_of_two_gets_the_lease(kube: Kube, namespace: str) -> None:
    first, second = (KubeLeases(kube, namespace, "leader") for _ in range(2))
    assert await first.read() is None
    held = await first.write("a", 15, None)
    assert (held.holder, held.duration_seconds, held.transitions) == ("a", 15, 0)
    with pytest.raises(LeaseTaken):
        await second.write("b", 15, None)
    seen = await second.read()
    assert seen == held
    await kube.merge_patch(paths.lease(namespace, "leader"), {"metadata": {"labels": {"kept": "yes"}}})
    held = await first.read() or held
    acquired = (await read(kube, paths.lease(namespace, "leader")))["spec"]["acquireTime"]
    renewed = await first.write("a", 15, held)
    assert renewed.renewals != held.renewals
    with pytest.raises(LeaseTaken):
        await second.write("b", 15, seen)
    released = await first.write("", 15, renewed)
    assert (released.holder, released.duration_seconds, released.transitions) == ("", 1, 0)
    answers = await asyncio.gather(
        first.write("a", 15, released), second.write("b", 15, released), return_exceptions=True
    )
    (winner,) = [answer for answer in answers if not isinstance(answer, BaseException)]
    (loser,) = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(loser, LeaseTaken)
    assert winner.transitions == 1
    stored = await read(kube, paths.lease(namespace, "leader"))
    assert stored["metadata"]["labels"] == {"kept": "yes"}
    assert stored["spec"]["acquireTime"] > acquired


# Lists and watches


class Names:
    """A sink of names by uid."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.lists = 0

    def key(self, fact: tuple[str, str]) -> str:
        return fact[0]

    def keys(self) -> Iterable[str]:
        return self.held

    def identity(self, key: str) -> Identity | None:
        return None

    def put(self, fact: tuple[str, str], *, listed: bool = False) -> None:
        self.held[fact[0]] = fact[1]

    def remove(self, key: str, _last: Any, _seen_until: int) -> None:
        self.held.pop(key, None)

    def listed(self) -> None:
        self.lists += 1


class NameDecoder:
    def page(self, body: bytes) -> ListPage[tuple[str, str]]:
        read = msgspec.json.decode(body)
        items = [(item["metadata"]["uid"], item["metadata"]["name"]) for item in read["items"]]
        return ListPage(items, read["metadata"]["resourceVersion"], read["metadata"].get("continue", ""))

    def event(self, line: bytes) -> Event[tuple[str, str]]:
        read = msgspec.json.decode(line)
        if read["type"] == "ERROR":
            return Event("ERROR", status_code=read["object"]["code"], message=read["object"]["message"])
        metadata = read["object"]["metadata"]
        end = "k8s.io/initial-events-end" in metadata.get("annotations", {})
        fact = None if read["type"] == "BOOKMARK" else (metadata["uid"], metadata["name"])
        return Event(read["type"], fact, metadata["resourceVersion"], end)


class Gate:
    """A transport whose network can be taken away, and that may do without streamed lists."""

    def __init__(self, inner: Transport, *, streams_lists: bool = True) -> None:
        self.inner, self.streams_lists, self.open = inner, streams_lists, True

    async def request(self, method: str, path: str, **more: Any) -> Reply:
        self._check()
        return await self.inner.request(method, path, **more)

    async def stream(
        self, path: str, *, query: Mapping[str, str], idle: float, opened: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        self._check()
        if not self.streams_lists and "sendInitialEvents" in query:
            query = {**query, "resourceVersionMatch": "Exact"}  # which the server refuses
        async for line in self.inner.stream(path, query=query, idle=idle, opened=opened):
            yield line

    def _check(self) -> None:
        if not self.open:
            raise Unavailable("the gate is closed")

    async def close(self) -> None:
        await self.inner.close()


class Watched:
    """A running reflector of the pods of a namespace."""

    def __init__(self, plane: ControlPlane, namespace: str, **gate: bool) -> None:
        transport = HttpTransport(config.load(str(plane.kubeconfig())), Clock())
        self.gate, self.sink = Gate(transport, **gate), Names()
        kube = Kube(self.gate, HurriedClock())
        self.reflector = Reflector(
            kube, paths.pods(namespace), NameDecoder(), self.sink, clock=HurriedClock(), rng=random.Random(1)
        )

    async def __aenter__(self) -> "Watched":
        self._task = asyncio.create_task(self.reflector.run())
        await self.until(lambda: self.reflector.synced)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.gate.close()

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self._task.done():
                self._task.result()
            assert time.monotonic() < deadline, f"{sorted(self.names)}, problem {self.reflector.problem!r}"
            await asyncio.sleep(0.02)

    @property
    def names(self) -> set[str]:
        return set(self.sink.held.values())


async def test_pages(kube: Kube, namespace: str) -> None:
    for number in range(7):
        await add_pod(kube, namespace, f"p{number}")
    found = [json.loads(body)["items"] async for body in kube.pages(paths.pods(namespace), limit=3)]
    assert [len(items) for items in found] == [3, 3, 1]


@pytest.mark.parametrize("streams_lists", [True, False])
async def test_a_list_and_what_happens_after(
    control_plane: ControlPlane, kube: Kube, namespace: str, streams_lists: bool
) -> None:
    await add_pod(kube, namespace, "before")
    async with Watched(control_plane, namespace, streams_lists=streams_lists) as watched:
        assert watched.names == {"before"}
        await add_pod(kube, namespace, "after")
        await kube.delete(paths.pod(namespace, "before"), grace_seconds=0)
        await watched.until(lambda: watched.names == {"after"})
        assert watched.sink.lists == 1
        assert watched.reflector.problem == ""


async def test_a_lost_history_is_made_up_for_by_a_list(bare_control_plane: MakePlane) -> None:
    plane = bare_control_plane()
    async with connected(plane) as kube, Watched(plane, "default") as watched:
        await add_pod(kube, "default", "goes")
        await add_pod(kube, "default", "stays")
        first = json.loads(await kube.page(paths.pods("default"), limit=1))["metadata"]
        await watched.until(lambda: len(watched.names) == 2)
        watched.gate.open = False
        await asyncio.to_thread(plane.restart_apiserver)
        await watched.until(lambda: "gate" in watched.reflector.problem)
        await kube.delete(paths.pod("default", "goes"), grace_seconds=0)
        await add_pod(kube, "default", "comes")
        plane.compact()
        await asyncio.to_thread(plane.restart_apiserver)
        with pytest.raises(errors.Gone):
            await kube.page(paths.pods("default"), limit=1, cont=first["continue"])
        old = {"resourceVersion": first["resourceVersion"], "timeoutSeconds": "5"}
        (line,) = [line async for line in kube.watch(paths.pods("default"), query=old, idle=10)]
        assert NameDecoder().event(line).status_code == 410
        assert watched.names == {"goes", "stays"}
        watched.gate.open = True
        await watched.until(lambda: watched.names == {"stays", "comes"} and watched.reflector.synced)
        assert watched.reflector.relists == 1


async def test_a_restart_of_the_server_in_the_middle_of_a_watch(bare_control_plane: MakePlane) -> None:
    plane = bare_control_plane()
    async with connected(plane) as kube, Watched(plane, "default") as watched:
        await add_pod(kube, "default", "one")
        await watched.until(lambda: watched.names == {"one"})
        # Looked for while the server is away: once it is back, all may be well again sooner than one can look.
        restarting = asyncio.create_task(asyncio.to_thread(plane.restart_apiserver))
        await watched.until(lambda: "watching pods in default" in watched.reflector.problem)
        await restarting
        await add_pod(kube, "default", "two")
        await watched.until(lambda: watched.names == {"one", "two"})
        await watched.until(lambda: watched.reflector.synced and watched.reflector.problem == "")
