"""The names by which Headroom's own marks on other people's objects are known."""

from __future__ import annotations

from typing import Final

from headroom.api.resources import GROUP

GATE: Final = f"{GROUP}/budget"
"""The scheduling gate of a pod that waits for a budget."""
EXPECTED_DURATION: Final = f"{GROUP}/expected-duration"
PROTECTED: Final = f"{GROUP}/protected"
PAUSED_AT: Final = f"{GROUP}/paused-at"
PAUSED_BY: Final = f"{GROUP}/paused-by"
CHECKPOINTED_AT: Final = f"{GROUP}/checkpointed-at"
HELD_BY: Final = f"{GROUP}/held-by"
HELD_BECAUSE: Final = f"{GROUP}/held-because"
CONTROLLER_UID: Final = f"{GROUP}/controller-uid"
"""An annotation of queued pods: the uid of the owner whose controller made the pod, written by the API server."""
RELEASED_AT: Final = f"{GROUP}/released-at"
RELEASED_GENERATION: Final = f"{GROUP}/released-generation"
"""An annotation of owners that were let go: the generation that they had then. What they ask for was judged only if it is still that."""
SUSPENDED: Final = f"{GROUP}/suspended"
"""A label of owners that Headroom suspended."""
LET_GO: Final = "released"
"""Its value on an owner that was let go, for as long as it matters when that was."""
SUSPENDED_BY: Final = f"{GROUP}/suspended-by"
SUSPENDED_AT: Final = f"{GROUP}/suspended-at"
REQUIRE_BUDGET: Final = f"{GROUP}/require-budget"
"""A label of namespaces in which every GPU pod must have a budget."""
CORDONED_BY: Final = f"{GROUP}/cordoned-by"
"""An annotation of nodes: which PowerPool keeps new pods away."""
USABLE_BY: Final = f"{GROUP}/usable-by"
"""An annotation of Secrets: which pools may send it, and where."""
