"""Announced pods on the full simulator: the machine of a CronJob is awake when its pods come, and does not go to sleep just before."""

from __future__ import annotations

from typing import Any

from tests.scenarios.power_stage import MINUTE, SECOND, Document, a_job, a_pod, a_pool, at, machines, nodes, play


def a_cron_job(schedule: str, gpus: int, runs_for: str, pods: int = 1, **spec: Any) -> Document:
    job = a_job("", gpus, runs_for, pods)["spec"]
    metadata = {"name": "nightly", "namespace": "lab"}
    given = {"schedule": schedule, "jobTemplate": {"spec": job}} | spec
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": given}


def test_the_machine_of_a_cron_job_is_awake_when_its_pods_come() -> None:
    """The scenario begins on the hour; a boot takes 90 s and may take 300 s."""
    pool = a_pool()
    job = at("1s", a_cron_job("10 * * * *", 8, "2m"))
    run = play([pool, *machines(pool, "Off")], [job], duration="30m")

    assert run.problems() == []
    assert run.commands() == [("Wake", "metal-1"), ("Sleep", "metal-1")]
    assert 5 * MINUTE <= run.when("Wake", "metal-1") <= 5 * MINUTE + 5 * SECOND
    [pod] = run.simulation.server.objects("Pod", "lab")
    started = pod["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"]
    assert started <= pod["metadata"]["creationTimestamp"].replace("10:00Z", "10:06Z")
    assert run.phases() == {pod["metadata"]["name"]: "Succeeded"}
    assert "fruitless" not in run.status()


def test_an_idle_machine_does_not_go_to_sleep_two_minutes_before_a_cron_job_is_due() -> None:
    """The pod ends after 3 min; the machine would sleep at 8 min, and the CronJob is due at 10."""
    pool = a_pool()
    steps = [at("10s", a_pod("first", 8, "3m")), at("20s", a_cron_job("10 * * * *", 8, "2m"))]
    run = play([pool, *machines(pool, "On"), *nodes(pool)], steps, duration="25m")

    assert run.problems() == []
    assert run.commands() == [("Sleep", "metal-1")]
    assert run.when("Sleep", "metal-1") > 12 * MINUTE
    assert set(run.phases().values()) == {"Succeeded"}


def test_a_cron_job_whose_pods_never_come_wakes_no_more_than_the_cap() -> None:
    """Its Jobs fail before they make a single one."""
    pool = a_pool(gpus=[8, 8, 8, 8], minOnSeconds=0, idleSeconds=60)
    job = at("1s", a_cron_job("*/10 * * * *", 8, "2m", pods=4))
    job["apply"]["spec"]["jobTemplate"]["spec"]["backoffLimit"] = -1
    run = play([pool, *machines(pool, "Off")], [job], duration="3h")

    assert run.problems() == []
    wakes = sum(command == "Wake" for command, _ in run.commands())
    assert 4 <= wakes <= 4 + 5 * 3
    assert run.condition("FruitlessWakes")[:2] == ("True", "NamespacesBarred")
