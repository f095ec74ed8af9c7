"""The command line as a whole: quick to start, helpful, and never a traceback for what a user can mend."""

from importlib import metadata
from pathlib import Path

import pytest
import typer
import yaml

from headroom.api import generate
from headroom.api.kinds import DEFINITIONS
from headroom.cli.main import COMMANDS
from headroom.runtime.settings import Settings
from tests.cli.conftest import Headroom


def test_help_says_what_the_exit_codes_mean(headroom: Headroom) -> None:
    said = " ".join(headroom("--help").out.split())
    assert "Exit codes: 0 success; 1 the input has problems" in said
    names = [each for _, group in COMMANDS for each in group]
    named = [str(each.info.name) if isinstance(each, typer.Typer) else each.__name__ for each in names]
    assert [each for each in named if f" {each} " not in said] == []


def test_every_setting_is_a_flag_of_run(headroom: Headroom) -> None:
    said = " ".join(headroom("run", "--help").out.split())
    for name in Settings.__struct_fields__:
        assert f"--{name.replace('_', '-')}" in said
        assert f"HEADROOM_{name.upper()}" in said


@pytest.mark.parametrize(
    "flags",
    [("--log-level", "loud"), ("--writes-per-second", "0"), ("--write-burst", "many"), ("--no-such-flag",)],
)
def test_a_wrong_flag_ends_with_2_and_no_traceback(headroom: Headroom, flags: tuple[str, ...]) -> None:
    done = headroom("run", "--kubeconfig", "none", *flags)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err


def test_a_misspelt_variable_is_one_sentence(headroom: Headroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_LOG_LEVLE", "debug")
    done = headroom("run", "--kubeconfig", "none")
    assert done.code == 2
    assert done.err == (
        "headroom: reading the settings: HEADROOM_LOG_LEVLE: no such setting; HEADROOM_LOG_LEVEL is one\n"
    )


def test_crds_prints_every_kind(headroom: Headroom) -> None:
    printed = list(yaml.safe_load_all(headroom("crds").out))
    assert [each["spec"]["names"]["kind"] for each in printed] == list(DEFINITIONS)


def test_policies_prints_what_is_in_deploy(headroom: Headroom) -> None:
    printed, kept = headroom("policies").out, (generate.ROOT / "deploy" / "policies.yaml").read_text()
    assert list(yaml.safe_load_all(printed)) == list(yaml.safe_load_all(kept))
    assert printed.startswith("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n")


def test_version(headroom: Headroom) -> None:
    assert headroom("version").out == f"headroom {metadata.version('headroom')} (headroom.dev/v1alpha1)\n"
    assert headroom("--version").out == headroom("version").out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--write-burst", "x"), "--write-burst (HEADROOM_WRITE_BURST) must be a whole number, not 'x'\n"),
        (
            ("--health-address", "8081"),
            "(HEADROOM_HEALTH_ADDRESS) must be host:port such as 0.0.0.0:8443, not '8081'\n",
        ),
        (("--watch",), "--watch is for a dry run; give --dry-run too, or leave it out\n"),
        ((), "reading kubeconfig none: no such file; check the path\n"),
    ],
)
def test_what_run_refuses_is_one_sentence(headroom: Headroom, flags: tuple[str, ...], says: str) -> None:
    done = headroom("run", "--kubeconfig", "none", *flags)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(says)
    assert done.err.count("\n") == 1


def test_a_manifest_is_no_kubeconfig(headroom: Headroom, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\n")
    done = headroom("run", "--kubeconfig", file)
    assert done.code == 2
    assert done.err == f"headroom: reading kubeconfig {file}: it is of kind Pod, not Config; give a kubeconfig\n"
