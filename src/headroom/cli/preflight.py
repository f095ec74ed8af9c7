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
    from headroom.adapters.kube.reviews import RequiredRight
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
        await _namespace(kube, settings.operator_namespace)


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
    needed = [kind.plural for kind in DEFINITIONS.values() if kind.needed]
    missing = [f"{plural}.{GROUP}" for plural in needed if plural not in served]
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
        raise Refused(f"checking permissions: this user may not {_spoken(missing)}; grant it as deploy/rbac.yaml does")


def _spoken(missing: list[RequiredRight]) -> str:
    """Each resource once, with all verbs that are missing for it."""
    verbs: dict[str, list[str]] = {}
    for need in missing:
        verbs.setdefault(need.target, []).append(need.verb)
    return "; ".join(f"{' or '.join(found)} {target}" for target, found in verbs.items())


def needs(settings: Settings) -> list[RequiredRight]:
    """Every right that the operator uses, by name where it is about single objects; a dry run needs to read only."""
    from headroom.adapters.kube.config_maps import PRICES, SETTINGS
    from headroom.adapters.kube.reviews import RequiredRight
    from headroom.api.budget_index import INDEX_NAME, BudgetIndex
    from headroom.api.kinds import DEFINITIONS
    from headroom.api.resources import GROUP

    seen, own = _seen(), settings.operator_namespace
    found = [RequiredRight(verb, plural, group) for plural, group in seen for verb in ("list", "watch")]
    maps = (SETTINGS, PRICES)
    found += [
        RequiredRight(verb, "configmaps", namespace=own, name=name) for name in maps for verb in ("list", "watch")
    ]
    if not settings.cluster_id:
        found.append(RequiredRight("get", "namespaces", name="kube-system"))
    if settings.dry_run:
        return found
    # What a list lacks is looked for by name before it counts as gone.
    only = {BudgetIndex.kind.plural: INDEX_NAME}
    found += [RequiredRight("get", plural, group, name=only.get(plural, "")) for plural, group in seen]
    found += [RequiredRight("get", "configmaps", namespace=own, name=name) for name in maps]
    definitions = [f"{kind.plural}.{GROUP}" for kind in DEFINITIONS.values() if kind.needed]
    found += [
        RequiredRight("get", "customresourcedefinitions", "apiextensions.k8s.io", name=name) for name in definitions
    ]
    return found + _writes(settings)


def _seen() -> list[tuple[str, str]]:
    """The plurals and groups of all kinds that are watched as a whole."""
    from headroom.adapters.kube import admission, sources
    from headroom.api.kinds import DEFINITIONS
    from headroom.api.resources import GROUP

    found = [("pods", ""), ("nodes", "")]
    found += [(each.plural, each.group) for each in sources.SOURCES if each.group != GROUP]
    # Without the others everything but what needs them goes on, as after an upgrade of the operator alone.
    found += [(kind.plural, GROUP) for kind in DEFINITIONS.values() if kind.needed]
    return found + [(plural, "admissionregistration.k8s.io") for plural in admission.KINDS]


def _owners() -> list[tuple[str, str]]:
    from headroom.adapters.kube.paths import OWNERS

    return [(plural, group) for group, _, plural in OWNERS.values()]


