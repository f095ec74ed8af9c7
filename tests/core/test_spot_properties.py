"""Whatever happens, in whatever order: never too many machines, only our own are ended, and a token names one intent for ever."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.core import CAPACITY
from headroom.model.actions import LaunchInstance, RemoveFinalizer, TerminateInstance
from headroom.model.changes import EVERYTHING
from headroom.model.cloud_facts import Instance, Launch, Listing
from headroom.model.world import World, by_ref
from tests.builders import NOON
from tests.core.spot_stage import MINUTE, POOL, SECOND, a_machine, a_spotpool

ALIVE = ("PENDING", "RUNNING", "REBOOTING")
MAXIMUM, SURGE = 3, 1
LENGTH = 120
FOREIGN = (
    a_machine(0, name="foreign-plain", tags={}),
    a_machine(1, name="foreign-cluster", tags=a_machine(1).tags | {marks.CLUSTER_TAG: "other"}),
    a_machine(2, "STOPPED", name="foreign-pool", pool="two"),
)


class Cloud:
    """A cloud with a memory for tokens, whose lists and answers by id lag behind."""

    def __init__(self) -> None:
        self.now = NOON
        self.machines: dict[str, Instance] = {}
        self.made_at: dict[str, int] = {}
        self.by_token: dict[str, str] = {}
        self.intents: dict[str, LaunchInstance] = {}
        self.lag = 0

    def launch(self, action: LaunchInstance) -> str:
        """The same machine for the same token."""
        assert self.intents.setdefault(action.token, action) == action, "a token stands for one intent"
        if action.token not in self.by_token:
            name = f"ins-{len(self.by_token)}"
            self.by_token[action.token] = name
            self.made_at[name] = self.now
            self.machines[name] = a_machine(action.slot, "PENDING", name=name, launched_at=self.now)
        return self.by_token[action.token]

    def seen(self) -> dict[str, Instance]:
        """What a list shows."""
        shown = {name: each for name, each in self.machines.items() if self.now - self.made_at[name] >= self.lag}
        return shown | {each.name: each for each in FOREIGN}

    def alive(self) -> int:
        """Machines that cost money."""
        return sum(each.state in ALIVE for each in self.machines.values())


class Play:
    """One pool, one operator that crashes at any moment, and one cloud."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(-seed)
        self.cloud = Cloud()
        self.pool: AnyResource = a_spotpool(
            minimum=3, maximum=MAXIMUM, maxSurge=SURGE, maxPurchasesPerHour=1000, join=False
        )
        self.launches: dict[str, Launch] = {}
        self.moments: dict[str, tuple[str, int]] = {}

    def world(self) -> World:
        shown = dict(self.cloud.seen())
        for slot in self.pool.status.slots:
            if slot.instance_id and slot.instance_id not in shown:
                shown[slot.instance_id] = a_machine(0, "NOT_FOUND", name=slot.instance_id)
        for each in self.launches.values():
            if each.instance:
                shown[each.instance] = self.cloud.machines[each.instance]
        return World(
            now=self.cloud.now,
            resources=by_ref([self.pool]),
            instances=shown,
            instances_given=False,
            listings={POOL: Listing(pool=POOL, at=self.cloud.now)},
            launches=self.launches,
        )

    def decide(self, *, written: bool = True, carried: int = 99, lost: bool = False, refused: str = "") -> None:
        """One decision: its status is written or not, then some of its actions are carried out, and replies may be lost."""
        [decision] = CAPACITY.decide(self.world(), EVERYTHING)
        if not written:
            return
        self.pool = structs.replace(self.pool, status=decision.status)
        due = [
            each for each in decision.actions if isinstance(each, LaunchInstance | TerminateInstance | RemoveFinalizer)
        ]
        for action in due[:carried]:
            if isinstance(action, RemoveFinalizer):
                assert self.unresolved() == 0
                assert self.cloud.alive() == 0
            elif isinstance(action, TerminateInstance):
                assert action.instance in self.cloud.machines, "only our own are ended"
                self.turn(action.instance, "TERMINATING")
            else:
                self.call(action, lost=lost, refused=refused)
        self.check()

    def call(self, action: LaunchInstance, *, lost: bool, refused: str) -> None:
        name = ""
        if refused and action.token not in self.cloud.by_token:
            self.cloud.intents.setdefault(action.token, action)
            word = refused
        else:
            name = self.cloud.launch(action)
            word = "Unknown" if lost else "Accepted"
        told: Any = {"outcome": word, "instance": "" if lost else name}
        self.launches[action.token] = Launch(token=action.token, pool=POOL, at=self.cloud.now, **told)

    def turn(self, name: str, state: str) -> None:
        self.cloud.machines[name] = structs.replace(self.cloud.machines[name], state=state)

    def unresolved(self) -> int:
        """Tokens that may yet bring a machine, and have not."""
        return sum(
            each.state in ("Launching", "Cancelling") and each.token not in self.cloud.by_token
            for each in self.pool.status.slots
        )

    def check(self) -> None:
        assert self.cloud.alive() + self.unresolved() <= MAXIMUM + SURGE
        assert not {each.instance_id for each in self.pool.status.slots} & {each.name for each in FOREIGN}
        for each in self.pool.status.slots:
            intent = each.launched_at, each.slot
            assert not each.token or self.moments.setdefault(each.token, intent) == intent, "a token names one intent"
        numbers = [each.slot for each in self.pool.status.slots]
        assert len(numbers) == len(set(numbers))


