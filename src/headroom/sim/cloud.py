"""A simulated cloud: machines with tags, tokens, stock, prices, quotas, reclaims and lists that lag, all as plain data on a virtual clock.

Nothing waits here. What a machine will be is written into its history when it is decided, so its state at any moment is a look into that
history, and a read that lags is a look at an earlier moment. `wrong` says of each call what goes wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, TypeVar

from msgspec import Struct

from headroom.model import times
from headroom.model.cloud_facts import Instance, Offer

PROVIDER: Final = "tencent"
PAGE: Final = 100
BOOT_MS: Final = 60 * times.SECOND
SHUTDOWN_MS: Final = 30 * times.SECOND
FORGET_MS: Final = times.HOUR
"""How long a machine that has ended is still told of."""
ALIVE: Final = frozenset({"PENDING", "RUNNING", "STARTING", "REBOOTING"})
ENDED: Final = frozenset({"LAUNCH_FAILED", "SHUTDOWN", "TERMINATING"})
"""What a machine never leaves but for the next one of these: once told, it is never taken back."""

T = TypeVar("T")
Verb = Literal["launch", "terminate", "list", "describe", "offers"]
Shortage = Literal["SoldOut", "PriceTooLow", "QuotaReached", "Refused"]
Wrong = Literal["", "Lost", "Unreached", "Throttled", "Denied", Shortage]
"""Lost: done, and no answer comes. Unreached: not done, and no answer comes either. The others are answers, and nothing is done."""
SHORTAGES: Final[tuple[Shortage, ...]] = ("SoldOut", "PriceTooLow", "QuotaReached", "Refused")
LaunchOutcome = Literal["Accepted", "Unknown", Shortage]


class UnknownLaunch(Exception):
    """Nobody knows whether it was done."""


class CallRefused(Exception):
    """The cloud said no to a call, for a reason that says nothing of machines."""

    def __init__(self, problem: Literal["Throttled", "Forbidden"]) -> None:
        super().__init__(problem)
        self.problem: Literal["Throttled", "Forbidden"] = problem


class LaunchRefused(Exception):
    """There is no machine of this token, and the cloud says why."""

    def __init__(self, outcome: Shortage, message: str = "") -> None:
        super().__init__(message or outcome)
        self.outcome: Shortage = outcome


class TokenReused(Exception):
    """A token came back with another order: the caller has a bug."""


class RequestedLaunch(Struct, frozen=True, kw_only=True):
    """What is asked of the cloud to launch one machine."""

    token: str
    """Without one every call launches a machine."""
    instance_type: str
    zone: str
    tags: Mapping[str, str] = {}
    max_price: int | None = None
    user_data: str = ""


class StateChange(Struct, frozen=True):
    """From when on a machine is in which state."""

    at: int
    state: str


class SimMachine(Struct, kw_only=True):
    """A machine and its whole life, as far as it is decided."""

    id: str
    order: RequestedLaunch
    turns: list[StateChange]
    price: int | None
    address: str
    reclaim: tuple[int, int] | None = None
    """When the cloud said that it takes it back, and when it does."""
    told_ended: int | None = None
    """The latest moment of which somebody was told that it had ended."""

    @property
    def made(self) -> int:
        """When it was launched."""
        return self.turns[0].at

    def state(self, at: int) -> str:
        """What it is at a moment; empty before it was made."""
        found = ""
        for turn in self.turns:
            if turn.at > at:
                break
            found = turn.state
        return found

    def turn(self, *turns: StateChange) -> None:
        """Decide its life anew from the first of these on."""
        self.turns = [each for each in self.turns if each.at < turns[0].at] + list(turns)


class Cloud:
    """One account in one region of a cloud."""

    def __init__(self, now: Callable[[], int], region: str = "sim-1", provider: str = PROVIDER) -> None:
        self._now, self.region, self.provider = now, region, provider
        self.machines: dict[str, SimMachine] = {}
        self.stock: dict[tuple[str, str], int] = {}
        """How many more there are, by type and zone; without a number, as many as anybody wants."""
        self.prices: dict[tuple[str, str], int] = {}
        """Millionths of a dollar for an hour, by type and zone."""
        self.quota: int | None = None
        """How many machines may be alive at once, whosever."""
        self.boot_ms, self.page_size, self.forget_ms = BOOT_MS, PAGE, FORGET_MS
        self.lag: Callable[[], int] = lambda: 0
        """Asked at each read: by how many milliseconds it is behind."""
        self.clock_off_ms = 0
        """By how much its clock is ahead of everybody else's."""
        self.sabotaged: Callable[[RequestedLaunch], bool] = lambda _order: False
        """Whether a machine that is launched now fails by and by."""
        self.wrong: Callable[[Verb], Wrong] = lambda _verb: ""
        self.refused_types: frozenset[str] = frozenset()
        """Types to which the cloud says no for good."""
        self._tokens: dict[str, str] = {}

    # --- calls ----------------------------------------------------------------------------------------------------------------

    def launch(self, order: RequestedLaunch) -> str:
        """Launch one machine; its id. The same token brings the same id back, whatever became of the machine."""
        wrong = self.wrong("launch")
        return self._done("launch", wrong, lambda: self._launched(order, wrong))

    def terminate(self, machine: str) -> None:
        """End a machine; one that is not known, or has ended, stays as it is."""
        self._call("terminate", lambda: self._ended(machine))

    def page(
        self, tags: Mapping[str, str], start: int = 0, lag: int | None = None
    ) -> tuple[list[Instance], int | None]:
        """Machines with all these tags from a place on, and the place of the next page; None after the last.

        All pages of one list should be read with the lag of the first, or a machine may fall between two of them.
        """
        return self._call("list", lambda: self._page(tags, start, self.lag() if lag is None else lag))

    def describe(self, ids: Collection[str]) -> dict[str, Instance]:
        """What is known of machines by their ids; one that is missing is not known."""
        return self._call("describe", lambda: self._described(ids))

    def offers(self) -> list[Offer]:
        """What there is to be had, at which price."""
        return self._call("offers", self._offered)

    def _call(self, verb: Verb, effect: Callable[[], T]) -> T:
        return self._done(verb, self.wrong(verb), effect)

    def _done(self, verb: Verb, wrong: Wrong, effect: Callable[[], T]) -> T:
        if wrong == "Unreached":
            raise UnknownLaunch
        if wrong == "Throttled":
            raise CallRefused("Throttled")
        if wrong == "Denied" or (wrong in SHORTAGES and verb != "launch"):
            raise CallRefused("Forbidden")
        found = effect()
        if wrong == "Lost":
            raise UnknownLaunch
        return found

    # --- what comes of them ---------------------------------------------------------------------------------------------------

    def _launched(self, order: RequestedLaunch, wrong: Wrong) -> str:
        known = self._tokens.get(order.token) if order.token else None
        if known is not None:
            if _same(self.machines[known].order, order):
                return known
            raise TokenReused(order.token)
        if wrong in SHORTAGES:
            raise LaunchRefused(wrong)
        self._check(order)
        return self.add(order).id

    def _check(self, order: RequestedLaunch) -> None:
        offer = (order.instance_type, order.zone)
        if order.instance_type in self.refused_types:
            raise LaunchRefused("Refused", f"{order.instance_type} is not sold here")
        if self.quota is not None and sum(self.is_alive(each) for each in self.machines) >= self.quota:
            raise LaunchRefused("QuotaReached")
        if order.max_price is not None and self.prices.get(offer, 0) > order.max_price:
            raise LaunchRefused("PriceTooLow")
        if self.stock.get(offer, 1) <= 0:
            raise LaunchRefused("SoldOut")

    def add(self, order: RequestedLaunch, state: str = "PENDING") -> SimMachine:
        """A machine more, whoever launches it: one that is pending runs after a while, or fails."""
        now, number, offer = self._now(), len(self.machines) + 1, (order.instance_type, order.zone)
        turns = [StateChange(now, state)]
        if state == "PENDING":
            turns.append(StateChange(now + self.boot_ms, "LAUNCH_FAILED" if self.sabotaged(order) else "RUNNING"))
        made = SimMachine(
            id=f"ins-{number:08x}",
            order=order,
            turns=turns,
            price=self.prices.get(offer),
            address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        )
        self.machines[made.id] = made
        if order.token:
            self._tokens[order.token] = made.id
        if offer in self.stock:
            self.stock[offer] -= 1
        return made

    def _ended(self, machine: str) -> None:
        made, now = self.machines.get(machine), self._now()
        if made is not None and made.state(now) not in ("SHUTDOWN", "TERMINATING"):
            made.turn(StateChange(now, "TERMINATING"), StateChange(now + SHUTDOWN_MS, "SHUTDOWN"))

    def _page(self, tags: Mapping[str, str], start: int, lag: int) -> tuple[list[Instance], int | None]:
        found = [
            seen for each in self.machines.values() if _has(each.order.tags, tags) and (seen := self._seen(each, lag))
        ]
        end = start + self.page_size
        return found[start:end], end if end < len(found) else None

    def _described(self, ids: Collection[str]) -> dict[str, Instance]:
        lag = self.lag()
        asked = (self.machines[each] for each in ids if each in self.machines)
        return {seen.name: seen for each in asked if (seen := self._seen(each, lag))}

    def _seen(self, machine: SimMachine, lag: int) -> Instance | None:
        """What a read tells of a machine that is so far behind; None if it does not know it."""
        at = self._now() - lag
        if machine.told_ended is not None:
            at = max(at, machine.told_ended)
        state = machine.state(at)
        last = machine.turns[-1]
        if not state or (last.state in ENDED and last.at + self.forget_ms <= at):
            return None
        if state in ENDED:
            machine.told_ended = at
        notice = machine.reclaim if machine.reclaim is not None and machine.reclaim[0] <= at else None
        return Instance(
            name=machine.id,
            provider=self.provider,
            region=self.region,
            zone=machine.order.zone,
            instance_type=machine.order.instance_type,
            state=state,
            private_ip=machine.address,
            tags=dict(machine.order.tags),
            launched_at=machine.made + self.clock_off_ms,
            reclaim_at=notice[1] + self.clock_off_ms if notice is not None else None,
            price_per_hour=machine.price,
        )

    def _offered(self) -> list[Offer]:
        now = self._now() + self.clock_off_ms
        return [
            Offer(
                name=f"{self.provider}/{zone}/{kind}",
                provider=self.provider,
                region=self.region,
                zone=zone,
                instance_type=kind,
                capacity_type="spot",
                price_per_hour=self.prices.get((kind, zone)),
                at=now,
                available=self.stock.get((kind, zone), 1) > 0,
            )
            for kind, zone in sorted({*self.stock, *self.prices})
        ]

    # --- what happens by itself, and by hand ----------------------------------------------------------------------------------

    def is_alive(self, machine: str) -> bool:
        """Whether it is, in truth and now."""
        return self.machines[machine].state(self._now()) in ALIVE

    def alive(self, tags: Mapping[str, str]) -> list[SimMachine]:
        """Every machine with these tags that is, in truth and now."""
        now = self._now()
        return [each for each in self.machines.values() if each.state(now) in ALIVE and _has(each.order.tags, tags)]

    def machine_of(self, token: str) -> SimMachine | None:
        """The machine that was launched with a token."""
        return self.machines.get(self._tokens.get(token, ""))

    def reclaim(self, machine: str, notice_ms: int = 0) -> None:
        """Take a machine back, now or after a notice."""
        made, now = self.machines[machine], self._now()
        if made.state(now) in ENDED or made.reclaim is not None:
            return
        made.reclaim = (now, now + notice_ms) if notice_ms else None
        made.turn(StateChange(now + notice_ms, "TERMINATING"), StateChange(now + notice_ms + SHUTDOWN_MS, "SHUTDOWN"))

    def stop(self, machine: str) -> None:
        """Somebody stops a machine in the cloud's console: its disk is still paid for."""
        made, now = self.machines[machine], self._now()
        if made.state(now) == "RUNNING":
            made.turn(StateChange(now, "STOPPING"), StateChange(now + SHUTDOWN_MS, "STOPPED"))

    def fail(self, machine: str) -> None:
        """A machine that is pending comes to nothing."""
        made, now = self.machines[machine], self._now()
        if made.state(now) == "PENDING":
            made.turn(StateChange(now, "LAUNCH_FAILED"))


def _has(tags: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(tags.get(name) == value for name, value in wanted.items())


def _same(one: RequestedLaunch, other: RequestedLaunch) -> bool:
    """What a cloud compares when a token comes back: everything but the price."""
    return (one.instance_type, one.zone, dict(one.tags)) == (other.instance_type, other.zone, dict(other.tags))
