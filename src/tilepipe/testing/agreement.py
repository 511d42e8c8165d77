"""Whether two results of one computation agree, neither of which is the exact one: they may differ
by the roundings of both, in sums of another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.testing.arguments import Array, numbers

# Of the root mean square, for the error of all elements together. Outputs of 16 and 8 bits: a few
# units of roundoff, for both sides have rounded; float32: products of tf32 or of 16-bit
# probabilities, which float32 outputs are often sums of.
ALLOWED = {
    "float64": 1e-6,
    "float32": 2e-3,
    "float16": 2e-3,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 0.1,
    "float8_e5m2": 0.2,
}
SINGLE = 8.0  # what one element may be off by, of ALLOWED · (|element| + root mean square)


@dataclass(frozen=True)
class Agreement:
    """How far two arrays are apart.

    Attributes:
        ok: they agree. rel_error: ‖got - want‖ / ‖want‖. allowed: what that may be.
        wrong: elements that are off by more than one element may be. at: the worst of them; where
            there is none, the one that differs most.
    """

    ok: bool
    rel_error: float
    allowed: float
    wrong: int
    at: tuple[int, ...]

    def __str__(self) -> str:
        verdict = "agrees" if self.ok else f"DIFFERS, {self.wrong:,} elements, most at {self.at}"
        return f"relative difference {self.rel_error:.1e} (at most {self.allowed:g}), {verdict}"

    def report(self) -> dict[str, Any]:
        """The comparison as `--json` prints it."""
        return {
            "ok": self.ok,
            "rel_error": self.rel_error,
            "allowed": self.allowed,
            "wrong": self.wrong,
        }


def agreement(name: str, got: Array, want: object) -> Agreement:
    """Compares an output with what it should agree with. Integers must be equal; a NaN agrees with
    a NaN, an infinity with itself.

    Raises:
        BindError: no array of numbers, or of another shape.
    """
    other = numbers(f"what '{name}' is compared with", want)
    if other.shape != got.shape:
        raise BindError(
            f"output '{name}' has shape {got.shape}, and what it is compared with {other.shape}"
        )
    names = {got.dtype.name, other.dtype.name}
    allowed = max((ALLOWED[x] for x in names & ALLOWED.keys()), default=0.0)
    a, b = got.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(b)
        rms = float(np.sqrt(np.mean(np.square(b[finite])))) if finite.any() else 0.0
        error = np.where(same, 0.0, np.where(np.isfinite(a) & finite, np.abs(a - b), np.inf))
        off = error > SINGLE * allowed * (np.abs(np.where(finite, b, 0.0)) + rms)
    total = float(np.sqrt(np.sum(np.square(error))))
    norm = rms * float(np.sqrt(max(int(finite.sum()), 1)))
    rel = total / norm if norm else (0.0 if total == 0 else float("inf"))
    worst = int(np.argmax(error)) if error.size else 0
    at = tuple(int(i) for i in np.unravel_index(worst, error.shape)) if error.size else ()
    wrong = int(off.sum())
    return Agreement(not wrong and rel <= allowed, rel, allowed, wrong, at)
