"""The hostile tenant's script: what it lays by before the hold, its moves, and how often it makes them."""

from collections.abc import Callable

from tests.integration import hostile, hostile_claims, hostile_tricks
from tests.integration.accounts import GPU
from tests.integration.hostile import GANG, JOBS, OWN_GATE, PATHS, PODS, SPACE, THEIRS, Tenant, job, many, waits

MOVES: tuple[Callable[[Tenant], None], ...] = (
    *(hostile.relabel, hostile.forge_owners, hostile.real_daemons, hostile.join_gangs, hostile.mark),
    *(hostile.lift_gates, hostile.resize_owners, hostile.make_owners, hostile.remake, hostile.disrupt, hostile.linger),
    *(hostile.resize_pods, hostile.play_kueue, hostile.choose_nodes, hostile.write_ours),
    *(hostile_claims.claim, hostile_claims.reuse_claims, hostile_claims.swap_claims, hostile_claims.write_claims),
    *(hostile_claims.ask_for_resources, hostile_tricks.write_gates_otherwise, hostile_tricks.apply_as_others),
    *(hostile_tricks.name_pods_otherwise, hostile_tricks.touch_metadata, hostile_tricks.begin_with_gpus),
    *(hostile_tricks.toggle_jobs, hostile_tricks.tune_jobs, hostile_tricks.roll_out, hostile_tricks.orphan_and_adopt),
    *(hostile_tricks.evict_own, hostile_tricks.write_beside, hostile_tricks.borrow_accounts),
)
MOST_PODS = 150
"""So many pods of the tenant at once are enough: more only make the machine slow."""
PLAIN, GPUS = 4, 9 + hostile_claims.GPUS_BEFORE
"""Pods that nobody owns, and all GPUs that run when `prepare` is done."""
PODS_RUNNING = 8 + hostile_claims.PODS_BEFORE


def prepare(tenant: Tenant) -> None:
    """What a tenant lays by while its budget has room: pods that run, some behind a disruption budget, and pods behind gates of its own."""
    tenant.make("PodDisruptionBudget", "keep", {"maxUnavailable": 0, "selector": {"matchLabels": {"keep": "yes"}}})
    # It uses most and goes first: with the others, if their gang's label were enough.
    tenant.pod("runs", hostile_claims.by_resource(GPU, 2), labels={GANG: THEIRS})
    for number in range(PLAIN - 1):
        tenant.pod("runs", labels={} if number else {"keep": "yes"})
    stocked = [{"name": OWN_GATE}, {"name": "example.com/also"}]
    for number in range(4):
        tenant.pod("stock", {"schedulingGates": stocked[: 1 + number % 2]})
    tenant.make("Job", "work", job(2))
    tenant.make("Job", "later", job(2) | {"suspend": True})
    tenant.make("Deployment", "serve", many(2))
    tenant.make("ReplicaSet", "empty", many(0))
    hostile_claims.lay_by(tenant)


def prune(tenant: Tenant) -> None:
    """Fewer owners and fewer queued pods, so that an hour of this does not fill the machine."""
    waiting = [each["metadata"]["name"] for each in tenant.pods() if waits(each)]
    if len(waiting) < MOST_PODS:
        return
    for kind in ("StatefulSet", "CronJob", "DaemonSet", "ReplicationController", "ReplicaSet", "Job"):
        path = PATHS[kind].format(SPACE)
        for each in tenant.items(path):
            if each["metadata"]["name"] not in (THEIRS, "freed"):
                tenant.ask("DELETE", f"{path}/{each['metadata']['name']}?propagationPolicy=Background")
    for name in waiting:
        tenant.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
        tenant.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    for each in tenant.items(hostile_claims.CLAIMS):
        if not each.get("status", {}).get("reservedFor"):
            tenant.ask("DELETE", f"{hostile_claims.CLAIMS}/{each['metadata']['name']}")


def rounds(tenant: Tenant, look: Callable[[], None], until: Callable[[], bool]) -> None:
    """Every move at least once, in an order of chance, and again until it is time; after each one, somebody looks."""
    while True:
        for move in tenant.chance.sample(MOVES, len(MOVES)):
            move(tenant)
            look()
        prune(tenant)
        tenant.rounds += 1
        if until():
            break
    take_over(tenant)
    look()


def take_over(tenant: Tenant) -> None:
    """Last of all, the released Job is stopped and goes on, and is made anew under its name, larger; its pods stay for the new one."""
    for suspend in (True, False):
        tenant.patch(f"{JOBS}/freed", {"spec": {"suspend": suspend, "parallelism": 9}})
    tenant.ask("DELETE", f"{JOBS}/freed?propagationPolicy=Orphan")
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "freed"}, "spec": job(9)}
    for _ in range(3):
        tenant.ask("POST", JOBS, body)
