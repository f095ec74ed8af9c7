"""What must be true before the operator starts: somebody answers, our kinds are there, and we have the rights that we need.

Each thing that is missing is one sentence that says what to do, here and not later in a log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from headroom.cli import live
from headroom.model.errors import Misconfigured, Refused

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.adapters.kube.config import ClientConfig
    from headroom.adapters.kube.reviews import Need
    from headroom.runtime.settings import Settings

CRD_REMEDY: Final = "run `kubectl apply -f deploy/crds`, or `headroom crds | kubectl apply -f -`"


class _Kind(Struct):
    name: str = ""


class _Kinds(Struct):
    resources: list[_Kind] = []


async def check(kube: Kube, config: ClientConfig, settings: Settings) -> None:
    """Raise for the first thing that is missing."""
    await live.answers(kube, config)
    await _kinds(kube)
    await _rights(kube, settings)
    if not settings.dry_run:
        await _namespace(kube, settings.namespace)


async def _kinds(kube: Kube) -> None:
    import msgspec

    from headroom.adapters.kube import errors
    from headroom.api.kinds import DEFINITIONS
    from headroom.api.resources import GROUP, VERSION

    try:
        body = await kube.get(f"/apis/{GROUP}/{VERSION}")
        served = {each.name for each in msgspec.json.decode(body, type=_Kinds).resources}
    except errors.NotFound:
        served = set()
    missing = [f"{kind.plural}.{GROUP}" for kind in DEFINITIONS.values() if kind.plural not in served]
    if missing:
        raise Misconfigured(f"looking for Headroom's kinds: the cluster lacks {', '.join(missing)}; {CRD_REMEDY}")


async def may_observe(kube: Kube, settings: Settings) -> None:
    """Raise, before anything is read, unless we may read all that a whole view is made of."""
    from msgspec import structs

    await _rights(kube, structs.replace(settings, dry_run=True))


async def _rights(kube: Kube, settings: Settings) -> None:
    from headroom.adapters.kube.reviews import lacking

    missing = await lacking(kube, needs(settings))
    if missing:
        raise Refused(
            f"asking for our rights: we may not {_spoken(missing)}; grant that to this user as deploy/rbac.yaml does"
        )


def _spoken(missing: list[Need]) -> str:
    """Each resource once, with all verbs that are missing for it."""
    verbs: dict[str, list[str]] = {}
    for need in missing:
        verbs.setdefault(need.target, []).append(need.verb)
    return "; ".join(f"{' or '.join(found)} {target}" for target, found in verbs.items())


def needs(settings: Settings) -> list[Need]:
    """Every right that the operator uses; a dry run needs to read only."""
    from headroom.adapters.kube import admission, devices, karpenter
    from headroom.adapters.kube.paths import OWNERS
    from headroom.adapters.kube.reviews import Need
    from headroom.api.budget_hold import BudgetHold
    from headroom.api.kinds import KINDS, OPERATOR_KINDS
    from headroom.api.resources import GROUP

    plurals, others = ([kind.plural for kind in kinds.values()] for kinds in (KINDS, OPERATOR_KINDS))
    owners = [(plural, group) for group, _, plural in OWNERS.values()]
    own = settings.namespace
    seen = [("pods", ""), ("nodes", ""), ("namespaces", ""), *owners]
    seen += [(plural, devices.GROUP) for plural in devices.KINDS.values()]
    seen += [(plural, GROUP) for plural in (*plurals, *others)]
    seen += [(plural, "admissionregistration.k8s.io") for plural in admission.KINDS]
    seen += [(plural, "karpenter.sh") for plural in karpenter.KINDS.values()]
    found = [Need(verb, plural, group) for plural, group in seen for verb in ("list", "watch")]
    found += [Need(verb, "configmaps", namespace=own) for verb in ("list", "watch")]
    if not settings.cluster_id:
        found.append(Need("get", "namespaces", name="kube-system"))
    if settings.dry_run:
        return found
    # What a list lacks is looked for by name before it counts as gone.
    found += [Need("get", plural, group) for plural, group in seen]
    found.append(Need("get", "configmaps", namespace=own))
    found.append(Need("get", "customresourcedefinitions", "apiextensions.k8s.io"))
    found += [Need("patch", f"{plural}/status", GROUP) for plural in plurals]
    found += [Need(verb, plural, GROUP) for plural in others for verb in ("create", "update")]
    found += [Need(verb, BudgetHold.kind.plural, GROUP) for verb in ("delete", "release")]
    found += [Need("patch", plural, group) for plural, group in (("pods", ""), ("nodes", ""), *owners)]
    found.append(Need("get", "secrets", namespace=own))
    found += [Need("create", "pods/eviction"), Need("list", "poddisruptionbudgets", "policy")]
    found += [Need(verb, "events") for verb in ("get", "create", "patch")]
    if settings.elect_leader:
        found += [Need(verb, "leases", "coordination.k8s.io", own) for verb in ("get", "create", "update")]
    if settings.metrics_address and not settings.metrics_plain:
        found.append(Need("create", "tokenreviews", "authentication.k8s.io"))
        found.append(Need("create", "subjectaccessreviews", "authorization.k8s.io"))
    return found


async def _namespace(kube: Kube, name: str) -> None:
    from headroom.adapters.kube import errors, paths

    try:
        await kube.get(paths.namespace(name))
    except errors.NotFound as error:
        raise Misconfigured(
            f"looking for the operator's namespace: there is no {name}; "
            f"run `kubectl create namespace {name}` or give --namespace"
        ) from error
    except errors.Forbidden:
        return  # we may not look; the lease will tell
