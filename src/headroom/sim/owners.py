"""The controllers of ReplicaSets and JobSets: what recreates pods as often as they go, and what makes several Jobs as one."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from headroom.sim.answers import Body, ErrorAnswer
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Record
from headroom.sim.catalog import JOB, POD
from headroom.sim.jobs import belongs, is_finished, of_owner
from headroom.sim.rights import Actor

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
_ENDED: Final = ("Succeeded", "Failed")


class ReplicaSets:
    """All ReplicaSets of the cluster."""

    def __init__(self, server: ApiServer, actor: Actor) -> None:
        self._server, self._actor = server, actor

    def sync(self, record: Record) -> None:
        """Have as many pods as are asked for."""
        if record.body["metadata"].get("deletionTimestamp"):
            return
        pods = [each for each in self._server.store.all(POD, record.key[0]) if belongs(each.body, record.uid)]
        active = [each for each in pods if _is_active(each.body)]
        wanted = record.body["spec"].get("replicas", 1)
        with suppress(ErrorAnswer):  # tried again with the next change
            for _ in range(wanted - len(active)):
                self._server.do("POST", POD.url(record.key[0]), of_owner(record, "apps/v1"), actor=self._actor)
            for each in active[wanted:]:
                self._server.do("DELETE", POD.url(*each.key), actor=self._actor)


def _is_active(pod: Body) -> bool:
    return pod["status"].get("phase") not in _ENDED and "deletionTimestamp" not in pod["metadata"]


class JobSets:
    """All JobSets of the cluster: Jobs that are suspended, resumed and done together."""

    def __init__(self, server: ApiServer, actor: Actor) -> None:
        self._server, self._actor = server, actor

    def sync(self, record: Record) -> None:
        """Have all its Jobs, suspended if it is."""
        if record.body["metadata"].get("deletionTimestamp") or is_finished(record.body):
            return
        parts = record.body["spec"].get("replicatedJobs") or []
        every = [(part, number) for part in parts for number in range(part.get("replicas", 1))]
        with suppress(ErrorAnswer):  # tried again with the next change
            jobs = [self._job(record, part, f"{record.key[1]}-{part['name']}-{number}") for part, number in every]
            if jobs and all(each is not None and is_finished(each.body) for each in jobs):
                done = {"type": "Completed", "status": "True", "lastTransitionTime": self._server.writer.now()}
                path = record.type.url(*record.key, "status")
                self._server.do("PATCH", path, {"status": {"conditions": [done]}}, actor=self._actor)

    def _job(self, record: Record, part: Body, name: str) -> Record | None:
        suspend = bool(record.body["spec"].get("suspend"))
        found = self._server.store.get(JOB, record.key[0], name)
        if found is None:
            self._server.do(
                "POST", JOB.url(record.key[0]), _job(record, part, name, suspend=suspend), actor=self._actor
            )
        elif bool(found.body["spec"].get("suspend")) != suspend and not is_finished(found.body):
            self._server.do("PATCH", JOB.url(*found.key), {"spec": {"suspend": suspend}}, actor=self._actor)
        return found


def _job(record: Record, part: Body, name: str, *, suspend: bool) -> Body:
    spec = part["template"]["spec"]
    template, label = spec["template"], {JOBSET_NAME: record.key[1]}
    metadata = template.get("metadata") or {}
    metadata = metadata | {"labels": (metadata.get("labels") or {}) | label}
    owner = {"apiVersion": record.type.api_version, "kind": "JobSet", "name": record.key[1], "uid": record.uid}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": label, "ownerReferences": [owner | {"controller": True}]},
        "spec": spec | {"suspend": suspend, "template": template | {"metadata": metadata}},
    }