def _writes(settings: Settings) -> list[RequiredRight]:
    from headroom.adapters.kube.karpenter import NODE_CLASSES
    from headroom.adapters.kube.reviews import RequiredRight
    from headroom.api.bandwidth import Bandwidth
    from headroom.api.bandwidth_config import CONFIG_NAME, NATIVE, BandwidthConfig
    from headroom.api.budget_hold import BudgetHold
    from headroom.api.budget_index import INDEX_NAME, BudgetIndex
    from headroom.api.kinds import KINDS
    from headroom.api.offers import LeftoverNodePool
    from headroom.api.resources import GROUP
    from headroom.api.spot_pools import Spotpool

    index, hold = BudgetIndex.kind.plural, BudgetHold.kind.plural
    found = [RequiredRight("patch", f"{kind.plural}/status", GROUP) for kind in KINDS.values() if kind.needed]
    found += [RequiredRight("create", index, GROUP), RequiredRight("update", index, GROUP, name=INDEX_NAME)]
    found += [RequiredRight(verb, hold, GROUP) for verb in ("create", "update", "delete", "release")]
    found += [RequiredRight("patch", plural, group) for plural, group in (("pods", ""), ("nodes", ""), *_owners())]
    found += [
        RequiredRight("patch", each.kind.plural, GROUP) for each in (Spotpool, LeftoverNodePool)
    ]  # their finalizer
    found += [RequiredRight(verb, "nodepools", "karpenter.sh") for verb in ("create", "patch", "delete")]
    classes = [(plural, group) for group, _, plural in NODE_CLASSES.values()]
    found += [RequiredRight(verb, plural, group) for plural, group in classes for verb in ("create", "delete")]
    found += [RequiredRight(verb, Bandwidth.kind.plural, GROUP) for verb in ("create", "delete")]
    if settings.bandwidth_mode != "Off":
        # What the API server's policies know of bandwidth; without them no pod is placed by it.
        config, name = BandwidthConfig.kind.plural, CONFIG_NAME
        found += [RequiredRight(verb, config, GROUP) for verb in ("list", "watch", "create")]
        found += [RequiredRight(verb, config, GROUP, name=name) for verb in ("get", "update")]
    if settings.bandwidth_mode == NATIVE:
        found.append(RequiredRight("patch", "nodes/status"))
        found += [RequiredRight(verb, "nodeoverlays", "karpenter.sh") for verb in ("create", "patch", "delete")]
    found += [RequiredRight("create", "pods/eviction"), RequiredRight("list", "poddisruptionbudgets", "policy")]
    found += [RequiredRight(verb, "events") for verb in ("get", "create", "patch")]
    if settings.elect_leader:
        leases = ("leases", "coordination.k8s.io", settings.operator_namespace)
        found.append(RequiredRight("create", *leases))
        found += [RequiredRight(verb, *leases, settings.lease_name) for verb in ("get", "update")]
    if settings.metrics_address and not settings.metrics_plain:
        found.append(RequiredRight("create", "tokenreviews", "authentication.k8s.io"))
        found.append(RequiredRight("create", "subjectaccessreviews", "authorization.k8s.io"))
    return found


class _UserInfo(Struct, frozen=True):
    username: str = ""


class _Told(Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _SelfReview(Struct, frozen=True):
    status: _Told = _Told()


class _Condition(Struct, frozen=True):
    expression: str = ""


class _PolicySpec(Struct, frozen=True, rename="camel"):
    match_conditions: list[_Condition] = []


class _Policy(Struct, frozen=True):
    spec: _PolicySpec = _PolicySpec()


async def unfenced(kube: Kube) -> str:
    """Why no policy limits what our own account may change, as a sentence; empty if one does, or nobody can tell.

    It is no reason not to start: the fence is against whoever steals the account's token, and they would not ask.
    """
    import msgspec

    from headroom.adapters.kube import errors, paths
    from headroom.api.policies import OPERATOR
    from headroom.model.errors import HeadroomError

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    where = paths.of("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", name=OPERATOR)
    try:
        told = await kube.create(paths.of("authentication.k8s.io", "v1", "selfsubjectreviews"), review)
        user = msgspec.json.decode(told, type=_SelfReview).status.user_info.username
        policy = msgspec.json.decode(await kube.get(where), type=_Policy)
    except errors.NotFound as problem:
        if not errors.says_gone(problem, OPERATOR):
            return ""
        return f"the ValidatingAdmissionPolicy {OPERATOR} is not installed: apply the output of `headroom policies`"
    except (HeadroomError, msgspec.MsgspecError):
        return ""
    if not user or any(f"'{user}'" in each.expression for each in policy.spec.match_conditions):
        return ""
    return (
        f"the ValidatingAdmissionPolicy {OPERATOR} is for another account: apply the output of "
        f"`headroom policies --account {user}`"
    )


async def _namespace(kube: Kube, name: str) -> None:
    from headroom.adapters.kube import errors, paths

    try:
        await kube.get(paths.namespace(name))
    except errors.NotFound as error:
        raise Misconfigured(
            f"looking for the operator's namespace: there is no {name}; "
            f"run `kubectl create namespace {name}` or give --operator-namespace"
        ) from error
    except errors.Forbidden:
        return  # we may not look; the lease will tell
