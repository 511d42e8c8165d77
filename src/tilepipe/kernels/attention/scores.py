"""What an attention kernel does with scores between Q · Kᵀ and the softmax: which keys a query
sees, and how its scores are changed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.host_arguments import plain_bool, plain_int, shown
from tilepipe.kernels.attention.validation import NAME

LARGEST_BOUND = 2**30  # places of a bound, added to those of queries and keys, fit in an int32

ScoreFunction = Callable[
    [tp.Context, tp.FragmentValue, tp.FragmentValue, tp.FragmentValue, tp.Value],
    tp.FragmentValue,
]


@dataclass(frozen=True)
class Window:
    """Which keys a query sees. Query i stands at the key i + s_kv - s_q, so that the last query
    stands at the last key, or, `from_first`, at the key i; it sees the keys from `left` before that
    place to `right` after it. None: all keys on that side.
    """

    left: int | None = None
    right: int | None = None
    from_first: bool = False

    @classmethod
    def of(
        cls, causal: object, window: object, align: object = "last", *, kernel: str = NAME
    ) -> Window:
        """The window that the arguments of a call state.

        Args:
            causal: True or False; True: no key after the query's place.
            window: None, or a pair (left, right) of numbers of keys; None or -1 in it is no bound.
            align: "last": the last query stands at the last key; "first": the first at the first.

        Raises:
            BindError: anything else.
        """
        is_causal = plain_bool(causal)
        if is_causal is None:
            raise tp.BindError(f"{kernel}: causal is True or False, got {shown(causal)}")
        sides = (None, None) if window is None else window
        if not isinstance(sides, tuple | list) or len(sides) != 2:
            raise tp.BindError(
                f"{kernel}: window is a pair (left, right): how many keys before and after its own"
                f" place a query sees, None for all; got {shown(window)}"
            )
        left, right = (
            _bound(kernel, name, x) for name, x in zip(("left", "right"), sides, strict=True)
        )
        if not isinstance(align, str) or align not in ("last", "first"):
            raise tp.BindError(
                f'{kernel}: align is "last" (the last query stands at the last key) or "first" (the'
                f" first query at the first key, as PyTorch's is_causal has it); got {shown(align)}"
            )
        return cls(left, 0 if is_causal else right, align == "first")

    @property
    def sides(self) -> tuple[bool, bool]:
        """True on the left, and on the right, where there is a bound."""
        return self.left is not None, self.right is not None

    @property
    def bounds(self) -> tuple[int, int]:
        """The two bounds, 0 where there is none."""
        return self.left or 0, self.right or 0

    def place(self, query: npt.NDArray[np.int64], s_q: int, s_kv: int) -> npt.NDArray[np.int64]:
        """The keys at which queries stand."""
        return query if self.from_first else query + s_kv - s_q

    def seen(self, s_q: int, s_kv: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For each query the first key that it sees, and the key after the last one. A query
        that sees none has two equal numbers.
        """
        place = self.place(np.arange(s_q), s_q, s_kv)
        first = np.zeros_like(place) if self.left is None else place - self.left
        stop = np.full_like(place, s_kv) if self.right is None else place + self.right + 1
        stop = np.clip(stop, 0, s_kv)
        return np.minimum(np.clip(first, 0, s_kv), stop), stop


def _bound(kernel: str, name: str, x: object) -> int | None:
    if x is None:
        return None
    number = plain_int(x)
    if number is None or not -1 <= number <= LARGEST_BOUND:
        raise tp.BindError(
            f"{kernel}: window's {name} is None or -1 (no bound), or a number of keys from 0 to"
            f" 2^30; got {shown(x)}"
        )
    return None if number == -1 else number


