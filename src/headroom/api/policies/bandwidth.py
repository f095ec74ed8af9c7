"""Bandwidth at the moment a pod is made: rates that nobody can read are refused, and kube-scheduler gets what it needs.

The BandwidthConfig are the parameter. Where there are none, nothing is added and nothing refused.
"""

from __future__ import annotations

from typing import Final

from headroom.api.bandwidth import MARKER, SIBLINGS, TRAFFIC
from headroom.api.bandwidth_config import (
    CONFIG_NAME,
    EXAMPLES,
    EXTENDED_RATES,
    EXTENDER,
    LOCALITY,
    NATIVE,
    WAYS,
    BandwidthConfig,
)
from headroom.api.policies import cel
from headroom.api.quantities import MAX_LENGTH, PATTERN
from headroom.api.resources import API_VERSION, GROUP
from headroom.api.schema import Json

BANDWIDTH: Final = "headroom-bandwidth"
RATES: Final = "headroom-rates"
CONFIG_OR_NOTHING: Final = {"name": CONFIG_NAME, "parameterNotFoundAction": "Allow"}
LONGEST_SHOWN: Final = 40
FORM: Final = PATTERN.replace("\\", "\\\\")
"""Of texts that are handed to `quantity`: an exponent of many digits would keep it busy for ever."""
NUMBER: Final = "^[0-9]+([.][0-9]*)?$"
"""Megabits per second are plain numbers."""

# --- what is said --------------------------------------------------------------------------------------------------------------

_FIELD: Final = "metadata.annotations[{key}] of pod {pod}"
MALFORMED: Final = f"{_FIELD} must be a rate from 1k to 1P bits per second, such as {{example}}, not {{value}}"
NO_TRAFFIC: Final = f"{_FIELD} must be {SIBLINGS}, or be left out, not {{value}}"
NO_LABEL: Final = (
    f"{_FIELD} must name a label of the pod that its siblings share, such as app; it has no label {{value}}"
)
NOT_ASKED: Final = (
    "pod {pod} must request {missing} in its first container, as its annotations say: another admission policy or webhook "
    "changed it after Headroom's policy; fix that"
)
EDITED: Final = (
    "the annotation {key} of pod {pod} cannot change, since the pod is placed by it: recreate the pod "
    f"with another one, or ask a user who may release budgetholds.{GROUP}"
)
PLAIN: Final = "the bandwidth that a pod requests must be a rate from 1k to 1P bits per second, and cannot change"

# --- pieces --------------------------------------------------------------------------------------------------------------------

_PARAMETERS: Final = {"apiVersion": API_VERSION, "kind": BandwidthConfig.kind.name}
_MODE: Final = "(has(params.spec.mode) ? params.spec.mode : 'Off')"
_HOST_NETWORK: Final = "(has(object.spec.hostNetwork) && object.spec.hostNetwork)"
_AMOUNT: Final = "quantity(r.unit == 'Mbps' ? t + 'M' : t)"
"""The text `t` in the unit of the annotation `r`."""


def _keys(way: str) -> str:
    return f"(has(params.spec.{way}) ? params.spec.{way} : [])"


def _default(way: str) -> str:
    field = f"params.spec.default{way.title()}"
    return f"(has({field}) && {_keys(way)}.size() > 0 ? {field} : '')"


_ALL_KEYS: Final = f"({_keys('egress')} + {_keys('ingress')})"
_MARKS: Final = f"['{TRAFFIC}', '{LOCALITY}']"


def _annotated(keys: str, of: str = "object") -> str:
    has = f"{of}.metadata.annotations"
    return f"(has({has}) && {keys}.exists(r, r.annotation in {has}))"


def _marked(of: str = "object") -> str:
    has = f"{of}.metadata.annotations"
    return f"(has({has}) && {_MARKS}.exists(k, k in {has}))"


def _readable(text: str) -> str:
    """Whether a text, in the unit of the annotation `r`, is a rate; its length and form are looked at first."""
    is_number = f"(r.unit != 'Mbps' || t.matches('{NUMBER}'))"
    # Parts of a bit count as a whole one, so 999.5 is a thousand.
    in_range = f"{_AMOUNT}.isGreaterThan(quantity('999')) && !{_AMOUNT}.isGreaterThan(quantity('1P'))"
    return f"[{text}].exists(t, t.size() <= {MAX_LENGTH} && t.matches('{FORM}') && isQuantity(t) && {is_number} && {in_range})"


def _mbps(text: str) -> str:
    """That rate in whole Mbps, rounded up exactly: of the numbers around the nearest one, the least that is not less."""
    near = f"int({_AMOUNT}.asApproximateFloat() / 1000000.0)"
    enough = f"n > 0 && quantity(string(n) + 'M').compareTo({_AMOUNT}) >= 0"
    return f"[{text}].map(t, [{near}].map(g, [g - 1, g, g + 1, g + 2].filter(n, {enough})[0])[0])[0]"


