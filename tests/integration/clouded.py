"""A cloud beside a real cluster: Tencent Cloud's protocol and Kong's on this machine, Spotpools with their Secrets, and nodes that join.

The cloud keeps its own books of what harm was done: whenever a machine is launched or ended, it looks at the Spotpools as they stand in
the API server at that moment.
"""

import asyncio
import base64
import contextlib
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, POOL_FINALIZER, SLOT_TAG, USABLE_BY
from tests.cloud_faults import CloudMachine
from tests.control_plane import ControlPlane
from tests.integration.accounts import Api, Document, OperatorWithPages, condition, text
from tests.integration.accounts import now as now_ms
from tests.integration.enforced import OPERATOR, enforcing_operator, wait_for
from tests.integration.powered import PLAYED, Site
from tests.kong_service import KongService
from tests.tencent_service import TencentService

KEY, DATA, TOKEN, WRONG = (f"CANARY-{what}-5b1f0c" for what in ("KEY", "DATA", "TOKEN", "WRONG"))
"""Secrets that must not be seen anywhere: the cloud's key, what machines start with, the gateway's token, a key that is wrong."""
USER_DATA = f"#!/bin/sh\necho {DATA}\n"
CANARIES = ("CANARY", *(base64.b64encode(each.encode()).decode() for each in (KEY, USER_DATA, TOKEN, WRONG)))
POOLS = "apis/headroom.dev/v1alpha1/spotpools"
OVER = ("STOPPING", "STOPPED", "SHUTDOWN", "TERMINATING", "LAUNCH_FAILED")
Found = TypeVar("Found")


class WatchedCloud(TencentService):
    """Tencent Cloud, with its books."""

    def __init__(self, plane: ControlPlane, keys: dict[str, str]) -> None:
        super().__init__(keys)
        self._plane = plane
        self.harm: list[str] = []
        self.tokens: list[tuple[str, str]] = []
        """Of every launch that was asked for: the owner's uid, and the token."""
        self.ended: list[str] = []
        self.callers: Counter[str] = Counter()
        self.keeps_answers = False
        """Launches come about, and their answers do not leave."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.callers[request.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]] += 1
        answer = await super()._answer(request)
        if self.keeps_answers and self.log[-1] == "RunInstances":
            await asyncio.sleep(3600)
        return answer

    def _RunInstances(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - as the cloud calls it
        tags = {each["Key"]: each["Value"] for each in given["TagSpecification"][0]["Tags"]}
        owner, token = tags[OWNER_TAG], given["ClientToken"]
        self.tokens.append((owner, token))
        pool = self._pool(owner)
        known = [(each["slot"], each["state"], each["token"]) for each in pool.get("status", {}).get("slots", ())]
        if (int(tags[SLOT_TAG]), "Launching", token) not in known:
            self.harm.append(f"launched {token} without an intent: {known}")
        if POOL_FINALIZER not in pool.get("metadata", {}).get("finalizers", ()):
            self.harm.append(f"launched {token} without a finalizer")
        found = super()._RunInstances(given)
        most = pool["spec"]["maximum"] + pool["spec"]["maxSurge"]
        if len(self.alive(owner)) > most:
            self.harm.append(f"more than {most} machines of {pool['metadata']['name']}")
        return found

    def _TerminateInstances(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - as the cloud calls it
        for each in given["InstanceIds"]:
            self.ended.append(each)
            if not self._pool(self.machines[each].tags.get(OWNER_TAG, "")):
                self.harm.append(f"{each} was ended, and no Spotpool owns it")
        return super()._TerminateInstances(given)

    def alive(self, owner: str) -> list[CloudMachine]:
        """The machines of a Spotpool that exist, by its uid."""
        return [
            each
            for each in list(self.machines.values())
            if each.tags.get(OWNER_TAG) == owner and each.state not in OVER
        ]

    def _pool(self, uid: str) -> Document:
        # A connection for each occasion: they come long after one another.
        with contextlib.closing(Api(self._plane)) as api:
            return next((each for each in api.items(POOLS) if each["metadata"]["uid"] == uid), {})


class Clouds:
    """A cluster, a cloud, a gateway, and one operator."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.api, self.plane = site, site.api, site.plane
        self.cluster: str = self.api.send("GET", "api/v1/namespaces/kube-system")["metadata"]["uid"]
        self.cloud = WatchedCloud(site.plane, {"our-id": KEY, "wrong-id": KEY, "unlent-id": KEY})
        self.cloud.echo = True
        self.another = TencentService({"another-id": KEY})
        self.another.account = "100087654321"
        self.cloud.others.append(self.another)
        self.kong = KongService(token=TOKEN)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self.cloud.__aenter__())
        self._do(self.kong.__aenter__())
        self.foreign = [self.cloud.add(name="somebody else's"), self.cloud.add(**{CLUSTER_TAG: "another"})]
        # By hand, with our cluster and an owner that never was.
        self.tagged = self.cloud.add(**{CLUSTER_TAG: self.cluster, OWNER_TAG: "no-such-uid", SLOT_TAG: "0"})
        self.operator = enforcing_operator(
            site.plane,
            folder,
            OperatorWithPages,
            allow_egress=f"{site.service.url},{self.kong.url}",
            cloud_endpoints=f"tencent={self.cloud.url},tencent-sts={self.cloud.url}",
        )

    def _do(self, work: Coroutine[Any, Any, Found]) -> Found:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        """Answer no more."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ownerless(self) -> set[str]:
        """Machines of this cluster that no Spotpool owns, by the cloud's own books."""
        uids = {each["metadata"]["uid"] for each in self.api.items(POOLS)}
        every = [each for each in list(self.cloud.machines.values()) if each.tags.get(CLUSTER_TAG) == self.cluster]
        return {each.name for each in every if each.tags[OWNER_TAG] not in uids and each.state not in OVER}

    async def _end(self) -> None:
        await self.cloud.__aexit__()
        await self.kong.__aexit__()
        left = asyncio.all_tasks() - {asyncio.current_task()}  # answers that nobody waits for any more
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def namespace(self, name: str) -> "Lab":
        """Where Spotpools are, with a Secret for the cloud's keys; it is made if there is none."""
        if name not in {each["metadata"]["name"] for each in self.api.items("api/v1/namespaces")}:
            self.api.send("POST", "api/v1/namespaces", {"metadata": {"name": name}})
        made = Lab(self, name)
        made.secret("keys", secretId="our-id", secretKey=KEY)
        made.secret("start", userData=USER_DATA)
        made.secret("kong", token=TOKEN)
        return made


