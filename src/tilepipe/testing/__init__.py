"""Testing kernels: over all interleavings (`check`), over some with a reference (`run`), under
delays (`perturb`).
"""

from tilepipe.testing.checking import CheckFailed as CheckFailed
from tilepipe.testing.checking import check as check
from tilepipe.testing.numerics import Comparison as Comparison
from tilepipe.testing.numerics import compare as compare
from tilepipe.testing.numerics import compare_matmul as compare_matmul
from tilepipe.testing.running import NoDevice as NoDevice
from tilepipe.testing.running import WrongResult as WrongResult
from tilepipe.testing.running import perturb as perturb
from tilepipe.testing.running import run as run

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
