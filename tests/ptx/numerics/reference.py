"""References for the numerics of PTX: rounding of fractions, and lanes of special values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Format:
    precision: int
    least_exponent: int
    largest: Fraction

    def round(self, value: Fraction, mode: str, finite: bool = False) -> float:
        """The value rounded; infinite, or the largest if `finite`, where it overflows."""
        if value == 0:
            return 0.0
        top, bottom = abs(value.numerator), value.denominator
        exponent = top.bit_length() - bottom.bit_length()
        if top << max(-exponent, 0) < bottom << max(exponent, 0):
            exponent -= 1
        unit = max(exponent, self.least_exponent) - self.precision + 1
        divisor = bottom << max(unit, 0)
        count, rest = divmod(top << max(-unit, 0), divisor)
        up = {
            "rn": 2 * rest > divisor or (2 * rest == divisor and count % 2 == 1),
            "rna": 2 * rest >= divisor,
            "rz": False,
            "rm": rest > 0 and value < 0,
            "rp": rest > 0 and value > 0,
        }[mode]
        rounded = (count + up) * Fraction(2) ** unit
        if rounded > self.largest:
            stays = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
            result = float(self.largest) if finite or stays else math.inf
        else:
            result = float(rounded)
        return math.copysign(result, 1 if value > 0 else -1)


def _format(precision: int, least_exponent: int, largest: float) -> Format:
    return Format(precision, least_exponent, Fraction(largest))


FORMATS = {
    "f64": Format(53, -1022, Fraction(2) ** 1024 - Fraction(2) ** 971),
    "f32": _format(24, -126, (2 - 2**-23) * 2.0**127),
    "tf32": _format(11, -126, (2 - 2**-10) * 2.0**127),
    "bf16": _format(8, -126, (2 - 2**-7) * 2.0**127),
    "f16": _format(11, -14, 65504),
    "e5m2": _format(3, -14, 57344),
    "e4m3": _format(4, -6, 448),
    "e3m2": _format(3, -2, 28),
    "e2m3": _format(4, 0, 7.5),
    "e2m1": _format(2, 0, 6),
}
DTYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
WIDTH = {"f64": 64, "f32": 32, "bf16": 16, "f16": 16}
NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}
MODES = ["rn", "rz", "rm", "rp"]

_VALUES = [
    *(0.0, 1.0, 1.5, 2.0, 3.0, 0.1, 7.0, 1 / 3, 448.0, 464.0, 2.0**31, 2.0**32, 2.0**63, 2.0**64),
    *(65504.0, 65519.0, 65520.0, 65536.0, 3.4e38, 1.7e308, 2.0**127, 2.0**126),
    *(2.0**-14, 2.0**-15, 2.0**-24, 2.0**-25, 2.0**-126, 2.0**-127, 2.0**-133, 2.0**-134),
    *(2.0**-149, 2.0**-150, 5e-324, 2.0**-1022, math.inf),
]


def special_bits(type: str) -> list[int]:
    """Registers of a float type that hold values at the edges, their neighbours, and NaN."""
    width = WIDTH[type]
    with np.errstate(all="ignore"):
        values = np.array(_VALUES, np.float64).astype(DTYPES[type]).view(f"u{width // 8}")
    top = 1 << (width - 1)
    infinity = int(np.array(math.inf).astype(DTYPES[type]).view(f"u{width // 8}")[()])
    found = {int(bits) for bits in values}
    found |= {max(bits - 1, 0) for bits in found} | {min(bits + 1, infinity) for bits in found}
    found |= {infinity + 1, top - 1}
    return sorted(found | {bits | top for bits in found})


def float_bits(type: str) -> st.SearchStrategy[int]:
    return st.sampled_from(special_bits(type)) | st.integers(0, 2 ** WIDTH[type] - 1)


def edges(bits: int) -> list[int]:
    """Unsigned integers of so many bits at the ends of the ranges, and small ones."""
    top = 1 << (bits - 1)
    found = {0, 1, 2, 3, 7, 8, 31, 32, 33, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1}
    return sorted(value for value in found if value < 2 * top)


def integers(bits: int) -> st.SearchStrategy[int]:
    """Unsigned integers of so many bits, with those at the edges often among them."""
    return st.sampled_from(edges(bits)) | st.integers(0, 2**bits - 1)


def rows(*columns: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, ...]]]:
    """Lanes of operands: a list of tuples with one of each column."""
    return st.lists(st.tuples(*columns), min_size=1, max_size=8)


def chosen_lanes(columns: Sequence[Sequence[int]], bits: Sequence[int]) -> list[tuple[int, ...]]:
    """Lanes of these values in all combinations (or 250 of them), and as many random lanes."""
    random = np.random.default_rng(1)
    if math.prod(map(len, columns)) <= 250:
        lanes = list(itertools.product(*columns))
    else:
        picks = [random.integers(0, len(column), 250) for column in columns]
        lanes = [
            tuple(column[index] for column, index in zip(columns, lane, strict=True))
            for lane in zip(*picks, strict=True)
        ]
    drawn = [
        [int.from_bytes(random.bytes(8), "little") % 2**width for _ in range(60)] for width in bits
    ]
    return lanes + list(zip(*drawn, strict=True))


def operands(lanes: Sequence[tuple[int, ...]], *dtypes: npt.DTypeLike) -> list[Array]:
    """The columns of the lanes as arrays of these types, each from its bits."""
    arrays = []
    for column, dtype in zip(zip(*lanes, strict=True), dtypes, strict=True):
        width = np.dtype(dtype).itemsize
        arrays.append(
            np.array([bits & (256**width - 1) for bits in column], f"u{width}").view(dtype)
        )
    return arrays


def bits(values: Array) -> list[int]:
    return [int(each) for each in np.asarray(values).view(f"u{values.dtype.itemsize}").ravel()]


def signed(value: int, width: int) -> int:
    value &= 2**width - 1
    return value - 2**width if value >> (width - 1) else value


def encode(value: float, type: str) -> int:
    """The bits of a value that the type holds exactly; of NaN the canonical ones."""
    if math.isnan(value):
        return NAN[type]
    array = np.array(value, np.float64).astype(DTYPES[type])
    assert float(array) == value
    return int(array.view(f"u{array.dtype.itemsize}")[()])


def decode(pattern: int, type: str) -> float:
    dtype = np.dtype(DTYPES[type])
    return float(np.array(pattern, f"u{dtype.itemsize}").view(dtype).astype(np.float64))


def flushed(value: float, type: str) -> float:
    if abs(value) < 2.0 ** FORMATS[type].least_exponent:
        return math.copysign(0.0, value)
    return value


def arithmetic(operation: str, operands: Sequence[float], type: str, mode: str) -> float:
    """add, sub, mul, div, fma or sqrt of values of a type, rounded once."""
    a = operands[0]
    host: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "fma": lambda a, b, c: a * b + c,
        "sqrt": np.sqrt,
    }
    special = not all(math.isfinite(each) for each in operands)
    special |= operation == "div" and 0 in operands
    special |= operation == "sqrt" and a <= 0
    if special:
        if operation == "fma" and math.isinf(operands[2]) and all(map(math.isfinite, operands[:2])):
            return operands[2]  # the host's product of f64 may overflow
        with np.errstate(all="ignore"):
            return float(host[operation](*map(np.float64, operands)))
    if operation == "sqrt":
        return _sqrt(a, type, mode)
    value: Fraction = host[operation](*map(Fraction, operands))
    if value:
        return FORMATS[type].round(value, mode)
    terms = [math.copysign(1, a), math.copysign(1, operands[-1])]
    if operation in ("mul", "div"):
        return math.copysign(0.0, terms[0] * terms[1])
    zeros = operands[-1] == 0
    if operation == "sub":
        terms[1] = -terms[1]
    if operation == "fma":
        terms[0] *= math.copysign(1, operands[1])
    if zeros and terms[0] == terms[1]:
        return math.copysign(0.0, terms[0])
    return -0.0 if mode == "rm" else 0.0


def _sqrt(a: float, type: str, mode: str) -> float:
    """The root by integers: the operand is scaled, and half a unit stands for an inexact rest."""
    value = Fraction(a)
    shift = 2400
    scaled = value * 2**shift
    assert scaled.denominator == 1
    root = math.isqrt(scaled.numerator)
    sticky = Fraction(1, 2) if root * root != scaled.numerator else 0
    return FORMATS[type].round((root + sticky) / Fraction(2) ** (shift // 2), mode)