def _variables() -> list[Json]:
    """What the pod asks for in each direction, in whole Mbps; 0 where it says nothing that can be read."""
    found = [("annotations", cel.annotations_of())]
    for way in WAYS:
        text = f"(variables.{way}Said.size() > 0 ? variables.annotations[r.annotation] : {_default(way)})"
        rates = f"[variables.{way}From[0]].map(r, {_readable(text)} ? {_mbps(text)} : 0)[0]"
        found += [
            (f"{way}Said", f"{_keys(way)}.filter(r, r.annotation in variables.annotations)"),
            (f"{way}From", f"variables.{way}Said.size() > 0 ? variables.{way}Said : {_keys(way)}"),
            (way, f"variables.{way}From.size() == 0 ? 0 : {rates}"),
        ]
    return [{"name": name, "expression": expression} for name, expression in found]


# --- what is added -------------------------------------------------------------------------------------------------------------


def _if(condition: str, value: str) -> str:
    return f"{condition} ? optional.of({value}) : optional.none()"


_RESERVED: Final = {names[0]: f"variables.{way}" for way, names in EXTENDED_RATES.items()}
"""The extended resources that pods request in native mode, and how much of each: of the card, which has its share of the virtual switch."""


def _resources() -> str:
    each = [
        f"?'{name}': {_if(f'{_MODE} == {NATIVE!r} && {amount} > 0', f'string({amount})')}"
        for name, amount in _RESERVED.items()
    ]
    each += [f"?'{MARKER}': {_if(f'{_MODE} == {EXTENDER!r}', repr('1'))}"]
    return f"{{{', '.join(each)}}}"


def _reserving() -> str:
    """Requests and limits of the first container: of extended resources they are the same."""
    resources = f"Object.spec.containers.resources{{requests: {_resources()}, limits: {_resources()}}}"
    container = f"Object.spec.containers{{name: object.spec.containers[0].name, resources: {resources}}}"
    return f"Object.spec{{containers: [{container}]}}"


def _noting() -> str:
    """The defaults that the pod gets, in its annotations, so that everybody reads the same there."""
    each = [
        f"?({_keys(way)}.size() > 0 ? {_keys(way)}[0].annotation : '{way}'): "
        + _if(f"variables.{way}Said.size() == 0 && {_default(way)} != ''", _default(way))
        for way in WAYS
    ]
    return f"Object.metadata{{annotations: {{{', '.join(each)}}}}}"


def reserved() -> dict[str, Json]:
    """A new pod with bandwidth gets what its mode needs: its rates as extended resources, or the mark by which the extender is asked.

    What runs on the network of the node is not limited there, so nothing is reserved for it.
    """
    has_default = cel.either(*(f"{_default(way)} != ''" for way in WAYS))
    is_placed = f"{_MODE} != 'Off' && (variables.egress > 0 || variables.ingress > 0)"
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "paramKind": _PARAMETERS,
        "matchConstraints": cel.pods("CREATE"),
        "matchConditions": [
            {
                "name": "has-bandwidth",
                "expression": cel.both(
                    cel.either(_annotated(_ALL_KEYS), has_default),
                    f"{_MODE} != 'Off' || {has_default}",
                    f"!{_HOST_NETWORK}",
                    cel.NO_MIRROR_POD,
                ),
            }
        ],
        "variables": _variables(),
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": f"Object{{metadata: {_noting()}, ?spec: {_if(is_placed, _reserving())}}}"
                },
            },
            {"patchType": "JSONPatch", "jsonPatch": {"expression": _near_siblings()}},
        ],
    }


def _near_siblings() -> str:
    """Where the pods of an owner asked for it: rather onto nodes with pods of the same label. It costs kube-scheduler speed.

    The list is one value to the API server, so a pod that has preferences of its own keeps them as they are.
    """
    key = f"variables.annotations['{LOCALITY}']"
    label = f"{{{key}: object.metadata.labels[{key}]}}"
    term = f"{{'topologyKey': dyn('kubernetes.io/hostname'), 'labelSelector': dyn({{'matchLabels': {label}}})}}"
    preferred = f"[{{'weight': dyn(100), 'podAffinityTerm': dyn({term})}}]"
    name, affinity = "preferredDuringSchedulingIgnoredDuringExecution", "object.spec.affinity"
    whole = [
        (f"!has({affinity})", "", f"{{'podAffinity': {{'{name}': {preferred}}}}}"),
        (f"!has({affinity}.podAffinity)", "/podAffinity", f"{{'{name}': {preferred}}}"),
        (f"!has({affinity}.podAffinity.{name})", f"/podAffinity/{name}", preferred),
    ]
    patches = " : ".join(
        f"{condition} ? [JSONPatch{{op: 'add', path: '/spec/affinity{path}', value: {value}}}]"
        for condition, path, value in whole
    )
    wanted = cel.both(
        f"{_MODE} == '{NATIVE}'",
        f"'{LOCALITY}' in variables.annotations",
        "has(object.metadata.labels)",
        f"{key} in object.metadata.labels",
    )
    return f"!({wanted}) ? [] : {patches} : []"