def _steps(seed: int) -> list[tuple[Any, ...]]:
    """What happens, always the same for a seed: long plays, since it takes a while to have something to lose."""
    dice = random.Random(seed)
    well: tuple[Any, ...] = ("decide", True, 99, False)
    kinds: list[Callable[[], tuple[Any, ...]]] = [
        *[lambda: well] * 4,
        lambda: ("decide", dice.random() < 0.8, dice.randint(0, 4), dice.random() < 0.5),
        lambda: ("refuse", dice.choice(["SoldOut", "PriceTooLow", "QuotaReached", "Refused"])),
        *[lambda: ("pass", dice.choice([1, 20, 60, 180, 300, 600, 2400]))] * 4,
        lambda: ("lag", dice.choice([0, 60, 900, 1800])),
        lambda: ("crash",),
        lambda: ("state", "", dice.choice(["RUNNING", "RUNNING", "STOPPED", "SHUTDOWN", "LAUNCH_FAILED"])),
        *[lambda: ("reclaim", "")] * 2,
        lambda: ("minimum", dice.choice([0, MAXIMUM, MAXIMUM])),
        lambda: ("desired", dice.choice([None, None, 0, 1, 3])),
        lambda: ("paused", dice.random() < 0.3),
        lambda: ("forget",),
    ]
    return [dice.choice(kinds)() for _ in range(LENGTH)]


def _one_of(dice: random.Random, cloud: Cloud) -> str:
    """A machine that is there."""
    return dice.choice(sorted(name for name, each in cloud.machines.items() if each.state in ALIVE) or [""])


def _happens(play: Play, step: tuple[Any, ...]) -> None:
    cloud = play.cloud
    match step:
        case ("decide", bool(written), int(carried), bool(lost)):
            play.decide(written=written, carried=carried, lost=lost)
        case ("refuse", str(word)):
            play.decide(refused=word)
        case ("pass", int(seconds)):
            cloud.now += seconds * SECOND
        case ("lag", int(seconds)):
            cloud.lag = seconds * SECOND
        case ("crash",):
            play.launches = {}
        case ("minimum" | "desired" | "paused" as field, value):
            play.pool = structs.replace(play.pool, spec=structs.replace(play.pool.spec, **{field: value}))
        case _:
            _turns(play, cloud, step)


def _turns(play: Play, cloud: Cloud, step: tuple[Any, ...]) -> None:
    name = _one_of(play.dice, cloud)
    match step:
        case ("state", _, str(state)) if name:
            play.turn(name, state)
        case ("reclaim", _) if name:
            cloud.machines[name] = structs.replace(cloud.machines[name], reclaim_at=cloud.now + 2 * MINUTE)
        case ("forget",):  # old ends are not shown for ever
            for each in cloud.machines.values():
                if each.state in ("SHUTDOWN", "TERMINATING"):
                    cloud.made_at[each.name] = cloud.now + 10**12


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_never_too_many_never_foreign_never_the_same_token_twice(seed: int) -> None:
    play = Play(seed)
    for step in _steps(seed):
        _happens(play, step)
        play.check()


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_pool_that_is_deleted_ends_everything_and_then_goes(seed: int) -> None:
    play = Play(seed)
    for step in _steps(seed):
        _happens(play, step)
    play.pool = structs.replace(
        play.pool, deleting=True, spec=structs.replace(play.pool.spec, paused=False, desired=None)
    )
    for _ in range(20):
        play.decide()
        play.cloud.now += 10 * MINUTE
        play.cloud.lag = 0
    assert play.cloud.alive() == 0
    assert play.pool.status.slots == ()
