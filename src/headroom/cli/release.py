"""`headroom release`: ask the operator to release what a budget queues, before the quota has room for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from headroom.cli.options import Context, Kubeconfig
from headroom.model.errors import HeadroomError, Misconfigured, Refused, Unavailable

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource

WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.5
GANGS: Final = ("podgroup", "podgroups", "gang")
IDENTIFIED: Final = ("Pod", "Job", "Workload")
"""Kinds whose uid the pods behind the gate vouch for."""


class NamedTarget(NamedTuple):
    """A pod, an owner of pods, or a gang."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


class Asking(NamedTuple):
    """What all requests of one call have in common."""

    budget: str = ""
    reason: str = ""
    wait: bool = False


def release(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND/NAME...",
            help="Queued pods, jobs, jobsets, workloads or gangs; KIND/NAMESPACE/NAME works too.",
        ),
    ],
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Their namespace; by default that of the context."),
    ] = "",
    budget: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME", help="Release from this budget only; by default from all that queue it."
        ),
    ] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the record.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the operator has carried it out.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Release queued pods before the quota has room.

    Their usage counts as always. The command creates a ReleaseRequest, which the operator carries out once: it removes the gate
    headroom.dev/budget, and no other gate, from the pods that are queued at that time, and resumes a job, jobset or Kueue
    workload that Headroom suspended. You need the ClusterRole headroom-releaser. `kubectl get releaserequests` shows the result;
    deleting a request before it is done cancels it.

    Example: headroom release job/train -n lab --reason "conference deadline" --wait
    """
    from headroom.cli import live, output

    targets = [_target(each, namespace) for each in what]
    asking = Asking(budget, reason, wait)
    settings = live.settings_of(kubeconfig, context)
    if not all(each.namespace for each in targets):
        here = live.namespace_of(settings)
        targets = [each if each.namespace else each._replace(namespace=here) for each in targets]

    async def work(kube: Kube) -> list[str]:
        await _refuse_others(kube, targets, budget)
        return [why for each in targets if (why := await _outcome(kube, each, asking))]

    failures = live.with_cluster(settings, work)
    for why in failures:
        output.say(f"headroom: {why}")
    if failures:
        raise typer.Exit(output.COULD_NOT_RUN)


# --- what was written ---------------------------------------------------------------------------------------------------------


def _target(text: str, namespace: str = "") -> NamedTarget:
    """What is meant; without a namespace where none is written."""
    from headroom.cli.explain_pods import WORDS

    parts = text.split("/")
    most = 2 if namespace else 3
    if len(parts) > most or not all(parts):
        form = "KIND/NAME beside --namespace" if namespace else "NAME, KIND/NAME or KIND/NAMESPACE/NAME"
        raise Misconfigured(f"reading {text!r}: must be written {form}")
    if len(parts) == 2 and not namespace and parts[0].lower() not in {*WORDS, *GANGS}:
        return NamedTarget("Pod", *parts)
    kind = _kind(text, parts[0]) if len(parts) > 1 else "Pod"
    return NamedTarget(kind, namespace or (parts[1] if len(parts) == 3 else ""), parts[-1])


def _kind(text: str, word: str) -> str:
    from headroom.cli.explain import offered
    from headroom.cli.explain_pods import WORDS

    if word.lower() in WORDS:
        return WORDS[word.lower()]
    if word.lower() in GANGS:
        return "PodGroup"
    if word[:1].isupper():
        return word  # as a budget's status names a gang: RayCluster/lab/tune
    near = offered(word.lower(), {each: each for each in (*WORDS, *GANGS)})
    raise Misconfigured(
        f"reading {text!r}: no kind {word!r} can be released; write pod, job, jobset, workload or gang{near}"
    )


# --- who may -------------------------------------------------------------------------------------------------------------------


async def _refuse_others(kube: Kube, targets: list[NamedTarget], budget: str = "") -> None:
    """Raise `Refused` for who lacks a right; the API server would say no to their request anyway."""
    from headroom.adapters.kube.reviews import RequiredRight, lacking
    from headroom.api.budget_hold import BudgetHold, hold_name
    from headroom.api.releases import ReleaseRequest
    from headroom.api.resources import GROUP

    needs = [RequiredRight("release", BudgetHold.kind.plural, GROUP, name=hold_name(budget) if budget else "")]
    spaces = sorted({each.namespace for each in targets})
    needs += [RequiredRight("create", ReleaseRequest.kind.plural, GROUP, namespace) for namespace in spaces]
    missing = await lacking(kube, needs)
    if missing:
        raise Refused(f"releasing: you may not {' or '.join(map(str, missing))}; {_remedy()}")


def _remedy() -> str:
    from headroom.api.policies import RELEASER_ROLE

    return f"ask an administrator to bind you to the ClusterRole {RELEASER_ROLE}"


# --- asking --------------------------------------------------------------------------------------------------------------------


async def _outcome(kube: Kube, target: NamedTarget, asking: Asking) -> str:
    """Ask for one, and say so; why that could not be done."""
    from headroom.cli import output

    try:
        output.line(await release_one(kube, target, asking))
    except HeadroomError as error:
        return str(error)
    return ""


async def release_one(kube: Kube, target: NamedTarget, asking: Asking) -> str:
    """Ask for the release of one; what came of it, as a sentence."""
    from headroom.adapters.kube import errors

    exactly = await _exactly(kube, target)
    try:
        request = await _made(kube, target, asking, exactly)
    except errors.Forbidden as problem:
        raise Refused(f"releasing {target}: {problem}; {_remedy()}") from problem
    named = f"releaserequest {request.namespace}/{request.name}"
    if not asking.wait:
        return f"Asked for {target}: {named}."
    return await _finished(kube, target, request, named)


async def _exactly(kube: Kube, target: NamedTarget) -> dict[str, Any]:
    """What is meant, so that nothing else of its name is released: its uid, where pods tell of it, and the version of an owner."""
    from headroom.adapters.kube import errors, paths, raw
    from headroom.adapters.kube.changing import meta, read

    if target.kind != "Pod" and target.kind not in paths.OWNERS:
        return {}
    is_pod = target.kind == "Pod"
    path = paths.pod(target.namespace, target.name) if is_pod else paths.owner(*target)
    try:
        found = await read(kube, path, raw.RawPod if is_pod else raw.Object)
    except errors.Forbidden:
        return {}  # the operator will see what it is
    if found is None:
        raise await _none(kube, target)
    if isinstance(found, raw.RawPod) and not (found.spec and found.spec.scheduling_gates):
        raise Refused(f"releasing {target}: no budget queues it")  # a hold also keeps what somebody else has gated
    exactly: dict[str, Any] = {"uid": meta(found).uid if target.kind in IDENTIFIED else None}
    exactly["generation"] = None if is_pod else meta(found).generation
    return {name: value for name, value in exactly.items() if value}


async def _made(kube: Kube, target: NamedTarget, asking: Asking, exactly: dict[str, Any]) -> AnyResource:
    """The request, as the API server keeps it."""
    from headroom.adapters.kube import errors, parse, paths, raw
    from headroom.api.releases import ReleaseRequest
    from headroom.api.resources import API_VERSION, GROUP
    from headroom.cli.preflight import CRD_REMEDY

    kind = ReleaseRequest.kind
    plain = re.sub("[^a-z0-9-]", "-", f"{target.kind}-{target.name}".lower()).strip("-")[:200]
    spec: dict[str, Any] = {"target": {"kind": target.kind, "name": target.name} | exactly}
    spec |= {name: value for name, value in (("budget", asking.budget), ("reason", asking.reason)) if value}
    document = {"apiVersion": API_VERSION, "kind": kind.name, "metadata": {"generateName": f"{plain}-"}, "spec": spec}
    try:
        answer = await kube.create(paths.collection(kind.name, target.namespace), document)
    except errors.NotFound as problem:
        lacks = f"the cluster lacks {kind.plural}.{GROUP}, or namespace {target.namespace}"
        raise Misconfigured(f"releasing {target}: {lacks}; {CRD_REMEDY}") from problem
    return parse.resource(raw.plain(answer))


async def _finished(kube: Kube, target: NamedTarget, request: AnyResource, named: str) -> str:
    """Wait until the operator has done it, or refused; what it says."""
    from headroom.adapters.kube import errors, parse, paths, raw
    from headroom.api.releases import FINISHED

    path = paths.resource(request.kind, request.namespace, request.name)
    deadline = kube.clock.monotonic() + WAIT_SECONDS
    while request.status.phase not in FINISHED:
        if kube.clock.monotonic() >= deadline:
            why = (
                request.status.message
                or "the operator has not looked at it; `headroom status` shows the operator's state"
            )
            raise Unavailable(f"releasing {target}: not done within {WAIT_SECONDS:g} s, {named} stands: {why}")
        await kube.clock.sleep(POLL_SECONDS)
        try:
            request = parse.resource(raw.plain(await kube.get(path)))
        except errors.NotFound as problem:
            raise Refused(f"releasing {target}: {named} was deleted before it was done") from problem
    if request.status.phase == "Refused":
        raise Refused(f"releasing {target}: {request.status.message} ({request.status.reason})")
    return str(request.status.message)


async def _none(kube: Kube, target: NamedTarget) -> Misconfigured:
    """There is none of that name: those that look alike are named."""
    from headroom.adapters.kube import decode, errors, paths
    from headroom.cli.explain import offered

    is_pod = target.kind == "Pod"
    path = paths.pods(target.namespace) if is_pod else paths.owner(target.kind, target.namespace)
    pages, names = decode.names(), list[str]()
    try:
        async for body in kube.pages(path):
            names += [each.name for each in pages.page(body).items]
    except (errors.NotFound, errors.Forbidden):
        names = []  # nothing can be offered
    near = offered(target.name, {name: str(target._replace(name=name)) for name in names})
    where = f"`kubectl get {target.kind.lower()}s -n {target.namespace}` lists them"
    return Misconfigured(f"releasing {target}: not found{near}; {where}")
