"""`headroom release`: let a pod start that a budget holds, or resume what Headroom suspended, before the quota has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headroom.cli.options import Context, Kubeconfig
from headroom.model.errors import HeadroomError, Misconfigured, Refused

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube


class Target(NamedTuple):
    """A pod, or an owner of pods."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


def release(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[KIND/]NAMESPACE/NAME...",
            help="Pods that wait, or jobs, jobsets and workloads that are suspended.",
        ),
    ],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let pods start that a budget holds.

    Its quota has no room for them yet; what they use counts as ever. It lifts the gate headroom.dev/budget of a pod and no other gate, and resumes a job, jobset or workload of Kueue that Headroom suspended. It acts with your own rights: it takes the verb release on budgetholds.headroom.dev, which the ClusterRole headroom-releaser has.

    Example: headroom release pod/lab/train-0
    """
    from headroom.cli import live, output

    targets = [_target(each) for each in what]
    settings = live.settings_of(kubeconfig, context)

    async def work(kube: Kube) -> list[str]:
        await _refuse_others(kube)
        return [why for each in targets if (why := await _outcome(kube, each))]

    failures = live.with_cluster(settings, work)
    for why in failures:
        output.say(f"headroom: {why}")
    if failures:
        raise typer.Exit(output.COULD_NOT_RUN)


async def _outcome(kube: Kube, target: Target) -> str:
    """Release one, and say so; why that could not be done."""
    from headroom.cli import output

    try:
        output.line(await release_one(kube, target))
    except HeadroomError as error:
        return str(error)
    return ""


async def release_one(kube: Kube, target: Target) -> str:
    """Release a pod or an owner; what was done, as a sentence."""
    from headroom.adapters.kube import errors

    try:
        return await (_release_pod(kube, target) if target.kind == "Pod" else _resume_owner(kube, target))
    except errors.Forbidden as problem:
        raise Refused(f"releasing {target}: {problem}; {_remedy()}") from problem


async def _refuse_others(kube: Kube) -> None:
    """Raise `Refused` for who lacks the right; the API server's policies would say no to their change anyway."""
    from headroom.adapters.kube.reviews import Need, lacking
    from headroom.api.budget_hold import BudgetHold
    from headroom.api.resources import GROUP

    need = Need("release", BudgetHold.kind.plural, GROUP)
    if await lacking(kube, [need]):
        raise Refused(f"releasing pods: you may not {need}; {_remedy()}")


def _remedy() -> str:
    from headroom.api.policies import RELEASER_ROLE

    return f"have an administrator bind you to the ClusterRole {RELEASER_ROLE}"


def _target(text: str) -> Target:
    from headroom.cli.explain import offered
    from headroom.cli.explain_pods import WORDS

    parts = text.split("/")
    word = parts[0].lower() if len(parts) == 3 else "pod"
    if len(parts) not in (2, 3) or not all(parts):
        raise Misconfigured(f"reading {text!r}: must be written NAMESPACE/NAME or KIND/NAMESPACE/NAME")
    if word not in WORDS:
        near = offered(word, {each: each for each in WORDS})
        raise Misconfigured(f"reading {text!r}: {word!r} can be no pod, job, jobset or workload{near}")
    return Target(WORDS[word], *parts[-2:])


async def _release_pod(kube: Kube, target: Target) -> str:
    from headroom.adapters.kube import paths, raw
    from headroom.adapters.kube.changing import Outcome, change
    from headroom.adapters.kube.effects_pods import released
    from headroom.model import times

    path, at = paths.pod(target.namespace, target.name), times.text(kube.clock.now())
    outcome, pod = await change(kube, path, raw.Pod, lambda found: released(found, at))
    if outcome is Outcome.GONE:
        raise await _none(kube, target)
    others = _other_gates(pod)
    if outcome is Outcome.SAME:
        why = f"; it waits for {' and '.join(others)}" if others else ""
        raise Refused(f"releasing {target}: it is not held by Headroom{why}")
    still = f"; it still waits for {' and '.join(others)}" if others else ""
    return f"Released {target}{still}."


def _other_gates(pod: Any) -> list[str]:
    from headroom.api.marks import GATE

    gates = (pod.spec.scheduling_gates if pod and pod.spec else None) or []
    return [each.name for each in gates if each.name != GATE]


async def _resume_owner(kube: Kube, target: Target) -> str:
    from headroom.adapters.kube import paths
    from headroom.adapters.kube.changing import Outcome, Patch, change, notes
    from headroom.adapters.kube.effects_owners import Owner, let_go
    from headroom.api.marks import SUSPENDED_BY
    from headroom.model import times

    def undone(owner: Owner) -> Patch | None:
        is_ours = SUSPENDED_BY in notes(owner)
        return let_go(target.kind, owner, times.text(kube.clock.now())) if is_ours else None

    outcome, _ = await change(kube, paths.owner(*target), Owner, undone)
    if outcome is Outcome.GONE:
        raise await _none(kube, target)
    if outcome is Outcome.SAME:
        raise Refused(f"releasing {target}: Headroom has not suspended it")
    return f"Resumed {target}."


async def _none(kube: Kube, target: Target) -> Misconfigured:
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
    return Misconfigured(f"releasing {target}: there is none{near}; {where}")