@dataclass(frozen=True)
class ScoreChanges:
    """What changes scaled scores x, in this order; the static part of a kernel.

    Attributes:
        softcap: x becomes cap · tanh(x / cap).
        slopes: x loses the head's slope times the distance between the key and the query's place
            (ALiBi).
        function: x becomes function(ctx, x, query, key, head): x float32 (rows, keys), query
            (rows, 1) and key (1, keys) int32 indices, head an int32 value.
    """

    softcap: bool = False
    slopes: bool = False
    function: ScoreFunction | None = None

    @property
    def count(self) -> int:
        """The number of changes, 0 to 3."""
        return self.softcap + self.slopes + (self.function is not None)

    @property
    def any(self) -> bool:
        """True if scores are changed at all."""
        return self.count > 0

    def factors(self, scale: float, cap: float) -> tuple[float, float, float]:
        """The factors of the kernel: of products before they are changed, of the tangent,
        and of the changed scores, which makes exponentials powers of two.

        Without anything between, neighbouring factors are one. The first holds what the tangent
        needs: twice its argument, to base 2.
        """
        log2e = math.log2(math.e)
        doubled = 2 * log2e * scale / cap if self.softcap else 0.0
        if not self.any:
            return 1.0, 1.0, scale * log2e
        if not self.softcap:
            return scale, 1.0, log2e
        if not self.slopes and self.function is None:
            return doubled, 1.0, cap * log2e
        return doubled, cap, log2e


def change_by(
    function: ScoreFunction,
    ctx: tp.Context,
    x: tp.FragmentValue,
    query: tp.FragmentValue,
    key: tp.FragmentValue,
    head: tp.Value,
) -> Any:
    """What a score function returns: float32 scores of the shape of x, or one value for each row or
    column of x, or a number, which stand for all.

    Raises:
        BindError: a function that does not take these arguments, or returns anything else; the
            message has its line.
    """
    try:
        inspect.signature(function).bind(ctx, x, query, key, head)
    except TypeError as error:
        raise _wrong_function(
            function,
            "is called with (ctx, scores, query, key, head): the context, float32 scores (rows,"
            " keys), int32 numbers of queries (rows, 1) and of keys (1, keys), and the head; it"
            f" does not take these five: {error}",
        ) from None
    except ValueError:  # one of C code, which has no signature
        pass
    found: object = function(ctx, x, query, key, head)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    rows, keys = x.shape
    kind = shown(found)
    missing = " (has it a `return`?)" if found is None else ""
    if isinstance(found, tp.FragmentValue | tp.Value):
        shape = found.shape if isinstance(found, tp.FragmentValue) else (1, 1)
        if found.dtype == tp.float32 and shape[0] in (rows, 1) and shape[1] in (keys, 1):
            return found
        kind = f"{found.dtype} {shape}"
        if found.dtype == tp.boolean:
            missing = ": ctx.select(condition, x, -math.inf) leaves out the keys where it is false"
        elif found.dtype != tp.float32:
            missing = ': `.to("float32")` converts it'
    raise _wrong_function(
        function,
        "returns the scores that the softmax takes, float32 of the shape of the x it gets, here"
        f" ({rows}, {keys}), or one value a row or a column of it, or a number; it returned"
        f" {kind}{missing}",
    )


def _wrong_function(function: ScoreFunction, what: str) -> tp.BindError:
    code = getattr(function, "__code__", None)
    at = "" if code is None else f"\n  at {code.co_filename}:{code.co_firstlineno}: {code.co_name}"
    return tp.BindError(f"{NAME}: score is a function that {what}{at}")


def check_softcap(cap: object) -> float:
    """The cap as a number; 0: none.

    Raises:
        BindError: negative, infinite, or no number.
    """
    if isinstance(cap, bool) or not isinstance(cap, int | float | np.number):
        raise tp.BindError(f"{NAME}: softcap is a number, 0 for none; got {shown(cap)}")
    value = float(cap)
    if value != 0 and not 2.0**-60 <= value <= 2.0**60:
        raise tp.BindError(
            f"{NAME}: softcap is 0 (none) or positive and finite, 2^-60 to 2^60; got {value}"
        )
    return value


def check_of_heads(name: str, x: Any, heads: int) -> None:
    """A number for each head of q.

    Raises:
        BindError: not float32 of shape (heads,).
    """
    if x is None:
        return
    dtype = str(x.dtype if hasattr(x, "dtype") else shown(x)).removeprefix("torch.")
    if dtype != "float32" or tuple(x.shape) != (heads,):
        shape = tuple(getattr(x, "shape", ()))
        raise tp.BindError(
            f"{NAME}: {name} has a number for each head of q, float32 of shape ({heads},); it is"
            f" {dtype} of {shape}"
        )
