"""A small kernel whose results a GPU and the reader of PTX both compute: its text, what it is
given, and how its results are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilepipe.machine.memory.tensor_map import TensorMapFields, encode
from tilepipe.ptx.loading import load

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
_FLOATS: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """How a result is compared.

    Attributes:
        type: "" compares bits. A float type: all NaN are alike, and the bounds below hold.
        ulp: of the measured value. relative, absolute: bounds of the error.
    """

    type: str = ""
    ulp: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0

    @property
    def exact(self) -> bool:
        return not (self.ulp or self.relative or self.absolute)

    def canonical(self, raw: Bytes) -> Bytes:
        """The bytes that exact results share."""
        if not self.type:
            return raw
        values = np.ascontiguousarray(raw).view(_FLOATS[self.type])
        found: Bytes = np.where(np.isnan(values), values.dtype.type(np.nan), values).view(np.uint8)
        return found

    def error(self, found: Bytes, measured: Bytes) -> float:
        """The greatest error in units of what is allowed; of an exact rule 0, or infinity."""
        if self.exact:
            same = np.array_equal(self.canonical(found), self.canonical(measured))
            return 0.0 if same else np.inf
        dtype: Any = np.dtype(_FLOATS[self.type])
        got, want = (np.ascontiguousarray(v).view(dtype).astype(np.float64)
                     for v in (found, measured))  # fmt: skip
        alike = (got == want) | (np.isnan(got) & np.isnan(want))
        info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        unit = np.maximum(np.abs(want) * float(info.eps), float(info.smallest_subnormal))
        with np.errstate(invalid="ignore"):  # 0 times infinity
            bound = self.ulp * unit + self.relative * np.abs(want) + self.absolute
            bound = bound + float(info.smallest_subnormal)
            off = np.where(alike, 0.0, np.abs(got - want) / bound)
        return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))


BITS = Rule()


@dataclass(frozen=True)
class Part:
    """A part of what a case writes.

    Attributes:
        name: the instruction, or the feature. begin, end: bytes of the output.
    """

    name: str
    begin: int
    end: int
    rule: Rule = BITS


@dataclass(frozen=True)
class Map:
    """A tensor map, a parameter after the two arrays.

    Attributes:
        map: its address is 0. of: "a" or "b", the array that the tensor lies in. at: its first
            byte in it.
    """

    map: TensorMapFields
    of: str
    at: int

    def encoded(self, address: int) -> bytes:
        """The 128 bytes, given the address of the array."""
        m = self.map
        return encode(TensorMapFields(
            m.element, address + self.at, m.shape, m.strides, m.box, m.steps, m.swizzle, m.atom,
            m.nan,
        ))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel of a block of threads, given one array, and writing another.

    Attributes:
        name: of the case. text: of a module with an entry `k(a, b, maps...)`.
        given: what `a` holds. before: what `b` holds before. maps: further parameters.
        parts: of `b`.
    """

    name: str
    text: str
    given: Bytes
    before: Bytes
    parts: tuple[Part, ...]
    threads: int = 128
    cluster: int = 1
    smem: int = 0
    maps: tuple[Map, ...] = field(default=())

    @property
    def fingerprint(self) -> int:
        """Of all that it is: results are comparable where this is the same."""
        raw = self.text.encode() + self.given.tobytes() + self.before.tobytes()
        raw += b"".join(m.encoded(0) for m in self.maps)
        return _digest(raw)

    def read(self, seed: int = 0, timeout: float = 60) -> Bytes:
        """What the reader of PTX computes."""
        a, b = self.given.copy(), self.before.copy()
        kernel = load(self.text)["k"]
        # the addresses of arrays are given out when they are bound: maps need them before
        probe = kernel.bind(
            [a, b, *(bytes(128) for _ in self.maps)], grid=self.cluster, block=self.threads,
            cluster=self.cluster, smem=self.smem,
        )  # fmt: skip
        if not self.maps:
            probe.run(seed, timeout=timeout)
            return b
        at = {"a": probe.memory.address_of("a", a), "b": probe.memory.address_of("b", b)}
        launch = kernel.bind(
            [a, b, *(m.encoded(at[m.of]) for m in self.maps)], grid=self.cluster,
            block=self.threads, cluster=self.cluster, smem=self.smem,
        )  # fmt: skip
        again = {"a": launch.memory.address_of("a", a), "b": launch.memory.address_of("b", b)}
        assert again == at
        launch.run(seed, timeout=timeout)
        return b


def digest(part: Part, output: Bytes) -> int:
    """Of an exact part of an output."""
    return _digest(part.rule.canonical(output[part.begin : part.end]).tobytes())


def _digest(raw: bytes) -> int:
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "little")


HEAD = """.version 8.7
.target sm_90a
.address_size 64
{before}
.visible .entry k(.param .u64 a, .param .u64 b{maps})
.maxntid {threads}
{cluster}
{{
.reg .pred %p<40>; .reg .b16 %h<40>; .reg .b32 %r<400>; .reg .b64 %l<40>; .reg .f32 %f<40>;
.reg .f64 %d<20>; .reg .b32 %t; .reg .b64 %a; .reg .b64 %b; .reg .b32 %lane; .reg .b64 %q<8>;
ld.param.u64 %a, [a]; ld.param.u64 %b, [b];
mov.u32 %t, %tid.x;
mov.u32 %lane, %laneid;
{body}
ret;
}}
"""


def module(body: str, threads: int, before: str = "", maps: int = 0, cluster: int = 1) -> str:
    """A module around a body, in which `%t` is the thread, `%a` and `%b` the arrays."""
    parameters = "".join(f", .param .align 64 .b8 m{i}[128]" for i in range(maps))
    size = f".explicitcluster .reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    return HEAD.format(body=body, threads=threads, before=before, maps=parameters, cluster=size)
