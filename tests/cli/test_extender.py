"""`headroom extender` given what it cannot work with: one line that says what, and exit code 2."""

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Headroom


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a cluster that nobody answers for."""
    file = tmp_path / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "gone",
        "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "me"}}],
        "clusters": [{"name": "gone", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {}}],
    }
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_cluster_that_does_not_answer(headroom: Headroom, kubeconfig: Path) -> None:
    done = headroom("extender", "--kubeconfig", kubeconfig)
    assert (done.code, "cannot reach http://127.0.0.1:1" in done.err) == (2, True)


def test_a_flag_out_of_range(headroom: Headroom) -> None:
    done = headroom("extender", "--candidates", "0")
    assert (done.code, "HEADROOM_EXTENDER_CANDIDATES" in done.err) == (2, True)


def test_a_setting_of_bandwidth_that_cannot_be_read(
    headroom: Headroom, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADROOM_BANDWIDTH_LOCAL", "ten")
    done = headroom("extender", "--kubeconfig", kubeconfig)
    assert (done.code, "--bandwidth-local (HEADROOM_BANDWIDTH_LOCAL) must be up/down" in done.err) == (2, True)
