"""Stored objects as facts, through the production decoder: its fast path first, its forgiving one for what that cannot read."""

from __future__ import annotations

import msgspec

from headroom.adapters.kube import parse
from headroom.adapters.kube.manifests import NODES, PODS
from headroom.model import facts
from headroom.sim.apistore import Record


def pod(record: Record) -> facts.Pod:
    """A stored pod."""
    try:
        return parse.pod_of(PODS.decode(record.raw()))
    except msgspec.MsgspecError:
        return parse.pod(record.body)


def node(record: Record) -> facts.Node:
    """A stored node."""
    try:
        return parse.node_of(NODES.decode(record.raw()))
    except msgspec.MsgspecError:
        return parse.node(record.body)
