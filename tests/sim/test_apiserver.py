"""What the simulated API server does beyond the contract that it shares with a real one: stage, trace, kinds that come and go."""

import asyncio
import json
import random

import pytest

from headroom.adapters.kube.transport import APPLY_PATCH, StreamRefused
from headroom.model.errors import Unavailable
from headroom.sim.answers import ErrorAnswer
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, run_virtual
from headroom.sim.rights import Right
from tests.sim.world import BUDGETS, MAPS, PODS, START, ask, budget, config_map, node, pod, read, simulated


def test_the_same_seed_gives_the_same_identities_and_trace() -> None:
    async def work(server: ApiServer) -> tuple[str, str]:
        client = server.transport()
        made = read(await ask(client, "POST", BUDGETS, budget()))
        return made["metadata"]["uid"], server.trace.digest()

    assert simulated(work) == simulated(work)
    assert simulated(work) != simulated(work, seed=2)


def test_only_writes_are_traced_with_their_time_actor_and_status() -> None:
    async def work(server: ApiServer) -> list[str]:
        client = server.transport(actor="me")
        await ask(client, "GET", MAPS)
        await server.clock.sleep(1.5)
        await ask(client, "POST", MAPS, config_map("a"), dryRun="All")
        await ask(client, "DELETE", f"{MAPS}/zz")
        return [" ".join(str(each).split()[:4] + str(each).split()[5:]) for each in server.trace.by("me")]

    assert simulated(work) == [
        f"2026-01-01T00:00:01.500Z me POST {MAPS}?dryRun=All 201",
        f"2026-01-01T00:00:01.500Z me DELETE {MAPS}/zz 404",
    ]


