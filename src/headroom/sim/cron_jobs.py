"""A cronjob controller: it makes a Job at each moment of a CronJob's schedule, and says which of them are not finished."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

from headroom.core.demand import first_run
from headroom.model import times
from headroom.sim.answers import Body, ErrorAnswer
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Record
from headroom.sim.catalog import JOB
from headroom.sim.jobs import belongs, is_finished
from headroom.sim.rights import Actor

REACH_MS: Final = times.HOUR
"""So far ahead it looks for the next run, and then again."""


class CronJobs:
    """All CronJobs of the cluster."""

    def __init__(self, server: ApiServer, actor: Actor) -> None:
        self._server, self._actor = server, actor
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """By uid: the next run, or when to look for it."""

    def sync(self, record: Record) -> None:
        """Say which Jobs run, and wait for the next run."""
        self._report(record, {})
        if timer := self._timers.pop(record.uid, None):
            timer.cancel()
        spec, now = record.body["spec"], self._server.clock.now()
        last = (record.body.get("status") or {}).get("lastScheduleTime")
        begun = times.moment(last or record.body["metadata"]["creationTimestamp"]) or now
        zone = spec.get("timeZone") or ""
        run = first_run(spec["schedule"], zone, begun, max(begun, now - times.SECOND), now + REACH_MS)
        due = partial(self._turn, record, run)
        wait = (now + REACH_MS if run is None else run) - now
        self._timers[record.uid] = self._server.clock.call_later(wait / times.SECOND, due)

    def stop(self) -> None:
        """Make nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _turn(self, seen: Record, run: int | None) -> None:
        record = self._server.store.get(seen.type, *seen.key)
        if record is None or record.uid != seen.uid:
            return
        spec = record.body["spec"]
        skips = spec.get("concurrencyPolicy") == "Forbid" and self._active(record)
        if run is not None and not spec.get("suspend") and not skips:
            self._do("POST", JOB.url(record.key[0]), _job(record, run))
            self._report(record, {"lastScheduleTime": times.text(run)})
        self.sync(self._server.store.get(seen.type, *seen.key) or record)

    def _active(self, record: Record) -> list[Body]:
        mine = [each for each in self._server.store.all(JOB, record.key[0]) if belongs(each.body, record.uid)]
        return [
            {"apiVersion": "batch/v1", "kind": "Job", "namespace": each.key[0], "name": each.key[1], "uid": each.uid}
            for each in mine
            if not is_finished(each.body)
        ]

    def _report(self, record: Record, more: Body) -> None:
        before = record.body.get("status") or {}
        status = before | more | {"active": self._active(record)}
        if status != {"active": []} | before:
            self._do("PATCH", record.type.url(*record.key, "status"), {"status": status})

    def _do(self, method: str, path: str, document: Body) -> None:
        with suppress(ErrorAnswer):  # tried again with the next change
            self._server.do(method, path, document, actor=self._actor)


def _job(record: Record, run: int) -> Body:
    template = record.body["spec"]["jobTemplate"]
    owner: Body = {"apiVersion": "batch/v1", "kind": "CronJob", "name": record.key[1], "uid": record.uid}
    name = f"{record.key[1]}-{run // times.MINUTE}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "ownerReferences": [owner | {"controller": True}]},
        "spec": template["spec"],
    }
