"""An auditor of switched machines who knows the truth: every command, every cordon and every pod, at the moment it happens.

It looks at the simulated API server and at the machines themselves, and shares no code with what it judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from headroom.model.times import text
from headroom.sim.apistore import Change
from headroom.sim.power import SwitchCommand
from headroom.sim.scenario import Simulation

CORDONED_BY = "headroom.dev/cordoned-by"
SETTLE = 10_000
"""A cordon stands for so long before a machine is switched off."""
ABORT = 5 * 60_000
"""And after so long it is lifted, or the machine is off."""
PAUSE = 30_000
"""Nothing is asked for again before so long, even if it failed."""
UNTAKEN = 60_000
"""A machine that is still off so long after its wake is told again."""
HOUR = 3_600_000
NEVER = 2**60


@dataclass
class Span:
    """A stretch of time."""

    begin: int
    end: int = NEVER

    def has(self, at: int) -> bool:
        return self.begin <= at < self.end


@dataclass
class Seen:
    """What was true when a command arrived."""

    told: SwitchCommand
    power: str
    ready: bool
    cordoned_by: str
    cordoned_since: int
    pods: list[str]
    may_act: bool
    """Whether its sender led, with time left on its lease, and saw everything."""
    policy: dict[str, Any]
    machines: int
    """Of its pool."""
    on: int
    """Machines of the pool that are on, ready and neither going nor kept free."""
    going: int
    """That are on their way to sleep, this one included."""
    booting: int
    """That boot, this one not included."""


@dataclass
class Track:
    """One machine through time."""

    cordons: list[Span] = field(default_factory=list)
    """When its node was cordoned by a pool."""
    ready: list[Span] = field(default_factory=list)


class PowerAuditor:
    """Takes note of everything; `problems` judges it."""

    def __init__(self, simulation: Simulation, patience: int) -> None:
        self._simulation, self._patience = simulation, patience
        self.tracks: dict[str, Track] = {}
        self.seen: list[Seen] = []
        self.bound: dict[str, int] = {}
        """When each pod got its node, by name."""
        self.end = 0
        simulation.server.store.subscribe(self._notice)
        simulation.machines.on_told.append(self._heard)

    def close(self) -> None:
        """The run is over."""
        self.end = self._simulation.clock.now()

    # --- taking note ------------------------------------------------------------------------------------------------------------

    def _notice(self, change: Change) -> None:
        if change.type.kind == "Node":
            self._node(change)
        elif change.type.kind == "Pod" and change.after is not None and change.after.body["spec"].get("nodeName"):
            self.bound.setdefault(change.after.key[1], change.at)

    def _node(self, change: Change) -> None:
        record = change.after or change.before
        assert record is not None
        track = self.tracks.setdefault(record.key[1], Track())
        body = change.after.body if change.after else {}
        _turn(track.cordons, _cordoned_by(body) != "", change.at)
        _turn(track.ready, _is_ready(body), change.at)

    def _heard(self, told: SwitchCommand) -> None:
        server = self._simulation.server
        node = server.object("Node", "", told.machine) or {}
        pool = server.object("PowerPool", "", told.pool) or {"spec": {"machines": []}}
        names = [each["name"] for each in pool["spec"]["machines"]]
        cordons = self.tracks.get(told.machine, Track()).cordons
        self.seen.append(
            Seen(
                told=told,
                power=self._simulation.machines.power(told.machine).power,
                ready=_is_ready(node),
                cordoned_by=_cordoned_by(node),
                cordoned_since=cordons[-1].begin if cordons else NEVER,
                pods=[each["metadata"]["name"] for each in server.objects("Pod") if _keeps_on(each, told.machine)],
                may_act=self._may_act(told),
                policy=pool["spec"].get("policy") or {},
                machines=len(names),
                on=sum(1 for name in names if self._is_on(name)),
                going=sum(1 for name in names if self._is_going(name)),
                booting=sum(1 for name in names if name != told.machine and self._boots(name)),
            )
        )

    def _may_act(self, told: SwitchCommand) -> bool:
        if self._simulation.clock.now() != told.at:
            return True  # it took its time on the way; what counts is when it was sent
        process: Any = self._simulation.operator(told.actor)
        return process is not None and process.leader.may_act() and process.port.complete

    def _is_on(self, name: str) -> bool:
        node = self._simulation.server.object("Node", "", name) or {}
        return _is_ready(node) and not _cordoned_by(node) and self._simulation.machines.power(name).power == "On"

    def _is_going(self, name: str) -> bool:
        node = self._simulation.server.object("Node", "", name) or {}
        return bool(_cordoned_by(node)) and self._simulation.machines.power(name).power == "On"

    def _boots(self, name: str) -> bool:
        node = self._simulation.server.object("Node", "", name) or {}
        return self._simulation.machines.power(name).power == "On" and not _is_ready(node)

    # --- judging ----------------------------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """All that is wrong, in words; each check is named after the invariant it watches."""
        checks = (self.harm, self.p_s1, self.p_s2, self.p_s3, self.p_s5, self.p_s7, self.g_s1)
        return [f"{check.__name__}: {each}" for check in checks for each in check()]

    def harm(self) -> Iterator[str]:
        """No pod is lost because a machine was switched off by an operator."""
        for each in self._simulation.machines.lost:
            if each.by:
                yield f"pod {each.pod} was on {each.machine} when it went dark at {text(each.at)}"

    def p_s1(self) -> Iterator[str]:
        """A machine is switched off only if its node was cordoned by us for a while, and empty."""
        for seen in self.sleeps():
            who, at = seen.told.machine, seen.told.at
            if seen.pods:
                yield f"{who} was sent to sleep at {text(at)} under {', '.join(seen.pods)}"
            if not seen.ready:
                continue
            if seen.cordoned_by != f"PowerPool/{seen.told.pool}":
                yield f"{who} was sent to sleep at {text(at)}, and its node was not cordoned by its pool"
            elif at - seen.cordoned_since < SETTLE:
                yield f"{who} was sent to sleep at {text(at)}, {at - seen.cordoned_since} ms after the cordon"

    def p_s2(self) -> Iterator[str]:
        """One transition at a time; dwell times; no more toggles in an hour than allowed."""
        for name, seen in self._by_machine().items():
            for one, other in pairwise(seen):
                gap, policy = other.told.at - one.told.at, other.policy
                pair = (
                    f"{name}: {one.told.command} at {text(one.told.at)}, {other.told.command} at {text(other.told.at)}"
                )
                ready = any(one.told.at <= span.begin <= other.told.at for span in self.tracks.get(name, Track()).ready)
                least = policy.get("bootTimeoutSeconds", 900) * 1000
                if one.told.command == "Wake" and other.told.command == "Sleep" and not ready and gap < least:
                    yield f"{pair}, before it had booted"
                words = (one.told.command, other.told.command)
                word = {("Wake", "Sleep"): "minOnSeconds", ("Sleep", "Wake"): "minOffSeconds"}.get(words)
                if word and gap < policy.get(word, 60 if word == "minOffSeconds" else 0) * 1000:
                    yield f"{pair}, against {word}"
            moments = [each.told.at for each in seen]
            most = seen[-1].policy.get("togglesPerHour", 6)
            for place, at in enumerate(moments):
                within = sum(1 for each in moments[place:] if each < at + HOUR)
                if within > most:
                    yield f"{name} was switched {within} times in the hour from {text(at)}"

    def p_s3(self) -> Iterator[str]:
        """One intent is sent once, and the next one only when the boot timeout, or the pause after a failure, is over.

        Only a wake that did not happen is sent again, after a minute: the machine is still off when it arrives.
        """
        keys = Counter(told.key for told in self._simulation.machines.sent)
        first = {seen.told.key: seen.told.at for seen in reversed(self.seen)}
        again = Counter(
            seen.told.key
            for seen in self.seen
            if seen.told.command == "Wake" and seen.power == "Off" and seen.told.at >= first[seen.told.key] + UNTAKEN
        )
        for key, count in keys.items():
            if count > 1 + again[key]:
                yield f"{key} was sent {count} times"
        last: dict[tuple[str, str], int] = {}
        for told in self._simulation.machines.sent:
            before = last.get((told.machine, told.command))
            if before is not None and told.at - before < PAUSE:
                yield f"{told.machine}: {told.command} was sent at {text(before)} and again at {text(told.at)}"
            last[told.machine, told.command] = told.at

    def p_s5(self) -> Iterator[str]:
        """Enough machines stay on, and not too many change at a time."""
        for seen in self.sleeps():
            most = seen.policy.get("maxConcurrentSleeps") or max(1, seen.machines // 5)
            if seen.on < seen.policy.get("minOn", 0):
                yield f"{seen.told.machine} sent to sleep at {text(seen.told.at)}: only {seen.on} are left"
            if seen.going > most:
                yield f"{seen.told.machine} sent to sleep at {text(seen.told.at)}: {seen.going} go at a time"
        for seen in self.seen:
            limit = seen.policy.get("maxConcurrentWakes")
            if seen.told.command == "Wake" and limit is not None and seen.booting + 1 > limit:
                yield f"{seen.told.machine} woken at {text(seen.told.at)}: {seen.booting + 1} boot at a time"

    def p_s7(self) -> Iterator[str]:
        """What we cordon is off or let in again before long."""
        for name, track in self.tracks.items():
            for span in track.cordons:
                dark = [ready.end for ready in track.ready if ready.has(span.begin)]
                if not dark:
                    continue  # it was not ready, so nobody could have used it
                over = min([span.end, self.end, *dark])
                if over - span.begin > ABORT + self._patience:
                    yield f"{name} was cordoned at {text(span.begin)} and stayed so until {text(over)}"

    def g_s1(self) -> Iterator[str]:
        """Whoever sends a command leads, has time left on the lease, and sees everything."""
        for seen in self.seen:
            if not seen.may_act:
                yield f"{seen.told.actor} sent {seen.told.command} to {seen.told.machine} at {text(seen.told.at)}"

    def sleeps(self) -> list[Seen]:
        """Every command to sleep."""
        return [each for each in self.seen if each.told.command == "Sleep"]

    def _by_machine(self) -> dict[str, list[Seen]]:
        found: dict[str, list[Seen]] = {}
        for each in self.seen:
            found.setdefault(each.told.machine, []).append(each)
        return found


def _turn(spans: list[Span], is_so: bool, at: int) -> None:
    """Begin a span, or end the one that stands."""
    stands = bool(spans) and spans[-1].end == NEVER
    if is_so and not stands:
        spans.append(Span(at))
    elif not is_so and stands:
        spans[-1].end = at


def _cordoned_by(node: dict[str, Any]) -> str:
    """Which pool keeps a node free; empty if none does."""
    notes = (node.get("metadata") or {}).get("annotations") or {}
    return str(notes.get(CORDONED_BY, "")) if (node.get("spec") or {}).get("unschedulable") else ""


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _keeps_on(pod: dict[str, Any], machine: str) -> bool:
    owners = {each.get("kind") for each in pod["metadata"].get("ownerReferences") or []}
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return pod["spec"].get("nodeName") == machine and not ended and not owners & {"DaemonSet", "Node"}
