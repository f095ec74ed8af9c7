"""While a budget holds: new pods that it covers wait behind a gate, and there is no way round.

One BudgetHold at a time is the parameter, as `params`; the expressions know its spec as `b`.
"""

from __future__ import annotations

from typing import Final

from headroom.api.budget_hold import BudgetHold
from headroom.api.durations import LONGEST, PATTERN
from headroom.api.marks import EXPECTED_DURATION, GATE, HELD_BECAUSE, HELD_BY, PROTECTED, RELEASED_AT
from headroom.api.policies import cel
from headroom.api.resources import API_VERSION, GROUP
from headroom.api.schema import Json

HOLD: Final = "headroom-hold"
HELD: Final = "headroom-held"
LENGTH: Final = "headroom-length"
EVERY_HOLD: Final = {"selector": {}, "parameterNotFoundAction": "Allow"}

_PARAMETERS: Final = {"apiVersion": API_VERSION, "kind": BudgetHold.kind.name}
BECAUSE: Final = "(has(params.spec.because) ? params.spec.because : '')"

# --- what is said --------------------------------------------------------------------------------------------------------------

_EXEMPT: Final = f"a user who may release budgetholds.{GROUP}"
WAITS: Final = f"a budget queues new pods now; {_EXEMPT} is exempt"
_STANDS: Final = "budget {budget} queues new pods now ({because})"
NAMES_ITS_NODE: Final = (
    f"pod {{pod}} names its node, so it would start at once, but {_STANDS}: leave out spec.nodeName to queue it, "
    f"or have it created by {_EXEMPT}"
)
NOT_GATED: Final = (
    f"pod {{pod}} must be queued, since {_STANDS}, but it has no scheduling gate {GATE}: another admission policy or "
    f"webhook changed it after Headroom's policy; fix that, or have it created by {_EXEMPT}"
)
RELABELLED: Final = (
    f"the label {{keys}} of pod {{pod}} cannot change, since {_STANDS} and selects pods by it: wait until it has room, "
    f"or ask {_EXEMPT}"
)
LAST_GATE: Final = (
    f"pod {{pod}} keeps its last scheduling gate, {{gates}}, since {_STANDS}: it is queued, and its gate can be removed "
    f"once Headroom has released the pod; headroom explain pod/{{pod}} shows the estimated start, or ask {_EXEMPT}"
)


def _of_hold(expression: str) -> str:
    return f"[params.spec].exists(b, {expression})"


def _said(template: str, **values: str) -> str:
    return cel.text(template, pod=cel.POD, budget="params.spec.budget", because=BECAUSE, **values)


# --- the gate ------------------------------------------------------------------------------------------------------------------


def hold() -> dict[str, Json]:
    """A new pod that a held budget covers gets the gate, also while no operator runs.

    Whoever else decides when it starts, such as Kueue, decides before or after us: their marks on a pod or in its owner's template prove
    nothing, since tenants write both, and Kueue admits what it queues sooner than an operator could stop it.

    Of several budgets the first by name is written onto the pod. As with the finalizer of exact accounting, the condition passes over
    labels that another policy or a webhook may still add, so that the server asks again after that.
    """
    by = f"{cel.annotations_of()}['{HELD_BY}']"
    unmarked = cel.either(f"!{cel.gated(GATE)}", f"!{cel.annotated(HELD_BY)}", f"b.budget < {by}")
    marks = (
        f"Object{{metadata: Object.metadata{{annotations: {{'{HELD_BY}': params.spec.budget, '{HELD_BECAUSE}': {BECAUSE}}}}}, "
        f"spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{GATE}'}}]}}}}"
    )
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "paramKind": _PARAMETERS,
        "matchConstraints": cel.pods("CREATE"),
        "matchConditions": [
            {
                "name": "may-have-to-wait",
                "expression": _of_hold(
                    cel.both(
                        cel.HERE,
                        f"!{cel.BOUND}",
                        cel.NO_MIRROR_POD,
                        f"!{cel.annotated(PROTECTED)}",
                        unmarked,
                        cel.selected(unless_missing=True),
                        cel.counted(),
                    )
                ),
            }
        ],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"{_of_hold(cel.selected())} ? {marks} : Object{{}}"},
            }
        ],
    }


# --- no way round --------------------------------------------------------------------------------------------------------------

