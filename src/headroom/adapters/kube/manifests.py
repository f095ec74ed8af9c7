"""Pods and nodes in manifests as facts, through the production decoder: its fast path first, its forgiving one for what that cannot read."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headroom.adapters.kube import parse, raw
from headroom.model import facts

PODS: Final = msgspec.json.Decoder(raw.RawPod)
NODES: Final = msgspec.json.Decoder(raw.RawNode)
_ODD: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def pod_in(document: dict[str, Any]) -> facts.Pod:
    """The pod in a manifest."""
    try:
        return parse.pod_of(PODS.decode(msgspec.json.encode(document)))
    except _ODD:
        return parse.pod(document)


def node_in(document: dict[str, Any]) -> facts.Node:
    """The node in a manifest."""
    try:
        return parse.node_of(NODES.decode(msgspec.json.encode(document)))
    except _ODD:
        return parse.node(document)
