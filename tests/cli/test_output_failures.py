"""Output that cannot be written, or not in this alphabet: one sentence, the right exit code, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

BUDGET = """apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: "n\u00e4me", namespace: lab}
spec: {}
"""


def run(*words: str, out: int | IO[bytes] = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "headroom", *words]
    return subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env={**os.environ, **environment}, check=False)


def test_a_full_disk_is_no_problem_of_the_input() -> None:
    with Path("/dev/full").open("wb") as full:
        done = run("crds", out=full)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("headroom: writing the output: No space left on device")
    assert b"Traceback" not in done.stderr


def test_output_that_nobody_takes_is_no_failure() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" -m headroom version >&-', sys.executable], stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_name_that_the_alphabet_lacks_is_still_told(tmp_path: Path) -> None:
    file = tmp_path / "budget.yaml"
    file.write_text(BUDGET, encoding="utf-8")
    done = run("check", str(file), PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", LC_ALL="C")
    assert done.returncode == 1
    assert b"GPUWorkloadBudget/lab/n\\xe4me" in done.stdout
    assert b"Traceback" not in done.stderr