# --- what is refused -----------------------------------------------------------------------------------------------------------

_TOUCHED: Final = cel.either(
    *(
        f"{keys}.exists(k, {cel.differs('k', cel.annotations_of(), cel.annotations_of('oldObject'))})"
        for keys in (f"{_ALL_KEYS}.map(r, r.annotation)", _MARKS)
    )
)


def _shown(text: str) -> str:
    cut = f"({text}.size() > {LONGEST_SHOWN} ? {text}.substring(0, {LONGEST_SHOWN}) + '...' : {text})"
    return f"{cut}.replace('\\n', ' ')"


def rates_kept() -> dict[str, Json]:
    """A rate that nobody can read is refused, and the one by which a pod was placed stays.

    In mode `Off` nothing is placed by it: KubeOVN lets people change the rates of a running pod, and the accounting tells of it.
    """
    edited = cel.both(
        f"{_MODE} != 'Off'",
        "has(object.metadata.annotations) || has(oldObject.metadata.annotations)",
        f"{cel.annotations_of()} != {cel.annotations_of('oldObject')}",
        _TOUCHED,
    )
    said = cel.both(cel.either(_annotated(_ALL_KEYS), _marked()), cel.NO_MIRROR_POD)
    return {
        "failurePolicy": "Fail",
        "paramKind": _PARAMETERS,
        # An update of the status may change the metadata too.
        "matchConstraints": cel.outside(cel.rule(["CREATE"], ["pods"]), cel.rule(["UPDATE"], ["pods", "pods/*"])),
        "matchConditions": [{"name": "says-bandwidth", "expression": f"{cel.CREATED} ? ({said}) : ({edited})"}],
        "variables": [cel.EXEMPT, *_variables(), *_wrong()],
        "validations": [
            _refused("variables.malformed.size() > 0", _words(MALFORMED, "variables.malformed[0]")),
            _refused("variables.strayed.size() > 0", _words(NO_TRAFFIC, TRAFFIC)),
            _refused("variables.nowhere.size() > 0", _words(NO_LABEL, LOCALITY)),
            _refused(
                "variables.missing.size() > 0",
                cel.text(NOT_ASKED, pod=cel.POD, missing="variables.missing.join(' and ')"),
            ),
            cel.refusal(
                f"!({cel.CREATED})",
                cel.text(EDITED, pod=cel.POD, key=f"{cel.CREATED} ? '' : variables.edited.join(' and ')"),
                PLAIN,
            ),
        ],
    }


def _refused(wrong: str, words: str) -> dict[str, Json]:
    """Nobody is exempt: a value without a meaning serves no one."""
    return cel.refusal(wrong, words, PLAIN) | {"expression": f"!({cel.CREATED} && {wrong})"}


def _words(template: str, found: str) -> str:
    """About one annotation: an entry of the settings, or a mark of ours by its key."""
    key = f"'{found}'" if "/" in found else f"{found}.annotation"
    values = {"pod": cel.POD, "key": key, "value": _shown(f"variables.annotations[{key}]")}
    if "{example}" in template:
        values["example"] = f"({found}.unit == 'Mbps' ? '{EXAMPLES['Mbps']}' : '{EXAMPLES['bits']}')"
    return cel.text(template, **values)


def _wrong() -> list[Json]:
    """What may be wrong with a new pod, each as a list."""
    text = "variables.annotations[r.annotation]"
    asked = "object.spec.containers[0].resources.requests"
    amounts = ", ".join(f"['{name}', string({amount})]" for name, amount in _RESERVED.items())
    wanted = (
        f"(variables.egress == 0 && variables.ingress == 0) || {_HOST_NETWORK} ? [] : {_MODE} == '{NATIVE}' ? "
        f"[{amounts}].filter(w, w[1] != '0') : {_MODE} == '{EXTENDER}' ? [['{MARKER}', '1']] : []"
    )
    has_requests = "has(object.spec.containers[0].resources) && has(object.spec.containers[0].resources.requests)"
    is_asked = f"w[0] in {asked} && quantity(string({asked}[w[0]])).compareTo(quantity(w[1])) == 0"
    found = {
        "malformed": f"(variables.egressSaid + variables.ingressSaid).filter(r, !{_readable(text)})",
        "strayed": f"['{TRAFFIC}'].filter(k, k in variables.annotations && variables.annotations[k] != '{SIBLINGS}')",
        "nowhere": (
            f"['{LOCALITY}'].filter(k, k in variables.annotations && !(variables.annotations[k] in {cel.labels_of()}))"
        ),
        "wanted": wanted,
        "missing": f"variables.wanted.filter(w, !({has_requests} && {is_asked})).map(w, w[1] + ' ' + w[0])",
        "edited": (
            f"({_ALL_KEYS}.map(r, r.annotation) + {_MARKS}).filter(k, "
            f"{cel.differs('k', cel.annotations_of(), cel.annotations_of('oldObject'))})"
        ),
    }
    return [{"name": name, "expression": expression} for name, expression in found.items()]
