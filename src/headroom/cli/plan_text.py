"""A plan for people: each effect with `+`, `~` or `-`, the reason beneath, and one line that sums it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headroom.cli import output

MOST_IDLE: Final = 20
"""Resources without an effect that a terminal shows."""
MOST_EFFECTS: Final = 20
"""Effects of one resource that a terminal shows."""
_TONES: Final = {"+": "good", "~": "warn", "-": "bad"}
_SILENT: Final = frozenset({"type", "uid", "resourceVersion", "token", "slot", "object", "kind"})
"""Fields that tell people nothing, or that stand in the line already."""


class Effect(NamedTuple):
    """How an action is told: something comes, changes or goes."""

    sign: str
    verb: str
    noun: str
    """What the summary counts; its plural takes an s, or es after a ch."""


EFFECTS: Final[Mapping[str, Effect]] = {
    "ApplyBudgetHold": Effect("+", "hold new pods of", "hold"),
    "DeleteBudgetHold": Effect("-", "lift the hold of", "lifted hold"),
    "ApplyBudgetIndex": Effect("~", "index", "index update"),
    "ReleasePod": Effect("+", "release", "release"),
    "PausePod": Effect("~", "pause", "pause"),
    "ResumePod": Effect("~", "resume", "resumption"),
    "SuspendOwner": Effect("-", "suspend", "suspension"),
    "ResumeOwner": Effect("+", "resume", "resumption"),
    "EvictPod": Effect("-", "evict", "eviction"),
    "DeletePod": Effect("-", "delete", "pod deletion"),
    "DeleteReleaseRequest": Effect("-", "delete", "request deletion"),
    "AddFinalizer": Effect("+", "add our finalizer to", "finalizer"),
    "RemoveFinalizer": Effect("-", "remove our finalizer from", "removed finalizer"),
    "TouchPod": Effect("~", "have kube-scheduler look again at", "second look"),
    "LaunchInstance": Effect("+", "launch", "launch"),
    "TerminateInstance": Effect("-", "terminate", "termination"),
    "AddGatewayTarget": Effect("+", "add a gateway target for", "gateway target"),
    "RemoveGatewayTarget": Effect("-", "remove a gateway target of", "removed gateway target"),
    "WakeMachine": Effect("+", "wake", "wake"),
    "SleepMachine": Effect("-", "sleep", "sleep"),
    "CordonNode": Effect("~", "cordon", "cordon"),
    "UncordonNode": Effect("~", "uncordon", "uncordon"),
    "DrainNode": Effect("-", "drain", "drain"),
    "TaintNode": Effect("~", "taint", "taint"),
    "UntaintNode": Effect("~", "untaint", "untaint"),
    "ApplyNodePool": Effect("+", "apply NodePool", "NodePool"),
    "DeleteNodePool": Effect("-", "delete NodePool", "NodePool deletion"),
    "ApplyNodeClass": Effect("+", "apply node class", "node class"),
    "DeleteNodeClass": Effect("-", "delete node class", "node class deletion"),
    "ApplyBandwidth": Effect("~", "write Bandwidth", "Bandwidth update"),
    "DeleteBandwidth": Effect("-", "delete Bandwidth", "Bandwidth deletion"),
    "SetNodeResources": Effect("~", "publish bandwidth on", "node update"),
    "ApplyBandwidthConfig": Effect("~", "write BandwidthConfig", "BandwidthConfig update"),
    "ApplyNodeOverlay": Effect("+", "apply NodeOverlay", "NodeOverlay"),
    "DeleteNodeOverlay": Effect("-", "delete NodeOverlay", "NodeOverlay deletion"),
}
"""Every action but events, which change nothing."""


def effects(decision: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The actions of a decision that change something."""
    return [each for each in decision["actions"] if each["type"] in EFFECTS]


def show(decisions: Sequence[Mapping[str, Any]], warnings: Mapping[str, list[str]]) -> None:
    """Print each resource with its effects and its reason; on a terminal not too many of those without any."""
    idle = [each for each in decisions if not effects(each)]
    left = len(idle) - MOST_IDLE if output.is_terminal() else 0
    hidden = {id(each) for each in idle[MOST_IDLE:]} if left > 0 else set()
    for each in decisions:
        if id(each) not in hidden:
            _show_one(each, warnings[named(each)])
    if hidden:
        output.line()
        output.line(f"and {output.counted(left, 'resource')} more with nothing due; -o json has them all")


def summary(decisions: Sequence[Mapping[str, Any]]) -> str:
    """One line, such as `Plan: 1 hold, 1 eviction, 2 wakes.`, that counts what is due."""
    counts = Counter(EFFECTS[due["type"]].noun for each in decisions for due in effects(each))
    return f"Plan: {', '.join(_counted(count, noun) for noun, count in counts.items()) or 'nothing is due'}."


def named(decision: Mapping[str, Any]) -> str:
    """A decision's resource: KIND/NAMESPACE/NAME."""
    return "/".join(part for part in decision["resource"].values() if part)


def _show_one(decision: Mapping[str, Any], warnings: Sequence[str]) -> None:
    output.line()
    output.line(f"{named(decision)}: {decision['reason']}")
    due = effects(decision)
    most = MOST_EFFECTS if output.is_terminal() else len(due)
    for each in due[:most]:
        effect = EFFECTS[each["type"]]
        output.toned_line(f"  {effect.sign} {spoken(each, decision)}", _TONES[effect.sign])
    if len(due) > most:
        output.line(f"and {len(due) - most} more; -o json has them all", indent=4)
    output.line(" ".join((decision["message"], *warnings)), indent=4)


def spoken(action: Mapping[str, Any], decision: Mapping[str, Any]) -> str:
    """An effect in words, without its sign: what is done to what."""
    from headroom.model.action_names import target_of

    effect = EFFECTS[action["type"]]
    target = target_of(action) or named(decision).partition("/")[2]
    rest = ", ".join(f"{name} {each}" for name, each in _rest(action, target))
    return f"{effect.verb} {target}" + (f" ({rest})" if rest else "")


def _rest(action: Mapping[str, Any], target: str) -> Iterator[tuple[str, Any]]:
    """What else an action says, as far as it is short and stays as it is."""
    from headroom.model.actions import BY_NAME

    known = BY_NAME.get(str(action["type"]))
    silent = _SILENT | (known.moving if known else frozenset())
    for name, each in action.items():
        if name not in silent and each not in ("", None, target) and not isinstance(each, dict | list | tuple):
            yield name, each


def _counted(count: int, noun: str) -> str:
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{ending}"
