"""Plays a script: carries its events out one by one, lets everything heal at the end, and says what went wrong."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, structs

from bench.pools.checks import Checks
from bench.pools.processes import REF, Planner, Process, Violation
from bench.pools.scripts import Event, Script
from bench.pools.stage import TYPE, ZONES, Stage
from headroom.core import PLANS
from headroom.model import times
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision
from headroom.model.world import World
from headroom.sim.cloud import SimMachine

PLAN: Final = next(plan for plan in PLANS if REF.kind in plan.kinds)
PATIENCE_MS: Final = 150 * times.MINUTE
"""After everything has healed: the longest rests, and an hour until purchases are free again."""
ROUNDS: Final = (10, 10, 20, 40, 40, 60, 60, 120, 120)
LONG_ROUND: Final = 240
"""Seconds between the later looks; a list must not be older than five minutes."""
LONGEST_NOTICE: Final = 130
_OF_PLAYER: Final = frozenset(
    [
        "wait",
        "crash",
        "start",
        "see",
        "look",
        "decide",
        "act",
        "work",
        "reclaim",
        "fail",
        "halt",
        "join",
        "busy",
        "stock",
        "flicker",
        "price",
        "quota",
        "sabotage",
        "forget",
        "stopped",
        "foreign",
    ]
)
"""Events of the player; the others are the stage's."""


class Finding(Struct, frozen=True, kw_only=True):
    """What went wrong in a run, and where."""

    rule: str
    what: str
    at: int
    """The number of the event."""


def ours(world: World) -> Decision | None:
    """The production plan."""
    return next((it for it in PLAN.decide(world, EVERYTHING) if it.resource == REF), None)


def play(script: Script, planner: Planner = ours) -> Finding | None:
    """Play a script to its end; None if all was well."""
    return run(Player(script, planner), script)


def run(player: Player, script: Script) -> Finding | None:
    """Let a player play a script."""
    try:
        for place, event in enumerate(script.events):
            player.place = place
            player.do(event)
        player.place = len(script.events)
        player.heal()
    except Violation as found:
        return Finding(rule=found.rule, what=str(found), at=player.place)
    return None


