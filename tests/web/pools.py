"""Power pools as an operator has left them: machines in every state, what they were told, and what the journal says of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.power_status import Energy, MachineStatus, PowerPoolStatus, State, TrialStatus, Unserved
from headroom.api.resources import Condition
from headroom.model.actions import Action, EmitEvent
from headroom.model.decisions import Decision, Ref
from headroom.model.facts import Node
from headroom.model.times import HOUR, MINUTE, text
from headroom.model.world import ref_of
from tests.builders import NOON, a_node, a_resource
from tests.web.showing import Made

EVENTS: dict[State, str] = {
    "Booting": "WakingMachine",
    "On": "MachineOn",
    "Draining": "DrainingMachine",
    "Sleeping": "SleepingMachine",
    "Off": "MachineOff",
    "Failed": "MachineFailed",
}
BASEMENT: dict[str, State] = {
    "l4-1": "On",
    "l4-2": "Booting",
    "l4-3": "Draining",
    "l4-4": "Sleeping",
    "l4-5": "Off",
    "l4-6": "Failed",
    "l4-7": "Unknown",
    "l4-10": "On",
}


class Left(NamedTuple):
    """A pool, and the last decision on it."""

    resource: AnyResource
    decision: Decision


def a_pool(name: str = "basement", states: dict[str, State] | None = None, **more: Any) -> Left:
    """A pool whose machines are in these states since ten minutes; `more` is of its status."""
    found = BASEMENT if states is None else states
    machines = [_given(each, number) for number, each in enumerate(found)]
    policy = {"idleSeconds": 900, "protectedMachines": [next(iter(found))], "keepOn": [OFFICE]}
    resource = a_resource("PowerPool", name, machines=machines, policy=policy)
    status = PowerPoolStatus(
        conditions=(_condition("Ready", "Steady", "All is well."), *more.pop("conditions", ())),
        machines=tuple(_machine(each, state) for each, state in found.items()),
        on=list(found.values()).count("On"),
        off=list(found.values()).count("Off"),
        changing=sum(each in ("Booting", "Draining", "Sleeping") for each in found.values()),
        failed=list(found.values()).count("Failed"),
        energy=Energy(used_kwh="12.345678", saved_kwh="34.5", as_of=text(NOON)),
        **more,
    )
    said = f"{status.on} of {len(found)} machines are on."
    resource = structs.replace(resource, status=status)
    return Left(resource, Decision(resource=ref_of(resource), status=status, reason="Steady", message=said))


OFFICE = {"days": ["Mon", "Fri"], "begin": "08:00", "end": "18:00", "timeZone": "Europe/Berlin", "minOn": 1}


def _given(name: str, number: int) -> dict[str, Any]:
    down = {"scaleDownEndpoint": f"http://power-api/{name}/stop"}
    ways: list[dict[str, Any]] = [
        {"scaleUpEndpoint": f"http://power-api/{name}/start"} | down,
        {"redfish": {"address": f"https://bmc-{name}.example.com"}},
        {"wakeOnLan": {"mac": "0a:1b:2c:3d:4e:5f"}} | down,
    ]
    return {"name": name, "gpuCount": 4, "idleWatts": 100, "busyWatts": 400} | ways[number % 3]


def _machine(name: str, state: State) -> MachineStatus:
    since = text(NOON - 10 * MINUTE)
    more: dict[str, Any] = {}
    if state == "Failed":
        more = {"failures": 2, "reason": "No node after 900 s.", "retry_after": text(NOON + HOUR)}
    if state in ("On", "Draining"):
        more = {"idle_since": text(NOON - 5 * MINUTE)}
    if state in ("Off", "Sleeping"):
        more = {"slept_at": text(NOON - 11 * MINUTE)}
    return MachineStatus(name=name, state=state, since=since, woken_at=text(NOON - HOUR), **more)


def _condition(type_: str, reason: str, message: str) -> Condition:
    return Condition(type=type_, status="True", reason=reason, message=message, last_transition_time=text(NOON - HOUR))


WARNINGS = (
    _condition("SharedWithKarpenter", "SharedWithKarpenter", "NodePool gpu could serve 3 pods that wait."),
    _condition("Braked", "TooManyIdle", "4 of 8 machines turned idle within 60 s."),
    _condition("MachinesFailed", "BootTimeout", "l4-6 did not boot."),
)
UNSERVED = (
    Unserved(pod="team-a/huge", pods=3, reason="NoMachineFits", message="It needs 16 nvidia.com/gpu and 4 are there."),
    Unserved(pod="team-a/odd", reason="Unmodelled", message="kube-scheduler says: 0/2 nodes match the spread."),
)
TRIALS = (
    TrialStatus(shape="0123456789ab", machine="l4-2", at=text(NOON - 10 * MINUTE)),
    TrialStatus(shape="ba9876543210", machine="l4-1", at=text(NOON - 20 * MINUTE), in_vain=2),
)


def troubled() -> Left:
    """The basement with everything that can be wrong with it."""
    return a_pool(conditions=WARNINGS, unserved=UNSERVED, trials=TRIALS)


def nodes_of(states: dict[str, State] | None = None) -> list[Node]:
    """The nodes that such machines have: those that sleep are not ready, and one was never seen."""
    found = BASEMENT if states is None else states
    return [
        a_node(
            name, gpus=4, ready=state in ("On", "Draining", "Sleeping"), unschedulable=state in ("Draining", "Sleeping")
        )
        for name, state in found.items()
        if state != "Failed"
    ]


def turned(made: Made, ref: Ref, at: int, *turns: tuple[str, State]) -> None:
    """Let the journal know that machines turned."""
    events: tuple[Action, ...] = tuple(
        EmitEvent(
            object=str(ref),
            event_type="Normal",
            reason=EVENTS[state],
            message=f"{name} is {state.lower()}.",
            machine=name,
        )
        for name, state in turns
    )
    decision = Decision(resource=ref, status=PowerPoolStatus(), reason="Turned", message="It turned.", actions=events)
    made.journal.decided(decision, at, "default")


def leave(made: Made, *pools: Left) -> None:
    """Let these be the last decisions, whatever the plans say."""
    made.decisions |= {each.decision.resource: each.decision for each in pools}
    made.bell.ring()
