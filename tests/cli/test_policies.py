"""`headroom policies`: for whichever account the operator has."""

from __future__ import annotations

import pytest
import yaml

from headroom.api import generate
from tests.cli.conftest import Headroom


def test_they_are_those_of_deploy(headroom: Headroom) -> None:
    done = headroom("policies")
    written = yaml.safe_load_all((generate.ROOT / "deploy" / "policies.yaml").read_text())
    assert list(yaml.safe_load_all(done.out)) == list(written)


def test_the_fence_is_for_the_account_that_is_named(headroom: Headroom) -> None:
    user = "system:serviceaccount:gpu:budgets"
    done = headroom("policies", "--account", user)
    assert f"request.userInfo.username == '{user}'" in done.out
    assert "system:serviceaccount:headroom-system:headroom" not in done.out
    # Nor does it evict in its own namespace.
    assert "['kube-system', 'gpu']" in done.out


@pytest.mark.parametrize("user", ["", "a' || true || '", "a b", "a\\"])
def test_a_name_that_is_none_is_refused(headroom: Headroom, user: str) -> None:
    done = headroom("policies", "--account", user)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("headroom: reading --account ")
