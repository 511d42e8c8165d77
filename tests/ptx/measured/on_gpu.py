"""Cases on a GPU: each batch in a process of its own, since a fault ends a context.

    python -m tests.ptx.measured.on_gpu OUT [--programs N] [--jobs 8]

writes what each case wrote to OUT/<group>.npz, and OUT/golden.npz, which tests/golden keeps as
ptx_measured_h100.npz.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tests.ptx.measured import copies, forms, golden, matrices, memory, programs
from tests.ptx.measured.case import Bytes, Case
from tests.ptx.measured.enumerate_forms import taken_by_ptxas
from tilepipe.cuda.runtime import driver
from tilepipe.errors import LaunchError

PATIENCE = 40.0  # seconds for a case
BATCH = 32


def launched(case: Case, level: int = 4) -> Bytes:
    """What a case writes on the GPU. `level`: of the driver's optimisation, 0 to 4; above 0 it has
    changed what some programs write.

    Raises:
        LaunchError: the driver refuses the text, or the kernel has faulted.
    """
    out = case.before.copy()
    with driver.current(0):
        text, option = case.text.encode() + b"\0", driver.api().CUjit_option
        levels = [option.CU_JIT_OPTIMIZATION_LEVEL], [level]
        module = driver.call("cuModuleLoadDataEx", text, 1, *levels)
        function = driver.call("cuModuleGetFunction", module, b"k")
        a, b = (driver.call("cuMemAlloc", max(array.nbytes, 16)) for array in (case.given, out))
        for place, array in ((a, case.given), (b, out)):
            driver.call("cuMemcpyHtoD", place, array.ctypes.data, array.nbytes)
        if case.smem > 48 << 10:
            attribute = driver.api().CUfunction_attribute
            driver.call(
                "cuFuncSetAttribute", function,
                attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, case.smem,
            )  # fmt: skip
        at = {"a": int(a), "b": int(b)}
        raw = [m.encoded(at[m.of]) for m in case.maps]
        held = [(ctypes.c_ubyte * 128).from_buffer_copy(each) for each in raw]
        words = [ctypes.c_uint64(int(a)), ctypes.c_uint64(int(b))]
        pointers = (ctypes.c_void_p * (2 + len(held)))(
            *(ctypes.addressof(each) for each in (*words, *held))
        )
        driver.call(
            "cuLaunchKernel", function, case.cluster, 1, 1, case.threads, 1, 1, case.smem, 0,
            ctypes.addressof(pointers), 0,
        )  # fmt: skip
        driver.call("cuCtxSynchronize")
        driver.call("cuMemcpyDtoH", out.ctypes.data, b, out.nbytes)
        for place in (a, b):
            driver.call("cuMemFree", place)
        driver.call("cuModuleUnload", module)
    return out


def _serve(cases: Sequence[Case], to: Connection) -> None:
    for number, case in enumerate(cases):
        try:
            to.send((number, launched(case)))
        except LaunchError as error:
            to.send((number, str(error)))
            return


def _batch(cases: Sequence[Case]) -> dict[str, Bytes | str]:
    """Results by name; of a case that has failed, why."""
    found: dict[str, Bytes | str] = {}
    left = list(cases)
    context = multiprocessing.get_context("fork")
    while left:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(left, there), daemon=True)
        process.start()
        there.close()
        done = 0
        while done < len(left):
            try:
                if not here.poll(PATIENCE):
                    found[left[done].name] = "no answer"
                    done += 1
                    break
                _, result = here.recv()
            except EOFError:
                found.setdefault(left[done].name, "the process has died")
                done += 1
                break
            found[left[done].name] = result
            done += 1
            if isinstance(result, str):
                break
        process.kill()
        process.join()
        left = left[done:]
    return found


def on_gpu(cases: Sequence[Case], jobs: int) -> dict[str, Bytes | str]:
    """Results of many cases."""
    batches = [cases[i : i + BATCH] for i in range(0, len(cases), BATCH)]
    found: dict[str, Bytes | str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for each in pool.map(_batch, batches):
            found |= each
    return found


def main() -> None:
    """Runs all cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.ptx.measured.on_gpu")
    parser.add_argument("out", type=Path)
    parser.add_argument("--programs", type=int, default=golden.PROGRAMS)
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    begun = time.monotonic()
    taken = taken_by_ptxas(forms.candidates())
    groups = {
        "forms": list(forms.cases(taken)),
        "memory": list(memory.cases()),
        "matrices": list(matrices.cases()),
        "copies": list(copies.cases()),
        "programs": [programs.case(seed) for seed in range(options.programs)],
        "probes": list(copies.probes()),
    }
    print(
        f"{sum(map(len, groups.values()))} cases made in {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    kept: dict[str, tuple[Case, Bytes]] = {}
    for group, cases in groups.items():
        found = on_gpu(cases, options.jobs)
        good = {c.name: found[c.name] for c in cases if isinstance(found[c.name], np.ndarray)}
        for case in cases:
            result = found[case.name]
            if isinstance(result, str):
                print(f"{case.name}: {result}", flush=True)
            elif group != "probes":
                kept[case.name] = case, result
        raw: dict[str, Any] = {
            name.replace("/", "|"): result for name, result in good.items()
        }  # fmt: skip
        np.savez_compressed(options.out / f"{group}.npz", **raw)
        print(f"{group}: {len(good)} of {len(cases)}, {time.monotonic() - begun:.0f} s", flush=True)
    golden.write(options.out / "golden.npz", kept)


if __name__ == "__main__":
    main()
