"""BudgetIndex: what the API server's own policies know of all budgets. Only the operator writes it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from headroom.api.resources import AGE_COLUMN, ApiType, Definition, LabelSelector, SelectorRequirement
from headroom.api.schema import Rule

INDEX_NAME: Final = "headroom"
"""The name of the one object."""
MOST_BUDGETS: Final = 2000
MOST_NAMESPACES: Final = 10_000
MOST_NAMES: Final = 256

_Name = Annotated[str, Meta(max_length=63)]
_Resource = Annotated[str, Meta(min_length=1, max_length=317)]


class Covered(ApiType, frozen=True, kw_only=True):
    """Which pods a budget covers, as the policies need it."""

    budget: Annotated[str, Meta(max_length=317, description="The budget, namespace/name.")]
    namespaces: Annotated[
        tuple[_Name, ...], Meta(max_length=MOST_NAMESPACES, description="The namespaces whose pods it covers.")
    ] = ()
    match_labels: Annotated[dict[str, _Name], Meta(max_length=32, description="Labels that its pods have.")] = {}
    match_expressions: Annotated[
        tuple[SelectorRequirement, ...], Meta(max_length=16, description="Conditions on their labels.")
    ] = ()
    resources: Annotated[
        tuple[_Resource, ...],
        Meta(
            max_length=MOST_NAMES,
            description=(
                "The resources it counts, extended resources that device classes back included; a name may end in *."
            ),
        ),
    ] = ()


class IndexEntry(Covered, frozen=True, kw_only=True):
    """One budget, as the policies need it. The one of no budget has the names that device classes of GPUs go by."""

    namespace_selector: Annotated[
        LabelSelector | None,
        Meta(
            description=(
                "Which namespaces it covers, by their labels, instead of those in `namespaces`: lists of names for many budgets "
                "would not fit into one object."
            )
        ),
    ] = None
    exact: Annotated[bool, Meta(description="Its pods get a finalizer, so that their end is recorded.")] = False


class BudgetIndexSpec(ApiType, frozen=True, kw_only=True):
    """The selectors, resources and namespaces of all budgets, for the policies of the API server."""

    budgets: Annotated[tuple[IndexEntry, ...], Meta(max_length=MOST_BUDGETS, description="Every budget, once.")] = ()


class BudgetIndex:
    """The kind as a whole."""

    kind: ClassVar[Definition] = Definition(
        name="BudgetIndex",
        plural="budgetindexes",
        short_names=("bgi",),
        namespaced=False,
        spec=BudgetIndexSpec,
        columns=(AGE_COLUMN,),
        rules=(
            Rule(
                cel=f"self.metadata.name == '{INDEX_NAME}'",
                message=f"must be called {INDEX_NAME}: there can be only one",
                holds=lambda it: it["metadata"].get("name") == INDEX_NAME,
            ),
        ),
    )