class Player:
    """One run."""

    def __init__(self, script: Script, planner: Planner = ours) -> None:
        self.stage = stage = Stage(dict(script.spec), script.skews, wire=script.wire)
        stage.cloud.clock_off_ms = script.cloud_clock_ms
        self.checks = stage.watch = Checks(stage)
        self.planner, self.joins = planner, script.joins
        self.place = 0

    def do(self, event: Event) -> None:
        """Let one event happen."""
        name, *given = event
        getattr(self if name in _OF_PLAYER else self.stage, name)(*given)
        if name not in ("work", "act", "wait"):  # these check by themselves, after each effect
            self.checks.stands()

    # --- time and processes ---------------------------------------------------------------------------------------------------

    def wait(self, seconds: int) -> None:
        self.stage.pass_time(seconds * times.SECOND)
        if self.joins:
            self._kubelets()

    def _kubelets(self) -> None:
        for machine in self.stage.ours():
            name = f"node-{machine.id}"
            if self.stage.nodes.get(name) is None and machine.state(self.stage.now - times.MINUTE) == "RUNNING":
                self.stage.join(machine, True)
        for node in list(self.stage.nodes):
            if not self.stage.cloud.is_alive(node.uid):
                self.stage.nodes.remove(node.name)
                for pod in [pod for pod in self.stage.pods if pod.node == node.name]:
                    self.stage.pods.remove(pod.uid)
        self.stage.schedule()

    def _process(self, number: int) -> Process:
        return self.stage.processes[number % len(self.stage.processes)]

    def crash(self, number: int) -> None:
        self._process(number).alive = False

    def start(self, number: int) -> None:
        process = self._process(number)
        if not process.alive:
            process.alive = True
            process.begin()

    def see(self, number: int) -> None:
        self._process(number).view = self.stage.pool

    def look(self, number: int, lag: int, by_id: int, wrong: str) -> None:
        process, stage = self._process(number), self.stage
        if not process.alive or process.view is None:
            return
        stage.lags.extend((lag * times.SECOND, by_id * times.SECOND))
        stage.wrongs = {wrong: "Throttled"} if wrong else {}  # type: ignore[dict-item]  # a verb
        process.clouds.look(process.view)
        stage.wrongs = {}
        stage.lags.clear()

    def decide(self, number: int) -> None:
        process = self._process(number)
        if process.alive:
            process.decide(self.planner)

    def act(self, number: int, wrong: str) -> None:
        self.stage.act(self._process(number), wrong)

    def work(self, number: int, wrongs: tuple[str, ...]) -> None:
        process, done = self._process(number), 0
        while process.work and process.alive:
            self.stage.act(process, wrongs[done] if done < len(wrongs) else "")
            done += 1

    # --- what happens to the cloud and the pool -------------------------------------------------------------------------------

    def _pick(self, number: int) -> SimMachine | None:
        alive = self.stage.ours()
        return alive[number % len(alive)] if alive else None

    def reclaim(self, number: int, notice: int) -> None:
        if (machine := self._pick(number)) is not None:
            self.stage.cloud.reclaim(machine.id, notice * times.SECOND)

    def fail(self, number: int) -> None:
        if (machine := self._pick(number)) is not None:
            self.stage.cloud.fail(machine.id)

    def halt(self, number: int) -> None:
        if (machine := self._pick(number)) is not None:
            self.stage.cloud.stop(machine.id)

    def join(self, number: int, ready: bool) -> None:
        if self.joins and (machine := self._pick(number)) is not None:
            self.stage.join(machine, ready)

    def busy(self, number: int, stubborn: bool) -> None:
        if self.joins and (machine := self._pick(number)) is not None:
            self.stage.busy(machine, stubborn)

    def stock(self, zone: str, count: int | None) -> None:
        if count is None:
            self.stage.cloud.stock.pop((TYPE, zone), None)
        else:
            self.stage.cloud.stock[TYPE, zone] = count

    def flicker(self) -> None:
        """Everything is sold out, or nothing any more."""
        stock = self.stage.cloud.stock
        sold = dict.fromkeys(((TYPE, zone) for zone in ZONES), 0)
        if any(count <= 0 for count in stock.values()):
            stock.clear()
        else:
            stock.update(sold)

    def price(self, zone: str, price: int) -> None:
        self.stage.cloud.prices[TYPE, zone] = price

    def quota(self, count: int | None) -> None:
        self.stage.cloud.quota = count

    def sabotage(self, on: bool) -> None:
        self.stage.cloud.sabotaged = lambda _order: on

    def forget(self, seconds: int) -> None:
        self.stage.cloud.forget_ms = seconds * times.SECOND

    def stopped(self, on: bool) -> None:
        self.stage.stopped = on

    def foreign(self, tags: dict[str, str]) -> None:
        self.stage.foreign(tags)

    # --- the end --------------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """All faults end, and the pool comes to what it should be, and stays so."""
        stage = self.stage
        stage.stopped, stage.cloud.quota = False, None
        stage.cloud.stock.clear()
        stage.cloud.prices = dict.fromkeys(stage.cloud.prices, 100_000)
        for zone in stage.spec["zones"]:
            stage.cloud.prices[TYPE, zone] = 100_000
        self.sabotage(False)
        if stage.pool is not None and stage.pool.spec.paused:
            stage.edit({"paused": False})
        for number in range(len(stage.processes)):
            self.start(number)
        self.wait(LONGEST_NOTICE)  # what was announced happens
        for node in list(stage.nodes):
            stage.nodes.put(structs.replace(node, ready=True, ready_since=stage.now, unready_since=None))
        began, rounds = stage.now, iter(ROUNDS)
        while (why := self.unsettled()) is not None:
            if stage.now - began > PATIENCE_MS:
                raise Violation("liveness", f"{PATIENCE_MS // times.MINUTE} minutes after all faults: {why}")
            self._round(next(rounds, LONG_ROUND))
        self._stays()

    def _round(self, seconds: int) -> None:
        self.wait(seconds)
        for number in range(len(self.stage.processes)):
            self.see(number)
            self.look(number, 0, 0, "")
            self.decide(number)
            self.work(number, ())

    def unsettled(self) -> str | None:
        """What is not yet as it should be."""
        stage, pool = self.stage, self.stage.pool
        left = {
            uid for uid in (f"uid-{number}" for number in range(1, stage.births + 1)) if pool is None or uid != pool.uid
        } - stage.forced
        for uid in left - self.checks.retained:
            if leaked := stage.left_by(uid):
                raise Violation("leak", f"{len(leaked)} machines of a pool that is gone: {leaked[0].id}")
        if pool is None:
            return None
        if pool.deleting:
            return "the pool that is deleted is still there"
        alive, spec = len(stage.ours()), pool.spec
        least, most = spec.minimum, spec.maximum
        if isinstance(spec.desired, int):
            least = most = min(max(spec.desired, least), most)
        if spec.desired == "Demand" and alive < most and any(not pod.node for pod in stage.pods):
            return f"{alive} machines, at most {most}, and pods pending"
        return self.told(alive) if least <= alive <= most else f"{alive} machines, not {least} to {most}"

    def told(self, alive: int) -> str | None:
        """What the status does not tell of so many machines."""
        assert self.stage.pool is not None
        slots = {slot.instance_id: slot.state for slot in self.stage.pool.status.slots}
        wanted = dict.fromkeys((machine.id for machine in self.stage.ours()), "Running")
        return None if slots == wanted else f"{alive} machines, and slots {slots}"

    def _stays(self) -> None:
        if self.stage.spec.get("desired") == "Demand":
            return  # machines that are idle end by and by
        known, ended = len(self.stage.cloud.machines), self.checks.ended
        for seconds in (60, 240):
            self._round(seconds)
        now = len(self.stage.cloud.machines), self.checks.ended
        if now != (known, ended):
            raise Violation(
                "flaps", f"launched {now[0] - known} and ended {now[1] - ended} machines although all was well"
            )
        if (why := self.unsettled()) is not None:
            raise Violation("flaps", why)
