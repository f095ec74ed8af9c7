"""What counts as a GPU: resources and device classes by their names."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from headroom.model.facts import Amounts

ANY: Final = ""
"""The resource name of rows that say how many GPUs they count and not of which kind."""
_ACCELERATOR: Final = re.compile(r"(?:^|[./])(?:v?gpu|mig-|[tnx]pu|gaudi|neuron|dcu|mlu)", re.ASCII)


@lru_cache(maxsize=1024)
def is_gpu(name: str) -> bool:
    """Whether a resource or a device class is a GPU or another accelerator: nvidia.com/gpu, gpu.intel.com/xe, google.com/tpu."""
    return name == ANY or bool(_ACCELERATOR.search(name))


def has_gpus(amounts: Amounts, resource: str = "") -> bool:
    """Whether some amounts have GPUs of any name, or of the `resource`, whose name need not say so."""
    return any(amount and (name == resource or is_gpu(name)) for name, amount in amounts)
