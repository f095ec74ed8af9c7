"""Objects as facts, through the production decoder: its fast path first, its forgiving one for what that cannot read."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headroom.adapters.kube import parse, raw
from headroom.model import facts
from headroom.sim.apistore import Record

_PODS: Final = msgspec.json.Decoder(raw.Pod)
_NODES: Final = msgspec.json.Decoder(raw.Node)
_ODD: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def pod(record: Record) -> facts.Pod:
    """A stored pod."""
    try:
        return parse.pod_of(_PODS.decode(record.raw()))
    except msgspec.MsgspecError:
        return parse.pod(record.body)


def node(record: Record) -> facts.Node:
    """A stored node."""
    try:
        return parse.node_of(_NODES.decode(record.raw()))
    except msgspec.MsgspecError:
        return parse.node(record.body)


def pod_in(document: dict[str, Any]) -> facts.Pod:
    """The pod in a manifest."""
    try:
        return parse.pod_of(_PODS.decode(msgspec.json.encode(document)))
    except _ODD:
        return parse.pod(document)


def node_in(document: dict[str, Any]) -> facts.Node:
    """The node in a manifest."""
    try:
        return parse.node_of(_NODES.decode(msgspec.json.encode(document)))
    except _ODD:
        return parse.node(document)