class Lab:
    """One namespace with Spotpools."""

    def __init__(self, clouds: Clouds, name: str) -> None:
        self.clouds, self.api, self.cloud, self.name = clouds, clouds.api, clouds.cloud, name
        self._users: list[str] = []

    # Making it

    def secret(self, secret: str, usable_by: str = "", **values: str) -> None:
        """A Secret that the operator may read."""
        body = {"metadata": {"name": secret, "annotations": {USABLE_BY: usable_by}}, "stringData": values}
        self.api.send("POST", f"api/v1/namespaces/{self.name}/secrets", body)
        role, own = f"headroom-secret-{secret}", f"--namespace={self.name}"
        only = ("--verb=get", "--resource=secrets", f"--resource-name={secret}")
        self.clouds.plane.kubectl("create", "role", role, own, *only)
        self.clouds.plane.kubectl("create", "rolebinding", role, own, f"--role={role}", f"--user={OPERATOR}")

    def lend(self, pool: str) -> None:
        """Let a pool use the Secrets of this namespace."""
        places = (self.cloud.url, self.clouds.kong.url)
        self._users += [f"Spotpool/{self.name}/{pool}@{place}" for place in places]
        patch = {"metadata": {"annotations": {USABLE_BY: ",".join(self._users)}}}
        for secret in ("keys", "start", "kong"):
            self.api.send("PATCH", f"api/v1/namespaces/{self.name}/secrets/{secret}", patch, "merge")

    def document(self, pool: str, **spec: Any) -> Document:
        """A Spotpool."""
        base = {
            "region": "ap-hongkong",
            "availabilityZone": "ap-1",
            "instanceType": "GN7",
            "imageId": "img-1",
            "minimum": 0,
            "maximum": 3,
            "credentialsSecretRef": {"name": "keys"},
            "userDataSecretRef": {"name": "start"},
        }
        head = {"apiVersion": "headroom.dev/v1alpha1", "kind": "Spotpool"}
        return head | {"metadata": {"name": pool, "namespace": self.name}, "spec": base | spec}

    def create(self, pool: str, **spec: Any) -> None:
        """A Spotpool with keys that it may use."""
        self.lend(pool)
        self.api.send("POST", self.path(), self.document(pool, **spec))

    def edit(self, pool: str, **spec: Any) -> None:
        """Another spec."""
        self.api.send("PATCH", self.path(pool), {"spec": spec}, "merge")

    def join(self, pool: str, gpus: int = 0) -> list[str]:
        """Let the machines of a pool run and become nodes, labelled as the namespace is called; their names."""
        made = []
        for machine in self.machines(pool):
            machine.state = "RUNNING"
            name = f"node-{machine.name}"
            made.append(name)
            if any(each["metadata"]["name"] == name for each in self.api.items("api/v1/nodes")):
                continue
            offers = {"cpu": "8", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": str(gpus)}
            taint = {"key": "headroom.dev/spotpool", "value": self.name, "effect": "NoSchedule"}
            at = text(now_ms())
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as the kubelet says"}
            ready |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
            metadata = {
                "name": name,
                "annotations": {PLAYED: "fake"},
                "labels": {"kubernetes.io/hostname": name, "pool": self.name},
            }
            spec = {"providerID": f"qcloud:///800001/{machine.name}", "taints": [taint]}
            status = {"capacity": offers, "allocatable": offers, "conditions": [ready]}
            self.api.send("POST", "api/v1/nodes", {"metadata": metadata, "spec": spec, "status": status})
        return made

    def leave(self, nodes: list[str]) -> None:
        """Nodes go, as the cloud's own controller has them go once their machines have ended."""
        for name in nodes:
            self.api.send("DELETE", f"api/v1/nodes/{name}")

    def rekey(self, **values: str) -> None:
        """Other keys in the Secret for the cloud."""
        self.api.send("PATCH", f"api/v1/namespaces/{self.name}/secrets/keys", {"stringData": values}, "merge")

    def delete(self, pool: str) -> None:
        """It goes, once nothing keeps it."""
        self.api.send("DELETE", self.path(pool))

    # Looking at it

    def path(self, pool: str = "") -> str:
        """Where the API has it."""
        base = f"apis/headroom.dev/v1alpha1/namespaces/{self.name}/spotpools"
        return f"{base}/{pool}" if pool else base

    def pool(self, pool: str) -> Document:
        """As it stands now; empty if it is gone."""
        return next((each for each in self.api.items(self.path()) if each["metadata"]["name"] == pool), {})

    def uid(self, pool: str) -> str:
        """Of the pool as it stands now."""
        return str(self.pool(pool)["metadata"]["uid"])

    def slots(self, pool: str) -> list[Document]:
        """As they are written."""
        return list(self.pool(pool).get("status", {}).get("slots", ()))

    def machines(self, pool: str) -> list[CloudMachine]:
        """Those that exist, by the cloud's own books."""
        return self.cloud.alive(self.uid(pool))

    def ids(self, pool: str) -> set[str]:
        """The ids of those that exist."""
        return {each.name for each in self.machines(pool)}

    def tokens(self, pool: str) -> list[str]:
        """Of all launches that were asked for, in order."""
        uid = self.uid(pool)
        return [token for owner, token in list(self.cloud.tokens) if owner == uid]

    def says(self, pool: str, kind: str = "Ready") -> tuple[str, str, str]:
        """Whether a condition holds, why, and in which words."""
        status = self.pool(pool).get("status", {})
        words = [str(each["message"]) for each in status.get("conditions", ()) if each["type"] == kind]
        return *condition(status, kind), "".join(words)

    def are(self, pool: str, state: str, count: int) -> bool:
        """Whether so many slots are in that state, each with a machine, and there are no others."""
        found = self.slots(pool)
        return len(found) == count and all(each["state"] == state and each.get("instanceId") for each in found)

    def known(self, pool: str) -> set[str]:
        """The ids that its status names, by one look."""
        return {each["instanceId"] for each in self.slots(pool) if each.get("instanceId")}

    def wait_until_running(self, pool: str, count: int) -> None:
        """Until it has as many machines, and knows them."""
        wait_for(lambda: self.are(pool, "Running", count), f"{pool} has {count} machines")
        assert {each["instanceId"] for each in self.slots(pool)} == self.ids(pool)


@contextlib.contextmanager
def clouds_of(site: Site, folder: Path) -> Iterator[Clouds]:
    """The cloud, while it answers, and the operator, while it runs."""
    made = Clouds(site, folder)
    try:
        made.operator.start()
        yield made
        made.operator.close()
    finally:
        made.close()
