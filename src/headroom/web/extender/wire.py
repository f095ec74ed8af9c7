"""kube-scheduler's questions to an extender and their answers, as `k8s.io/kube-scheduler/extender/v1` has them on the wire."""

from __future__ import annotations

from typing import Any, Final

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


class _Args(Struct, rename="pascal"):
    pod: raw.RawPod | None = None
    node_names: list[str] | None = None


class _Score(Struct, rename="pascal", gc=False):
    host: str
    score: int


class ExtenderArgs(Struct, frozen=True):
    """One pod, and the nodes that kube-scheduler found for it."""

    pod: Pod
    names: list[str]


_ARGS: Final = msgspec.json.Decoder(_Args)
_ENCODER: Final = msgspec.json.Encoder()


def question(body: bytes) -> ExtenderArgs:
    """What is asked. Raises `NotTaken` for anything that is no question of a scheduler that keeps to names."""
    try:
        found = _ARGS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise NotTaken(f"reading the question: {problem}") from problem
    if found.node_names is None:
        raise NotTaken(NAMES_WANTED)
    meta = found.pod.metadata if found.pod is not None else None
    if found.pod is None or meta is None or not meta.uid:
        raise NotTaken("reading the question: it has no pod with a uid")
    if not found.node_names:
        raise NotTaken("reading the question: it names no node")
    return ExtenderArgs(parse.pod_of(found.pod), list(dict.fromkeys(found.node_names)))


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
