"""The cases, as PTX: what is printed of every op is right. NVRTC compiles it, and the reader, which
shares no code with the printer, runs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.scalars import check
from tests.support.case_classes import by_name
from tilepipe.errors import PtxError
from tools.snapshot import doors

HOPPER, BLACKWELL = "sm_90a", "sm_100a"
# Lists whose kernels only one of the architectures has.
ONLY = {
    **dict.fromkeys(("mma", "dequantised", "packed"), HOPPER),
    **dict.fromkeys(("tmem", "block_scale"), BLACKWELL),
}
CASES = [
    (key, case, arch)
    for key, case in doors.cases()
    for arch in (HOPPER, BLACKWELL)
    if arch == ONLY.get(key.split("/")[0], arch)
]


def classes(key: str, case: Any, arch: str, seed: int) -> list[str]:
    """The lists; and of those on tensor memory, operand types and settings."""
    kind = key.split("/")[0]
    return by_name(case) if kind in ("tmem", "block_scale") else [kind]


@pytest.mark.slow
@pytest.mark.sampled(suite=60, classes=classes)
@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize(
    ("key", "case", "arch"), CASES, ids=[f"{key} {arch}" for key, _, arch in CASES]
)
def test_the_print_computes_what_numpy_computes(key: str, case: Any, arch: str, seed: int) -> None:
    program, out, want, limit = case.make(np.random.default_rng(seed))
    try:
        program.ptx(arch).run(seed)
    except PtxError as error:
        if "is not modelled" in str(error):
            pytest.xfail(str(error))
        raise
    check(out, want, limit)
