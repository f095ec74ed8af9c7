"""`headroom bench`: pods that use a known amount, and a report that compares it with what a budget counted."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct

from headroom.cli.grouped_help import GroupedCommand
from headroom.cli.options import Context, Form, Kubeconfig, Output
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube, Object

KWOK_RUN_TIME: Final = "pod-complete.stage.kwok.x-k8s.io/delay"
"""The annotation in which KWOK's stages look for how long a pod runs."""
MANAGED_BY: Final = "headroom-bench"
MS_PER_HOUR: Final = 3_600_000
MICRO: Final = 10**6
LARGEST_GPUS: Final = 10**6

app = typer.Typer(
    name="bench",
    help="Create pods with known usage, and check a budget with them.\n\nExample: headroom bench workload --count 50 --rate 10",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Label = Annotated[
    str, typer.Option(metavar="KEY=VALUE", help="The label of every pod, which the budget's selector matches.")
]
Count = Annotated[int, typer.Option(min=1, max=9999, help="How many pods.")]
Rate = Annotated[float, typer.Option(help="Pods a second.")]
Runtime = Annotated[str, typer.Option(metavar="DURATION", help="How long each pod runs, such as 30s or 1m30s.")]
Gpus = Annotated[str, typer.Option(metavar="QUANTITY", help="What each pod requests, such as 1 or 100m.")]


class BenchWorkload(Struct, frozen=True, kw_only=True):
    """Pods of one kind, one every so often. Amounts are millionths, times milliseconds."""

    count: int
    rate: Fraction
    runtime: int
    micro_gpus: int

    def begins(self, number: int) -> Fraction:
        """When a pod is made, in milliseconds after the first."""
        return number * 1000 / self.rate


def expected(workload: BenchWorkload, elapsed: int) -> Fraction:
    """GPU-hours that a workload should have used so many milliseconds after its first pod.

    A pod counts from the moment it is made, as if it started at once. So this is a schedule, not the truth: on a busy cluster pods
    start late.
    """
    held = Fraction(0)
    for number in range(workload.count):
        begins = workload.begins(number)
        if begins >= elapsed:
            break
        held += min(Fraction(elapsed), begins + workload.runtime) - begins
    return held * workload.micro_gpus / (MICRO * MS_PER_HOUR)


def accuracy(reported: Fraction, wanted: Fraction) -> float | None:
    """Reported by expected, however large; 1 where both are 0, and None where there is nothing to compare with."""
    if wanted:
        return float(reported / wanted)
    return None if reported else 1.0


@app.command(cls=GroupedCommand)
def workload(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Where the pods are made.")
    ] = "default",
    label: Label = "app=headroom-bench",
    count: Count = 10,
    rate: Rate = 1.0,
    runtime: Runtime = "30s",
    gpus: Gpus = "1",
    gpu_resource: Annotated[str, typer.Option(metavar="NAME", help="The resource they request.")] = "nvidia.com/gpu",
    image: Annotated[str, typer.Option(help="An image that has a `sleep`.")] = "busybox:1.37",
    prefix: Annotated[str, typer.Option(help="The prefix of the pods' names.")] = "bench-",
    kwok: Annotated[bool, typer.Option("--kwok", help="For KWOK nodes: annotate pods with their run time.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Create pods that sleep, one after the other.

    The first pod comes at once, then one every 1/rate seconds. They are named PREFIX0000, PREFIX0001 and so on, and stay until you
    delete them. On KWOK nodes no process runs, so --kwok sets the annotation pod-complete.stage.kwok.x-k8s.io/delay on each pod,
    which a stage of KWOK must read.

    Example: headroom bench workload --count 50 --rate 10 --runtime 1m
    """
    from headroom.cli import live, output

    key, value = _label(label)
    plan = _workload(count, rate, runtime, gpus)
    template = Template(
        namespace=namespace,
        prefix=prefix,
        labels={key: value, "managed-by": MANAGED_BY},
        annotations={KWOK_RUN_TIME: f"{plan.runtime}ms"} if kwok else {},
        resource=gpu_resource,
        gpus=gpus,
        image=image,
        seconds=f"{plan.runtime / 1000:g}",
    )
    making = Making(template, plan)
    settings = live.settings_of(kubeconfig, context)
    undo = f"delete them with: kubectl delete pods -n {namespace} -l managed-by={MANAGED_BY}"
    try:
        live.with_cluster(settings, making.work)
    except KeyboardInterrupt:
        output.say(f"\nheadroom: making pods: interrupted after {making.made} of {count}; {undo}")
        raise typer.Exit(output.INTERRUPTED) from None
    output.line(f"Made {output.counted(count, 'pod')} in {making.seconds:.1f} s; {undo}")


@app.command(cls=GroupedCommand)
def report(
    elapsed: Annotated[str, typer.Option(metavar="DURATION", help="How long after the first pod the status was read.")],
    status_json: Annotated[
        Path, typer.Option(metavar="FILE", help="The budget, or its status alone, as JSON; - is standard input.")
    ],
    count: Count = 10,
    rate: Rate = 1.0,
    runtime: Runtime = "30s",
    gpus: Gpus = "1",
    out_dir: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder for results.json and SUMMARY.md.")
    ] = Path(),
    label: Annotated[str, typer.Option(metavar="TEXT", help="A name for this run.")] = "",
    form: Output = Form.table,
) -> None:
    """Compare the usage that a budget counted with the expected one.

    The expected usage is a schedule: every pod counts from its planned creation. The ratio may exceed 1.

    Example: kubectl get gwb team-a -o json | headroom bench report --count 50 --rate 10 --elapsed 45s --status-json -
    """
    from headroom.cli import manifests, output
    from headroom.model import times
    from headroom.runtime.clock import RealClock

    plan = _workload(count, rate, runtime, gpus)
    at = _milliseconds("--elapsed", elapsed, least=0)
    [(source, text)] = manifests.read([status_json])
    found = _counted(text)
    if isinstance(found, str):
        output.say(f"{source}: {found}")
        raise typer.Exit(output.PROBLEMS)
    wanted = expected(plan, at)
    results = Results(
        scenario=BenchScenario(count=count, rate=rate, runtime_seconds=plan.runtime / 1000, gpus=gpus),
        elapsed_seconds=at / 1000,
        reported_gpu_hours=float(found.gpu_hours),
        expected_gpu_hours=float(wanted),
        delta_gpu_hours=float(found.gpu_hours - wanted),
        accuracy_ratio=accuracy(found.gpu_hours, wanted),
        tracked_pods=found.pods,
        label=label,
        generated_at=times.text(RealClock().now() // times.SECOND * times.SECOND),
    )
    _write(out_dir, results)
    _show(results, form)


# Making pods


class Template(Struct, frozen=True, kw_only=True):
    """What all pods of a workload have in common."""

    namespace: str
    prefix: str
    labels: dict[str, str]
    annotations: dict[str, str]
    resource: str
    gpus: str
    image: str
    seconds: str


def pod(template: Template, number: int) -> Object:
    """One pod of a workload."""
    amount = {template.resource: template.gpus}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{template.prefix}{number:04d}",
            "namespace": template.namespace,
            "labels": template.labels,
            "annotations": template.annotations,
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "sleep",
                    "image": template.image,
                    "command": ["sleep", template.seconds],
                    # An extended resource is refused unless the limit says the same.
                    "resources": {"requests": amount, "limits": amount},
                }
            ],
        },
    }


class Making:
    """Makes the pods of a workload, and knows how far it got."""

    def __init__(self, template: Template, plan: BenchWorkload) -> None:
        self._template, self._plan = template, plan
        self.made = 0
        self.seconds = 0.0

    async def work(self, kube: Kube) -> None:
        """Make them all, each in its time; those that are late come as fast as the server takes them."""
        from headroom.adapters.kube import errors, paths
        from headroom.cli import progress

        began = kube.clock.monotonic()
        with progress.shown("making pods", "pods", self._plan.count) as told:
            for number in range(self._plan.count):
                wait = began + float(self._plan.begins(number)) / 1000 - kube.clock.monotonic()
                if wait > 0:
                    await kube.clock.sleep(wait)
                try:
                    await kube.create(paths.pods(self._template.namespace), pod(self._template, number))
                except errors.AlreadyExists as error:
                    again = "delete the pods of an earlier run, or give another --prefix"
                    raise Misconfigured(f"{error}; {again}") from error
                self.made += 1
                told(self.made)
        self.seconds = kube.clock.monotonic() - began


# Reading flags


def _workload(count: int, rate: float, runtime: str, gpus: str) -> BenchWorkload:
    from headroom.api.quantities import NANO, InvalidQuantity, nano

    if not 0 < rate <= 1000:
        raise Misconfigured(
            f"reading the flags: --rate must be more than 0 and at most 1000 pods a second, not {rate:g}"
        )
    amount = nano(gpus, largest=LARGEST_GPUS)
    if isinstance(amount, InvalidQuantity):
        raise Misconfigured(f"reading the flags: --gpus {amount.reason}, not {gpus!r}")
    micro, rest = divmod(amount, NANO // MICRO)
    if micro <= 0 or rest:
        raise Misconfigured(f"reading the flags: --gpus must be a positive number of millionths, not {gpus!r}")
    length = _milliseconds("--runtime", runtime, least=1)
    return BenchWorkload(count=count, rate=Fraction(str(rate)), runtime=length, micro_gpus=micro)


def _milliseconds(flag: str, text: str, least: int) -> int:
    from headroom.model import times

    found = times.duration(text)
    if found is None or found < least:
        raise Misconfigured(f"reading the flags: {flag} must be a duration such as 45s or 1m30s, not {text!r}")
    return found


def _label(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not key or not value:
        raise Misconfigured(f"reading the flags: --label must be key=value with both parts, not {text!r}")
    if key == "managed-by":
        raise Misconfigured(
            "reading the flags: --label may not be managed-by, which marks the pods as ours; give another"
        )
    return key, value


# Reading what a budget counted


class _Counted(Struct, frozen=True):
    gpu_hours: Fraction
    pods: int


class _Status(Struct, rename="camel"):
    consumed_gpu_hours: str | int | float | None = None
    tracked_pods: int | None = None


class _Budget(Struct):
    status: _Status | None = None


def _counted(text: bytes) -> _Counted | str:
    """What a budget's JSON says, or why it says nothing."""
    import msgspec

    from headroom.api.quantities import NANO, InvalidQuantity, nano

    try:
        status = msgspec.json.decode(text, type=_Budget).status or msgspec.json.decode(text, type=_Status)
    except msgspec.DecodeError as error:
        return f"not a budget or its status as JSON: {error}"
    if status.consumed_gpu_hours is None:
        return "there is no consumedGpuHours in it; give what `kubectl get gwb NAME -o json` prints"
    given = str(status.consumed_gpu_hours)
    amount = nano(given)
    if isinstance(amount, InvalidQuantity):
        return f"consumedGpuHours {amount.reason}, not {given!r}"
    return _Counted(Fraction(amount, NANO), status.tracked_pods or 0)


# Writing


class BenchScenario(Struct, frozen=True, kw_only=True, rename="camel"):
    """The workload, as the flags gave it."""

    count: int
    rate: float
    runtime_seconds: float
    gpus: str


class Results(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `results.json` says."""

    scenario: BenchScenario
    elapsed_seconds: float
    reported_gpu_hours: float
    expected_gpu_hours: float
    delta_gpu_hours: float
    accuracy_ratio: float | None
    tracked_pods: int
    label: str
    generated_at: str


def _ratio(results: Results) -> str:
    return "none, nothing was expected" if results.accuracy_ratio is None else f"{results.accuracy_ratio:.4f}"


def _summary(results: Results) -> str:
    scenario = results.scenario
    rows = {
        "pods": f"{scenario.count} at {scenario.rate:g}/s, {scenario.runtime_seconds:g} s each, {scenario.gpus} each",
        "elapsed": f"{results.elapsed_seconds:g} s",
        "reported GPU-hours": f"{results.reported_gpu_hours:.9g}",
        "expected GPU-hours": f"{results.expected_gpu_hours:.9g}",
        "difference": f"{results.delta_gpu_hours:+.9f}",
        "accuracy ratio": _ratio(results),
        "tracked pods": f"{results.tracked_pods} of {scenario.count}",
        "generated": results.generated_at,
    }
    title = f"# Accuracy{f': {results.label}' if results.label else ''}"
    return "\n".join([title, "", "| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items()), ""])


def _show(results: Results, form: Form) -> None:
    import msgspec

    from headroom.cli import output

    if form.is_data:
        output.as_data(msgspec.to_builtins(results), form)
        return
    figures = f"reported {results.reported_gpu_hours:g}, expected {results.expected_gpu_hours:g} GPU-hours"
    output.line(f"{figures}: ratio {_ratio(results)}")


def _write(folder: Path, results: Results) -> None:
    import msgspec

    from headroom.cli import private

    try:
        folder.mkdir(parents=True, exist_ok=True)
        private.write(folder / "results.json", msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
        private.write(folder / "SUMMARY.md", _summary(results).encode())
    except OSError as error:
        raise Misconfigured(f"writing to {folder}: {error.strerror or error}; give another --out-dir") from error
