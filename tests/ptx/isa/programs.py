"""Small kernels around a few instructions, which tests of the instruction set run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ptx import Kernel, load

Array = npt.NDArray[Any]


def kernel(text: str, arrays: int, arch: str = "sm_90a", before: str = "") -> Kernel:
    """A kernel with this body, and so many pointers as parameters: `%b0`, `%b1`; `%t` is the number
    of the thread. `before`: what stands before the kernel in the module.
    """
    parameters = ", ".join(f".param .u64 array{i}" for i in range(arrays))
    bases = "\n".join(f"ld.param.u64 %b{i}, [array{i}];" for i in range(arrays))
    source = f"""
        .version 9.0
        .target {arch}
        .address_size 64
        {before}
        .visible .entry k({parameters}) {{
        .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<300>; .reg .b64 %rd<40>;
        .reg .b128 %q<9>; .reg .b64 %b<12>; .reg .b64 %a<12>; .reg .b32 %t; .reg .b32 %l;
        mov.u32 %t, %tid.x;
        mov.u32 %l, %laneid;
        {bases}
        {text}
        ret;
        }}
        """
    return load(source)["k"]


def run(
    text: str,
    *arrays: Array,
    threads: int = 32,
    arch: str = "sm_90a",
    cluster: int = 1,
    grid: int | tuple[int, int] | None = None,
    smem: int = 0,
    seed: int = 0,
    before: str = "",
) -> None:
    """Runs a kernel with this body on arrays; `%a0` is the address of the thread's element of array
    0, and so on.
    """
    places = "\n".join(
        f"mad.wide.u32 %a{i}, %t, {a.itemsize}, %b{i};" for i, a in enumerate(arrays)
    )
    made = kernel(f"{places}\n{text}", len(arrays), arch, before)
    made.bind(arrays, grid=grid or cluster, block=threads, cluster=cluster, smem=smem).run(seed)


def apply(text: str, *inputs: Array, out: npt.DTypeLike, arch: str = "sm_90a") -> Array:
    """What each of 32 threads leaves in `%o`, given its elements of the inputs in `%i0`, `%i1`."""
    result = np.zeros(32, out)
    registers, loads = [], []
    for number, array in enumerate([*inputs, result]):
        name = "%o" if array is result else f"%i{number}"
        bits = 8 * array.itemsize
        registers.append(f".reg .b{max(bits, 16)} {name};")
        if array is not result:
            loads.append(f"ld.global.b{bits} {name}, [%a{number}];")
    store = f"st.global.b{8 * result.itemsize} [%a{len(inputs)}], %o;"
    run("\n".join([*registers, *loads, text, store]), *inputs, result, arch=arch)
    return result
