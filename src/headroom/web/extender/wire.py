"""kube-scheduler's questions to an extender and their answers, as `k8s.io/kube-scheduler/extender/v1` has them on the wire."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from headroom.adapters.kube import parse, raw
from headroom.core.bandwidth import FilterAnswer, NodeRefusal, PodAsk, refusal_sentence
from headroom.model.errors import Refused as NotTaken
from headroom.model.facts import Pod

NAMES_WANTED: Final = (
    "The bandwidth extender keeps its own view of the nodes and takes only their names: set nodeCacheCapable: true for it in the "
    "KubeSchedulerConfiguration (headroom extender --scheduler-config prints one)."
)

MOST_NAMES: Final = 20_000
"""Each gets a reason in the answer, and none is answered meanwhile."""


class _Args(Struct, rename="pascal"):
    pod: raw.RawPod | None = None
    node_names: list[str] | None = None


class _Victim(Struct):
    uid: str = msgspec.field(name="UID")


class _Victims(Struct):
    pods: list[_Victim] | None = msgspec.field(name="Pods", default=None)
    disruptions: int = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptionArgs(Struct, rename="pascal"):
    pod: raw.RawPod | None = None
    node_name_to_meta_victims: dict[str, _Victims] | None = None


class _Score(Struct, rename="pascal", gc=False):
    host: str
    score: int


Args = TypeVar("Args", _Args, _PreemptionArgs)


class ExtenderArgs(Struct, frozen=True):
    """One pod, and the nodes that kube-scheduler found for it."""

    pod: Pod
    names: list[str]


class PreemptionArgs(Struct, frozen=True):
    """One pod, and whom kube-scheduler would evict for it on each node."""

    pod: Pod
    victims: dict[str, _Victims]

    @property
    def uids(self) -> dict[str, list[str]]:
        """The victims by node."""
        return {name: [each.uid for each in found.pods or ()] for name, found in self.victims.items()}


_ARGS: Final = msgspec.json.Decoder(_Args)
_PREEMPTION_ARGS: Final = msgspec.json.Decoder(_PreemptionArgs)
_ENCODER: Final = msgspec.json.Encoder()


def question(body: bytes) -> ExtenderArgs:
    """What is asked. Raises `NotTaken` for anything that is no question of a scheduler that keeps to names."""
    found = _read(_ARGS, body)
    if found.node_names is None:
        raise NotTaken(NAMES_WANTED)
    if not found.node_names:
        raise NotTaken("reading the question: it names no node")
    _check_size(found.node_names)
    return ExtenderArgs(_pod(found.pod), list(dict.fromkeys(found.node_names)))


def preemption(body: bytes) -> PreemptionArgs:
    """Whom kube-scheduler would evict. Raises `NotTaken` as `question` does."""
    found = _read(_PREEMPTION_ARGS, body)
    if found.node_name_to_meta_victims is None:
        raise NotTaken(f"reading the question: it names no victims. {NAMES_WANTED}")
    _check_size(found.node_name_to_meta_victims)
    return PreemptionArgs(_pod(found.pod), found.node_name_to_meta_victims)


def _check_size(names: Collection[str]) -> None:
    if len(names) > MOST_NAMES:
        raise NotTaken(f"reading the question: it names {len(names)} nodes, more than {MOST_NAMES}")


def _read(decoder: msgspec.json.Decoder[Args], body: bytes) -> Args:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise NotTaken(f"reading the question: {problem}") from problem


def _pod(found: raw.RawPod | None) -> Pod:
    if found is None or found.metadata is None or not found.metadata.uid:
        raise NotTaken("reading the question: it has no pod with a uid")
    return parse.pod_of(found)


def filtered(verdict: FilterAnswer, ask: PodAsk) -> bytes:
    """The answer to a filter call, with a reason for every node that was refused.

    Nodes that would have done are left out: kube-scheduler reads of them only where it has none, and thousands of reasons take longer to
    send than all else. Where no node is left, none can be had by preemption either: kube-scheduler knows nothing of what bandwidth a
    victim would give back.
    """
    codes = verdict.codes
    refused = np.flatnonzero(codes > NodeRefusal.NOT_CHOSEN)
    spoken = {code: refusal_sentence(NodeRefusal(code), ask) for code in set(codes[refused].tolist())}
    failed = {verdict.names[each]: spoken[int(codes[each])] for each in refused.tolist()}
    for_good, for_now = ({}, failed) if verdict.passed else (failed, {})
    return _answer(verdict.passed, for_now, for_good)


def _answer(passed: list[str], for_now: dict[str, str], for_good: dict[str, str]) -> bytes:
    document: dict[str, Any] = {
        "Nodes": None,
        "NodeNames": passed,
        "FailedNodes": for_now,
        "FailedAndUnresolvableNodes": for_good,
        "Error": "",
    }
    return _ENCODER.encode(document)


def failed(why: str) -> bytes:
    """A filter call that cannot be answered: kube-scheduler puts the sentence into the pod's event and tries again."""
    return _ENCODER.encode({"Nodes": None, "NodeNames": None, "FailedNodes": None, "Error": why})


def prioritized(names: list[str], scores: list[int]) -> bytes:
    """The answer to a prioritize call."""
    return _ENCODER.encode(list(map(_Score, names, scores)))


def preempted(asked: PreemptionArgs, names: list[str]) -> bytes:
    """The answer to a preempt call: the victims of these nodes."""
    return _ENCODER.encode({"NodeNameToMetaVictims": {name: asked.victims[name] for name in names}})
