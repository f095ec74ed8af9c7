"""A job controller: it makes a Job's pods, counts how they end, and takes them away while the Job is suspended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

from headroom.sim.answers import Body, ErrorAnswer
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Record
from headroom.sim.catalog import JOB, POD
from headroom.sim.rights import Actor

_ENDED: Final = ("Succeeded", "Failed")
_OVER: Final = ("Complete", "Completed", "Failed")


class Jobs:
    """All Jobs of the cluster."""

    def __init__(self, server: ApiServer, actor: Actor) -> None:
        self._server, self._actor = server, actor
        self._ends: dict[str, dict[str, str]] = {}
        """Job uid to the pods of it that ended, and how: they count on after they are deleted."""
        self._taken_away: set[str] = set()
        """Pods that went because their Job was suspended, which is no failure of theirs."""
        self._removals: dict[str, asyncio.TimerHandle] = {}
        """By Job uid: when those that are finished go."""

    def sync(self, record: Record) -> None:
        """Bring the pods of a Job to what it asks for."""
        job, spec = record.body, record.body["spec"]
        if job["metadata"].get("deletionTimestamp"):
            return
        if is_finished(job):
            self._plan_removal(record)
            return
        pods = [each for each in self._server.store.all(POD, record.key[0]) if belongs(each.body, record.uid)]
        ends = self._ends.setdefault(record.uid, {})
        for each in pods:
            if each.body["status"].get("phase") in _ENDED and each.uid not in self._taken_away:
                ends[each.uid] = each.body["status"]["phase"]
        active = [each for each in pods if each.uid not in ends and "deletionTimestamp" not in each.body["metadata"]]
        succeeded = sum(1 for phase in ends.values() if phase == "Succeeded")
        failed = len(ends) - succeeded
        completions = spec.get("completions")
        done = succeeded >= completions if completions is not None else succeeded > 0 and not active
        if spec.get("suspend"):
            for each in active:
                self._taken_away.add(each.uid)
                self._do("DELETE", POD.url(*each.key))
            active = []
        elif not done and failed <= spec.get("backoffLimit", 6):
            left = spec.get("parallelism", 1) if completions is None else completions - succeeded
            missing = min(spec.get("parallelism", 1), left) - len(active)
            for _ in range(max(0, missing)):
                self._do("POST", POD.url(record.key[0]), of_owner(record, "batch/v1"))
            self._report(record, len(active) + max(0, missing), succeeded, failed, done=done)
            return
        self._report(record, len(active), succeeded, failed, done=done)

    def stop(self) -> None:
        """Remove nothing more."""
        for timer in self._removals.values():
            timer.cancel()
        self._removals.clear()

    def _plan_removal(self, record: Record) -> None:
        """A finished Job that says for how long it shall be kept goes after that, and its pods with it."""
        seconds = record.body["spec"].get("ttlSecondsAfterFinished")
        if seconds is not None and record.uid not in self._removals:
            due = partial(self._remove, record.uid, record.key)
            self._removals[record.uid] = self._server.clock.call_later(seconds, due)

    def _remove(self, uid: str, key: tuple[str, str]) -> None:
        del self._removals[uid]
        self._ends.pop(uid, None)
        self._do("DELETE", JOB.url(*key), {"propagationPolicy": "Background", "preconditions": {"uid": uid}})

    def _do(self, method: str, path: str, document: Body | None = None) -> None:
        with suppress(ErrorAnswer):  # tried again with the next change
            self._server.do(method, path, document, actor=self._actor)

    def _report(self, record: Record, active: int, succeeded: int, failed: int, *, done: bool) -> None:
        job = record.body
        before = job.get("status") or {}
        status: Body = {"active": active or None, "succeeded": succeeded or None, "failed": failed or None}
        suspended, now = bool(job["spec"].get("suspend")), self._server.writer.now()
        conditions = {each["type"]: each for each in before.get("conditions") or []}
        verdicts = {"Suspended": suspended} if suspended or "Suspended" in conditions else {}
        if done:
            verdicts["Complete"] = True
            status["completionTime"] = before.get("completionTime") or now
        elif failed > job["spec"].get("backoffLimit", 6):
            verdicts["Failed"] = True
        for type_, verdict in verdicts.items():
            word = "True" if verdict else "False"
            if conditions.get(type_, {}).get("status") != word:
                conditions[type_] = {"type": type_, "status": word, "lastTransitionTime": now}
        if conditions:
            status["conditions"] = list(conditions.values())
        status["startTime"] = None if suspended else before.get("startTime") or now
        merged = {name: value for name, value in (before | status).items() if value is not None}
        if merged != before:
            self._do("PATCH", JOB.url(*record.key, "status"), {"metadata": {"uid": record.uid}, "status": status})


def is_finished(job: Body) -> bool:
    """Whether a Job or JobSet is over, one way or the other."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(each.get("type") in _OVER and each.get("status") == "True" for each in conditions)


def belongs(pod: Body, uid: str) -> bool:
    """Whether a pod is owned by the object of that uid."""
    return any(each.get("uid") == uid for each in pod["metadata"].get("ownerReferences") or [])


def of_owner(record: Record, api_version: str) -> Body:
    """A pod of an owner, by its template."""
    template = record.body["spec"]["template"]
    metadata = template.get("metadata") or {}
    owner: Body = {"apiVersion": api_version, "kind": record.type.kind, "name": record.key[1], "uid": record.uid}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    mine = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": mine | {"generateName": f"{record.key[1]}-", "ownerReferences": [owner]},
        "spec": template["spec"],
    }
