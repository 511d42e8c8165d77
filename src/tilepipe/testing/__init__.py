"""Testing kernels: over all interleavings (`check`), over some with a reference (`run`), under
delays (`perturb`).
"""

from tilepipe.testing.checking import CheckFailed as CheckFailed, check as check
from tilepipe.testing.numerics import (
    Comparison as Comparison,
    compare as compare,
    compare_matmul as compare_matmul,
)
from tilepipe.testing.running import (
    NoDevice as NoDevice,
    WrongResult as WrongResult,
    perturb as perturb,
    run as run,
)

__all__ = [
    "CheckFailed",
    "Comparison",
    "NoDevice",
    "WrongResult",
    "check",
    "compare",
    "compare_matmul",
    "perturb",
    "run",
]