def test_the_stage_is_set_with_status_identity_and_age() -> None:
    async def work(server: ApiServer) -> None:
        old = pod() | {"status": {"phase": "Running"}}
        old["metadata"] |= {"uid": "u-1", "creationTimestamp": "2025-01-01T00:00:00Z", "namespace": "elsewhere"}
        old["metadata"] |= {"resourceVersion": "99", "ownerReferences": [{"kind": "Job", "name": "j", "uid": "gone"}]}
        old["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
        server.put(old)
        found = server.object("Pod", "elsewhere", "p")
        assert found is not None
        assert found["metadata"]["uid"] == "u-1"
        assert found["metadata"]["creationTimestamp"] == "2025-01-01T00:00:00Z"
        assert found["status"]["phase"] == "Running"
        server.put(old | {"status": {"phase": "Succeeded"}})
        again = server.object("Pod", "elsewhere", "p")
        assert again is not None
        assert again["status"]["phase"] == "Succeeded"
        with pytest.raises(ErrorAnswer):
            server.put({"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "x"}})

    simulated(work)


def test_a_kind_is_served_as_long_as_its_definition_is_there() -> None:
    async def work(server: ApiServer) -> None:
        client = server.transport()
        await ask(client, "POST", BUDGETS, budget())
        definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuworkloadbudgets.headroom.dev"
        copy = read(await ask(client, "GET", definition))
        assert (await ask(client, "DELETE", definition)).status == 200
        assert (await ask(client, "GET", BUDGETS)).status == 404
        with pytest.raises(StreamRefused) as refused:
            await anext(aiter(client.stream(BUDGETS, query={"watch": "1"}, idle=5)))
        assert refused.value.reply.status == 404
        again = {"apiVersion": copy["apiVersion"], "kind": copy["kind"], "spec": copy["spec"]}
        again["metadata"] = {"name": copy["metadata"]["name"]}
        assert (await ask(client, "POST", definition.rsplit("/", 1)[0], again)).status == 201
        assert read(await ask(client, "GET", BUDGETS))["items"] == []

    simulated(work)


def test_old_history_is_forgotten_by_itself_in_the_end() -> None:
    async def work(server: ApiServer) -> str:
        client = server.transport()
        await ask(client, "POST", MAPS, config_map("a"))
        version = read(await ask(client, "GET", MAPS))["metadata"]["resourceVersion"]
        for number in range(1200):
            await server.clock.sleep(2)
            await ask(client, "PATCH", f"{MAPS}/a", {"data": {"n": str(number)}})
        line = await anext(aiter(client.stream(MAPS, query={"watch": "1", "resourceVersion": version}, idle=5)))
        return str(json.loads(line)["object"]["reason"])

    assert simulated(work) == "Expired"


def test_a_quiet_watch_is_kept_alive_by_bookmarks_or_reported_silent() -> None:
    async def work(server: ApiServer) -> None:
        client = server.transport()
        seen = [
            (json.loads(line)["type"], server.clock.now() - START)
            async for line in client.stream(
                MAPS, query={"allowWatchBookmarks": "true", "timeoutSeconds": "200"}, idle=130
            )
        ]
        assert [kind for kind, _ in seen] == ["BOOKMARK"] * 3
        assert [at for _, at in seen] == [120_000, 180_000, 198_000]
        with pytest.raises(Unavailable, match="nothing was received for 20s"):
            async for _ in client.stream(MAPS, query={}, idle=20):
                pass

    simulated(work)


def test_rights_can_be_lost_and_tokens_expire_while_it_runs() -> None:
    async def work(server: ApiServer) -> list[int]:
        reads = Right(verbs=("get", "list"), resources=("configmaps",))
        client = server.transport("tenant", rights=(reads,))
        user = server.users["tenant"]
        seen = [(await ask(client, "GET", MAPS)).status, (await ask(client, "POST", MAPS, config_map("a"))).status]
        user.rights = ()
        seen.append((await ask(client, "GET", MAPS)).status)
        user.rights, user.expires_ms = None, server.clock.now() + 1000
        seen.append((await ask(client, "GET", MAPS)).status)
        await server.clock.sleep(1)
        return [*seen, (await ask(client, "GET", MAPS)).status]

    assert simulated(work) == [200, 403, 403, 200, 401]


def test_an_admission_hook_may_change_or_refuse_an_object() -> None:
    async def work(server: ApiServer) -> None:
        def gate(type_: object, verb: str, body: dict[str, object]) -> dict[str, object]:
            return body | {"data": {"gated": verb}} if body["kind"] == "ConfigMap" else body

        server.writer.hooks.append(gate)
        made = read(await ask(server.transport(), "POST", MAPS, config_map("a")))
        assert made["data"] == {"gated": "create"}

    simulated(work)


def test_requests_of_many_clients_interleave_in_a_fixed_order() -> None:
    async def work(server: ApiServer) -> list[str]:
        async def client(name: str) -> None:
            to = server.transport(actor=name, latency_ms=5)
            for number in range(3):
                await ask(to, "POST", MAPS, config_map(f"{name}-{number}"))

        await asyncio.gather(*(client(name) for name in "cab"))
        return [each.actor for each in server.trace.writes if each.actor in "abc"]

    assert simulated(work) == list("cab") * 3


def test_an_apply_of_yaml_is_understood() -> None:
    async def work(server: ApiServer) -> int:
        text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: b}\n"
        query = {"fieldManager": "me"}
        reply = await server.transport().request("PATCH", f"{MAPS}/y", query=query, body=text, content_type=APPLY_PATCH)
        return reply.status

    assert simulated(work) == 201


def test_thousands_of_pods_are_listed_and_watched_at_a_modest_cost() -> None:
    async def many() -> int:
        server = ApiServer(SimClock(START), random.Random(1))
        client = server.transport()
        for number in range(2000):
            server.do("POST", PODS, pod(f"p-{number}"))
        page = read(await ask(client, "GET", PODS, limit="500"))
        assert page["metadata"]["remainingItemCount"] == 1500
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
        count = 0
        async for line in client.stream(PODS, query=query, idle=5):
            count += 1
            if b"initial-events-end" in line:
                break
        return count

    assert run_virtual(many) == 2001


def test_nodes_and_their_status_are_written_apart() -> None:
    async def work(server: ApiServer) -> None:
        client = server.transport()
        await ask(client, "POST", "/api/v1/nodes", node())
        patched = read(await ask(client, "PATCH", "/api/v1/nodes/n1", {"status": {"allocatable": {"cpu": "1"}}}))
        assert patched["status"]["allocatable"]["cpu"] == "8"
        patched = read(await ask(client, "PATCH", "/api/v1/nodes/n1/status", {"spec": {"unschedulable": True}}))
        assert "unschedulable" not in patched["spec"]

    simulated(work)
