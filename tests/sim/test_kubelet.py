"""The cluster around the API server: pods find nodes, run, end and go; jobs make them."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from headroom.sim.apiserver import ApiServer
from headroom.sim.catalog import bare_definition
from headroom.sim.kubelet import PodLifecycle
from headroom.sim.owners import JOBSET_NAME
from tests.sim.world import START, node, pod, simulated

T = TypeVar("T")


def lived(work: Callable[[ApiServer], Awaitable[T]]) -> T:
    """Do `work` in a cluster that moves."""

    async def all_of_it(server: ApiServer) -> T:
        cluster = PodLifecycle(server)
        cluster.start()
        found = await work(server)
        cluster.stop()
        return found

    return simulated(all_of_it)


def of(server: ApiServer, name: str = "p") -> dict[str, Any]:
    found = server.object("Pod", "default", name)
    assert found is not None
    return found


def job(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"team": "a"}, "annotations": {"sim.headroom.dev/runs-for": "1m"}}}
    container = {"name": "main", "image": "none:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    inner = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 5}
    metadata = {"name": "j", "namespace": "default"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": spec | {"template": template | {"spec": inner}},
    }


def test_a_pod_is_placed_runs_and_succeeds() -> None:
    async def work(server: ApiServer) -> None:
        server.put(node())
        server.put(pod(runs_for="10m"))
        await server.clock.sleep(1)
        assert of(server)["spec"]["nodeName"] == "n1"
        assert of(server)["status"]["phase"] == "Pending"
        await server.clock.sleep(2)
        status = of(server)["status"]
        assert status["phase"] == "Running"
        assert status["containerStatuses"][0]["state"]["running"]["startedAt"] == "2026-01-01T00:00:02Z"
        assert {each["type"] for each in status["conditions"] if each["status"] == "True"} >= {"Ready", "PodScheduled"}
        await server.clock.sleep(600)
        ended = of(server)["status"]["containerStatuses"][0]["state"]["terminated"]
        assert of(server)["status"]["phase"] == "Succeeded"
        assert (ended["exitCode"], ended["finishedAt"]) == (0, "2026-01-01T00:10:02Z")

    lived(work)


def test_a_pod_without_room_says_so_and_is_placed_when_there_is_some() -> None:
    async def work(server: ApiServer) -> None:
        server.put(node(gpus=4))
        server.put(pod("big", gpus=3, runs_for="5m"))
        server.put(pod("next", gpus=2))
        await server.clock.sleep(5)
        [condition] = of(server, "next")["status"]["conditions"]
        assert condition["reason"] == "Unschedulable"
        assert condition["message"] == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        await server.clock.sleep(310)
        assert of(server, "next")["status"]["phase"] == "Running"

    lived(work)


def required(*expressions: dict[str, Any]) -> dict[str, Any]:
    """The affinity of a pod that may only go where these hold."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_selectors_taints_cordons_and_gates_keep_pods_away() -> None:
    async def work(server: ApiServer) -> dict[str, str]:
        server.put(node("a-cordoned", unschedulable=True))
        server.put(node("b-tainted", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]))
        labelled = node("c-labelled")
        labelled["metadata"]["labels"] = {"zone": "x"}
        server.put(labelled)
        tolerant, choosy, gated, drawn = pod("tolerant"), pod("choosy"), pod("gated"), pod("drawn")
        drawn["spec"]["affinity"] = required({"key": "zone", "operator": "Exists"})
        drawn["spec"]["tolerations"] = [{"operator": "Exists"}]
        tolerant["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        choosy["spec"]["nodeSelector"] = {"zone": "x"}
        gated["spec"]["schedulingGates"] = [{"name": "headroom.dev/budget"}]
        for each in (tolerant, choosy, gated, drawn, pod("plain")):
            server.put(each)
        await server.clock.sleep(5)
        return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in server.objects("Pod")}

    placed = lived(work)
    assert placed == {
        "tolerant": "b-tainted",
        "choosy": "c-labelled",
        "gated": "",
        "plain": "c-labelled",
        "drawn": "c-labelled",
    }


