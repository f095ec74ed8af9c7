"""The sushy library: asks a BMC so many times for the power of a system, each time with a client of its own."""

import json
import sys
import time
from importlib.metadata import distribution, version
from pathlib import Path

import sushy
from sushy import auth

from bench.readers import cost


def size_of(name: str) -> int:
    """Bytes that a package has on disk."""
    files = [Path(str(each.locate())) for each in distribution(name).files or ()]
    return sum(each.stat().st_size for each in files if each.is_file())


def needs_of(name: str) -> list[str]:
    """The packages that it names without a condition, by name."""
    given = [each for each in distribution(name).requires or () if ";" not in each]
    plain = ["".join(letter if letter.isalnum() or letter in "-_." else " " for letter in each) for each in given]
    return [each.split()[0].lower() for each in plain]


def installed(name: str) -> dict[str, int]:
    """A package and all that it needs, with their sizes."""
    found: dict[str, int] = {}
    left = [name]
    while left:
        each = left.pop()
        if each not in found:
            found[each] = size_of(each)
            left += needs_of(each)
    return found


if __name__ == "__main__":
    url, system, authority, user, password, count = sys.argv[1:]
    times = []
    before = cost.cpu_seconds()
    for _ in range(int(count)):
        began = time.perf_counter()
        root = sushy.Sushy(f"{url}/redfish/v1", verify=authority, auth=auth.BasicAuth(user, password))
        assert root.get_system(f"/redfish/v1/Systems/{system}").power_state.value == "Off"
        times.append(time.perf_counter() - began)
    used = cost.cpu_seconds() - before
    told = {"times": times, "cpu": used, "packages": installed("sushy"), "version": version("sushy")}
    sys.stdout.write(json.dumps(told) + "\n")
