"""A Karpenter that does not know a field that Headroom writes. By its name the last file of its piece: Karpenter cannot go on after it."""

import contextlib
import re

from tests.integration.accounts import Document
from tests.integration.enforced import wait_for
from tests.integration.karpented import NODE_POOLS, A, B, Karpented, kind_of

CRD = "apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepools.karpenter.sh"


def test_an_unknown_field_is_told_of_and_not_written_again_and_again(karpented: Karpented) -> None:
    karpented.market.put("u1.xlarge", A, 1.0)
    karpented.market.put("u2.xlarge", B, 2.0)
    ladder = karpented.ladder("unknown", 51, 60, families=["u1"])
    ladder.wait_for_rungs("u1.xlarge")
    karpented.karpenter.kill()
    part: Document = karpented.api.send("GET", CRD)
    spec = part["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["template"]["properties"]["spec"]["properties"]["expireAfter"]
    karpented.api.send("PUT", CRD, part)
    failures = len(refusals(karpented, "unknown"))
    ladder.edit(families=["u1", "u2"])
    wait_for(lambda: ladder.says()[:2] == ("False", "ApplyNodePoolError"), "it is told of")
    wait_for(lambda: "expireAfter" in ladder.says()[2], "the field is named")
    wait_for(lambda: is_served(karpented), "NodePools are served again")
    assert [kind_of(each) for each in ladder.node_pools()] == ["u1.xlarge"]
    # As many as there are NodePools, and a few more tries.
    assert len(refusals(karpented, "unknown")) - failures <= 6


def is_served(karpented: Karpented) -> bool:
    """A definition that was changed is not served for a moment."""
    with contextlib.suppress(AssertionError):
        return bool(karpented.api.items(NODE_POOLS))
    return False


def refusals(karpented: Karpented, name: str) -> list[str]:
    """Writes of NodePools that failed, as the operator's log has them."""
    return re.findall(rf".*effect failed.*ApplyNodePool.*{name}.*", karpented.operator.log)