_OLD, _NEW = cel.labels_of("oldObject"), cel.labels_of()
_KEYS_CHANGED: Final = f"{cel.SELECTOR_KEYS}.filter(key, {cel.differs('key', _NEW, _OLD)})"
_COVERED: Final = cel.both(cel.selected(), cel.counted())
_COVERED_BEFORE: Final = cel.both(cel.selected("oldObject"), cel.counted("oldObject"))
_RELABELLED: Final = cel.both(f"{_NEW} != {_OLD}", f"{_KEYS_CHANGED}.size() > 0", cel.either(_COVERED_BEFORE, _COVERED))
# Of our own gate the guard speaks, at all times.
_LIFTED: Final = cel.both(
    f"!{cel.gates('object')}",
    cel.gates("oldObject"),
    f"!{cel.gated(GATE, 'oldObject')}",
    f"!{cel.annotated(RELEASED_AT, 'oldObject')}",
    f"!{cel.annotated(PROTECTED, 'oldObject')}",
    _COVERED_BEFORE,
)
"""A gate can only be set at creation, so a pod that was made before the hold behind somebody else's gate has to keep that one."""
_STARTS: Final = cel.both(
    cel.NO_MIRROR_POD,
    f"!{cel.annotated(PROTECTED)}",
    f"{cel.BOUND} || !{cel.gated(GATE)}",
    _COVERED,
)
"""A new pod that has to wait would not."""


def held() -> dict[str, Json]:
    """Validated after all mutation: no pod that must wait starts, none leaves the budget by its labels, and none comes in.

    Whoever set the last gate, a covered pod keeps it until an operator or somebody else with the right to release has released the pod.

    Every hold is asked about every write, so this looks at pods only and not at their status, which kubelets write all the time; the
    guard, which is asked once, lets no label change that way.
    """
    changed = f"[params.spec].map(b, {_KEYS_CHANGED}.join(' and '))[0]"
    wrong = f"{cel.CREATED} ? ({_STARTS}) : ({cel.either(_RELABELLED, _LIFTED)})"
    return {
        "failurePolicy": "Fail",
        "paramKind": _PARAMETERS,
        "matchConstraints": cel.pods("CREATE", "UPDATE"),
        "matchConditions": [{"name": "way-round", "expression": _of_hold(cel.both(cel.HERE, wrong))}],
        "variables": [
            cel.EXEMPT,
            {"name": "relabelled", "expression": f"!({cel.CREATED}) && {_of_hold(_RELABELLED)}"},
            {"name": "lifted", "expression": f"!({cel.CREATED}) && {_of_hold(_LIFTED)}"},
        ],
        "validations": [
            _refuse(f"{cel.CREATED} && {cel.BOUND}", _said(NAMES_ITS_NODE)),
            _refuse(f"{cel.CREATED} && !{cel.BOUND}", _said(NOT_GATED)),
            _refuse("variables.relabelled", _said(RELABELLED, keys=f"{cel.CREATED} ? '' : {changed}")),
            _refuse("variables.lifted", _said(LAST_GATE, gates=f"{cel.CREATED} ? '' : {cel.gate_names('oldObject')}")),
        ],
    }


def _refuse(wrong: str, words: str) -> dict[str, Json]:
    return cel.refusal(wrong, words, WAITS)


# --- the declared length -------------------------------------------------------------------------------------------------------


def readable(length: str) -> str:
    """Whether a text is a length of time above 0."""
    return (
        f"({length}.size() <= {LONGEST} && {length} != '' && {length}.matches('{PATTERN}') && "
        f"duration({length}) > duration('0s'))"
    )


def length() -> dict[str, Json]:
    """A pod that declares how long it runs is ended then, so that the declaration cannot lie."""
    declared = f"{cel.annotations_of()}['{EXPECTED_DURATION}']"
    seconds = f"duration({declared}).getSeconds()"
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": cel.pods("CREATE"),
        "matchConditions": [
            {
                "name": "runs-longer",
                "expression": cel.both(
                    cel.annotated(EXPECTED_DURATION),
                    cel.NO_MIRROR_POD,
                    readable(declared),
                    f"!has(object.spec.activeDeadlineSeconds) || object.spec.activeDeadlineSeconds > {seconds}",
                ),
            }
        ],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": f"Object{{spec: Object.spec{{activeDeadlineSeconds: {seconds}}}}}"
                },
            }
        ],
    }
