"""The targets of a pool's gateway: its running machines, and of the others only what carries the pool's mark is removed."""

from __future__ import annotations

from collections.abc import Iterator

from headroom.core.spot_pools.places import PoolSlot, SpotPoolState
from headroom.model.actions import AddGatewayTarget, RemoveGatewayTarget


def calls(pool: SpotPoolState) -> Iterator[AddGatewayTarget | RemoveGatewayTarget]:
    """What is missing, and what is there too much."""
    spec, known = pool.spec.gateway, pool.world.gateways.get(pool.key)
    if spec is None or known is None or not known.at:
        return
    wanted = (
        {}
        if pool.resource.deleting
        else {target: None for each in pool.are("Running") if (target := _target(each, spec.port))}
    )
    missing = [target for target in wanted if target not in known.ours and target not in known.others]
    if not missing and wanted and not known.ensured:
        missing = [next(iter(wanted))]  # its upstream, service and route are made with it
    for target in sorted(missing):
        yield AddGatewayTarget(pool=pool.key, gateway_target=target)
    for target in known.ours:
        if target not in wanted:
            yield RemoveGatewayTarget(pool=pool.key, gateway_target=target)


def _target(place: PoolSlot, port: int) -> str:
    """Where a machine serves; empty while it does not."""
    instance = place.instance
    if instance is None or not place.is_ours or instance.state != "RUNNING" or place.is_reclaimed:
        return ""
    host = instance.public_ip or instance.private_ip
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else ""