def test_a_node_that_is_not_ready_gets_no_pods_until_it_is() -> None:
    async def work(server: ApiServer) -> None:
        off = node()
        off["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        server.put(off)
        server.put(pod())
        await server.clock.sleep(60)
        assert "nodeName" not in of(server)["spec"]
        server.put(off | {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        await server.clock.sleep(5)
        assert of(server)["status"]["phase"] == "Running"

    lived(work)


def test_a_deleted_pod_ends_after_its_grace_or_sooner() -> None:
    async def work(server: ApiServer) -> list[int]:
        server.put(node())
        server.put(pod("slow"))
        server.put(pod("quick", stops_in="3s"))
        await server.clock.sleep(10)
        gone = []
        server.store.subscribe(lambda change: gone.append(server.clock.now() - START) if change.after is None else None)
        for name in ("slow", "quick"):
            server.do("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        await server.clock.sleep(60)
        return gone

    assert lived(work) == [13_000, 20_000]


def test_the_pods_of_a_node_that_is_gone_go_too() -> None:
    async def work(server: ApiServer) -> None:
        server.put(node())
        server.put(pod())
        await server.clock.sleep(5)
        server.do("DELETE", "/api/v1/nodes/n1")
        await server.clock.sleep(30)
        assert of(server)["status"]["phase"] == "Running"
        await server.clock.sleep(20)
        assert server.objects("Pod") == []

    lived(work)


def test_a_job_makes_its_pods_and_completes() -> None:
    async def work(server: ApiServer) -> dict[str, Any]:
        server.put(node())
        server.put(job(completions=5, parallelism=2))
        await server.clock.sleep(30)
        assert len(server.objects("Pod")) == 2
        await server.clock.sleep(600)
        found = server.object("Job", "default", "j")
        assert found is not None
        assert len(server.objects("Pod")) == 5
        server.do("DELETE", "/apis/batch/v1/namespaces/default/jobs/j")
        assert server.objects("Pod") == []
        status: dict[str, Any] = found["status"]
        return status

    status = lived(work)
    assert status["succeeded"] == 5
    assert [each["type"] for each in status["conditions"] if each["status"] == "True"] == ["Complete"]


def test_a_finished_job_goes_with_its_pods_when_its_time_to_live_is_over() -> None:
    async def work(server: ApiServer) -> list[tuple[int, int]]:
        server.put(node())
        server.put(job(completions=2, parallelism=2, ttlSecondsAfterFinished=300))
        counts = []
        for seconds in (30, 300, 60):  # the pods start after 2 s and run for a minute
            await server.clock.sleep(seconds)
            counts.append((len(server.objects("Job")), len(server.objects("Pod"))))
        return counts

    assert lived(work) == [(1, 2), (1, 2), (0, 0)]


def test_a_suspended_job_loses_its_pods_and_gets_them_back() -> None:
    async def work(server: ApiServer) -> list[int]:
        path = "/apis/batch/v1/namespaces/default/jobs/j"
        server.put(node())
        server.put(job(completions=2, parallelism=2))
        await server.clock.sleep(10)
        counts = [len(server.objects("Pod"))]
        server.do("PATCH", path, {"spec": {"suspend": True}})
        await server.clock.sleep(20)
        counts.append(len(server.objects("Pod")))
        server.do("PATCH", path, {"spec": {"suspend": False}})
        await server.clock.sleep(10)
        return [*counts, len(server.objects("Pod"))]

    assert lived(work) == [2, 0, 2]


def test_being_suspended_is_no_failure_of_a_job() -> None:
    async def work(server: ApiServer) -> dict[str, Any]:
        path = "/apis/batch/v1/namespaces/default/jobs/j"
        server.put(node())
        server.put(job(completions=1, parallelism=1, backoffLimit=0))
        for suspend in (True, False, True, False):
            await server.clock.sleep(20)
            server.do("PATCH", path, {"spec": {"suspend": suspend}})
        await server.clock.sleep(120)
        found: dict[str, Any] = (server.object("Job", "default", "j") or {})["status"]
        return found

    status = lived(work)
    assert (status["succeeded"], status.get("failed")) == (1, None)


def test_a_deadline_ends_a_pod() -> None:
    async def work(server: ApiServer) -> str:
        server.put(node())
        late = pod(runs_for="10m")
        late["spec"]["activeDeadlineSeconds"] = 60
        server.put(late)
        await server.clock.sleep(60)
        assert of(server)["status"]["phase"] == "Running"
        await server.clock.sleep(5)
        return str(of(server)["status"]["phase"])

    assert lived(work) == "Failed"


def test_a_replica_set_makes_its_pods_anew() -> None:
    async def work(server: ApiServer) -> list[int]:
        path = "/apis/apps/v1/namespaces/default/replicasets/r"
        template = job()["spec"]["template"] | {"metadata": {"labels": {"team": "a"}}}
        spec = {"replicas": 2, "selector": {"matchLabels": {"team": "a"}}, "template": template}
        metadata = {"name": "r", "namespace": "default"}
        server.put(node())
        server.put({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec})
        await server.clock.sleep(10)
        first = {each["metadata"]["uid"] for each in server.objects("Pod")}
        server.do("DELETE", f"/api/v1/namespaces/default/pods/{server.objects('Pod')[0]['metadata']['name']}")
        await server.clock.sleep(10)
        second = {each["metadata"]["uid"] for each in server.objects("Pod")}
        server.do("PATCH", path, {"spec": {"replicas": 1}})
        await server.clock.sleep(10)
        return [len(first), len(second), len(first & second), len(server.objects("Pod"))]

    assert lived(work) == [2, 2, 1, 1]


def test_a_job_set_makes_jobs_that_are_suspended_and_done_together() -> None:
    async def work(server: ApiServer) -> list[int]:
        definition = bare_definition("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True)
        server.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
        part = {"name": "w", "replicas": 2, "template": {"spec": job(completions=1, parallelism=1)["spec"]}}
        server.put(node())
        kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
        server.do("POST", path, kind | {"metadata": {"name": "s"}, "spec": {"replicatedJobs": [part]}})
        await server.clock.sleep(10)
        counts = [len(server.objects("Pod"))]
        labels = {each["metadata"]["labels"][JOBSET_NAME] for each in server.objects("Pod")}
        assert labels == {"s"}
        for suspend in (True, False):
            server.do("PATCH", f"{path}/s", {"spec": {"suspend": suspend}})
            await server.clock.sleep(20)
            counts.append(len(server.objects("Pod")))
        await server.clock.sleep(120)
        conditions = (server.object("JobSet", "default", "s") or {})["status"]["conditions"]
        return [*counts, sum(each["type"] == "Completed" for each in conditions)]

    assert lived(work) == [2, 0, 2, 1]
