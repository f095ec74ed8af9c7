"""Words about machines and pods: how many, how large, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headroom.core.power.members import UNIT, PoolMachine, PowerPoolState

SHOWN: Final = 3
LONGEST_QUOTE: Final = 600


def of_gpus(count: int | str) -> str:
    """So many GPUs."""
    return f"{count} GPU" if str(count) == "1" else f"{count} GPUs"


def of_pods(count: int) -> str:
    """So many pods."""
    return "1 pod" if count == 1 else f"{count} pods"


def of_machines(count: int) -> str:
    """So many machines."""
    return "1 machine" if count == 1 else f"{count} machines"


def few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - SHOWN
    if more > 0:
        return f"{', '.join(names[:SHOWN])} and {more} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def machines(members: Sequence[PoolMachine]) -> str:
    """Machines by name and GPUs, the first few: `w1 and w2 (12 GPUs)`."""
    return f"{few([each.name for each in members])} ({of_gpus(sum(each.gpus for each in members))})"


def for_pods(asks: Mapping[str, int], uids: Sequence[str], announced: Mapping[str, str] | None = None) -> str:
    """For whom a machine is: `for 6 pods that need 6 GPUs`; `asks` are the GPUs of each in millionths."""
    whole, rest = divmod(sum(asks.get(uid, 0) for uid in uids), UNIT)
    gpus = of_gpus(f"{whole}.{rest:06d}".rstrip("0") if rest else whole)
    return f"for {whom(uids, announced or {})} that {'needs' if len(uids) == 1 else 'need'} {gpus}"


def whom(uids: Sequence[str], announced: Mapping[str, str]) -> str:
    """So many pods, and how many of them are queued or somebody will make."""
    count, queued = len(uids), sum(announced.get(uid) == "" for uid in uids)
    makers = sorted({by for uid in uids if (by := announced.get(uid))})
    made = sum(bool(announced.get(uid)) for uid in uids)
    plural = "" if count == 1 else "s"
    if queued == count:
        return f"{count} queued pod{plural}"
    if made == count:
        return f"{count} announced pod{plural} ({few(makers)})"
    said = [f"{queued} queued"] if queued else []
    said += [f"{made} announced by {few(makers)}"] if made else []
    return of_pods(count) + (f" ({', '.join(said)})" if said else "")


def how_many(pool: PowerPoolState) -> str:
    """How many machines are on, as the status counts them: `2 of 4 machines are on, 1 in use`."""
    on = pool.are("On")
    busy = sum(each.idle_since is None for each in on)
    count = f"{len(on)} of {len(pool.members)} machines {'is' if len(on) == 1 else 'are'} on"
    return f"{count}, {busy} in use" if busy else count


def quoted(text: str) -> str:
    """What somebody else says, as a sentence among ours: not too long, and with an end."""
    words = " ".join(text.split())
    if len(words) > LONGEST_QUOTE:
        return f"{words[:LONGEST_QUOTE].rstrip()} ..."
    return words if words.endswith((".", "!", "?")) else f"{words}." if words else "nothing more is said."


def small(text: str) -> str:
    """A sentence as the end of another one."""
    return text if text.startswith("Karpenter") else text[:1].lower() + text[1:]
