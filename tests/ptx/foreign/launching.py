"""Launches of recorded kernels: what a host program of their compiler would pass to them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ptx import Argument, Kernel, Launch, Struct, TensorMap, load

DATA = Path(__file__).parent / "data"
Array = npt.NDArray[Any]


@cache
def records() -> dict[str, dict[str, Any]]:
    """How to launch each recorded kernel, by its name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(DATA.glob("*.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def text(name: str) -> str:
    """The PTX of a recorded kernel."""
    return gzip.decompress((DATA / f"{name}.ptx.gz").read_bytes()).decode()


@cache
def kernel(name: str) -> Kernel:
    """A recorded kernel, parsed, and compiled once."""
    return load(text(name))[records()[name]["entry"]]


@dataclass(frozen=True)
class Problem:
    """What a kernel is given, and what it must write.

    Attributes:
        grid: of programs, each a cluster of CTAs; () where the record has it. values: arrays and
            numbers by the names of the arguments. expected: by the names of the arrays that the
            kernel writes. within: bound of the error, relative to the largest expected value; 0
            where each bit counts. seed: an order that the kernel is run in.
    """

    grid: tuple[int, ...]
    values: Mapping[str, Any]
    expected: Mapping[str, Array]
    within: float = 0.0
    seed: int = 0

    def verify(self) -> None:
        """Compares what the kernel has written with what it should have."""
        for name, expected in self.expected.items():
            found = self.values[name]
            assert isinstance(found, np.ndarray)
            if not self.within:
                np.testing.assert_array_equal(found, expected, err_msg=name)
                continue
            off = np.abs(found.astype(np.float64) - expected.astype(np.float64))
            most = float(off.max()) / float(np.abs(expected.astype(np.float64)).max())
            assert most <= self.within, f"{name}: off by {most:.3g} of the largest value"


Make = Callable[[dict[str, Any]], Problem]


def launch(name: str, problem: Problem) -> Launch:
    """A recorded kernel, bound to a problem."""
    record = records()[name]
    arguments = [_argument(p, record, problem) for p in record["parameters"]]
    programs = (*problem.grid, 1, 1, 1)[:3]
    counts = tuple(n * c for n, c in zip(programs, record["cluster"], strict=True))
    return kernel(name).bind(
        arguments,
        grid=record.get("grid") or counts,
        block=record["block"],
        cluster=record["cluster"],
        smem=record["smem"],
    )


def _argument(parameter: dict[str, Any], record: dict[str, Any], problem: Problem) -> Argument:
    if parameter["kind"] == "scratch":
        ctas = int(np.prod([*problem.grid, *record["cluster"]]))
        size = parameter["bytes"] * ctas
        return np.zeros(size, np.uint8) if size else 0
    if parameter["kind"] == "struct":
        fields = {
            int(offset): problem.values[name].reshape(-1, order="A").view(np.uint8)[at:]
            for offset, (name, at) in parameter["pointers"].items()
        }
        raw = bytes.fromhex(parameter["bytes"]).ljust(parameter["size"], b"\0")
        return Struct(raw, fields)
    value = problem.values[parameter["name"]]
    if isinstance(value, int | float):
        return value
    assert isinstance(value, np.ndarray)
    match parameter["kind"]:
        case "pointer":
            return value
        case "map":
            box = tuple(parameter["box"])
            if parameter.get("padded_fp4"):  # two elements to a byte of the array
                shape = (*value.shape[:-1], 2 * value.shape[-1])
                return TensorMap(value, box, parameter["swizzle"], "b4x16_p64", shape)
            return TensorMap(value, box, parameter["swizzle"])
        case "extent":
            return int(value.shape[parameter["axis"]])
        case "stride":
            return int(value.strides[parameter["axis"]]) // value.itemsize
    raise AssertionError(parameter)
