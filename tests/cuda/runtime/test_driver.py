"""Machines without what a launch needs, kernels that fit on none, and what is loaded once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cuda.runtime.test_launching import doubled
from tests.support.cuda.fake_driver import reset
from tilepipe.cuda.nvrtc.compiler import Compiled
from tilepipe.cuda.runtime import driver, loading
from tilepipe.kernels.gemm import heuristics as gemm_choice


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Clears what is remembered of the machine, before and after the test."""
    reset()
    yield
    reset()


def machine(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    """Replaces functions of cuda.bindings.driver; each then gives (status, values)."""
    from cuda.bindings import driver as api

    for name, values in functions.items():
        monkeypatch.setattr(
            api, name, values if callable(values) else lambda *_, values=values: values
        )


@pytest.mark.usefixtures("forgetful")
def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: int) -> None:
        raise RuntimeError("libcuda.so.1: cannot open shared object file")

    machine(monkeypatch, cuInit=missing)
    program = doubled.bind(np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32))
    for launch in (program.launch, program.launcher, lambda: program.launch(debug=True)):
        with pytest.raises(
            tp.UnavailableError,
            match=r"^launching needs an NVIDIA driver \(libcuda.so.1\), which this machine "
            r"does not have$",
        ):
            launch()


@pytest.mark.usefixtures("forgetful")
def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuInit=(SimpleNamespace(name="CUDA_ERROR_NO_DEVICE", __int__=int),))
    status = type("S", (int,), {"name": "CUDA_ERROR_NO_DEVICE"})(100)
    machine(monkeypatch, cuInit=(status,))
    with pytest.raises(
        tp.UnavailableError,
        match=r"the NVIDIA driver finds no GPU that it can use \(CUDA_ERROR_NO_DEVICE\)",
    ):
        driver.chip()


@pytest.mark.usefixtures("forgetful")
def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(
        tp.UnavailableError,
        match=r"launching needs cuda-bindings, which is not installed: pip install "
        r"tilepipe\[cuda\]",
    ):
        driver.api()


@pytest.mark.usefixtures("forgetful")
def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuInit=(0,), cuDeviceGetCount=(0, 2))
    with pytest.raises(tp.UnavailableError, match="there is no device 2; the driver sees 2"):
        driver.primary_context(2)


@pytest.mark.usefixtures("forgetful")
def test_a_gpu_that_no_code_is_printed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(
        monkeypatch,
        cuInit=(0,),
        cuDeviceGetCount=(0, 1),
        cuDeviceGet=(0, 0),
        cuDevicePrimaryCtxRetain=(0, 1),
    )
    machine(monkeypatch, cuDeviceGetAttribute=(0, 8), cuDeviceGetName=(0, b"NVIDIA A100\0\0\0"))
    with pytest.raises(
        tp.UnavailableError,
        match=r"device 0 is a NVIDIA A100 of compute capability 8.8; kernels are printed for "
        r"9.0 \(sm_90a\), ",
    ):
        driver.chip()


def test_a_cluster_that_fits_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver as api

    monkeypatch.setattr(driver, "api", lambda: api)
    monkeypatch.setattr(driver, "primary_context", lambda _: 1)
    monkeypatch.setattr(driver, "call", lambda name, *_: 0 if "Occupancy" in name else object())
    words = (
        "no cluster of 'big' fits on device 0: 16 CTAs of 384 threads and 230,000 bytes of "
        "shared memory each"
    )
    with pytest.raises(tp.LaunchError, match=words):
        driver.Function(0, b"", "big", 384, 230_000, 16)


@pytest.mark.slow
def test_clusters_that_a_part_of_a_gpu_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(ordinal: int, cubin: bytes, name: str, threads: int, smem: int, cluster: int) -> Any:
        if cluster > 2:
            raise tp.LaunchError("no cluster of 'empty' fits")
        return SimpleNamespace(max_clusters=8)

    monkeypatch.setattr(driver, "Function", load)
    monkeypatch.setattr(driver, "attribute", lambda *_: 232_448)
    clusters = driver._resident_clusters(0)
    assert clusters == ((2, 8), *((size, 0) for size in range(3, 9)))
    assert [size for size, _ in tp.H200.clusters] == [size for size, _ in clusters]
    slice_ = tp.Chip(name="slice", sms=16, clusters=clusters)
    assert {
        cfg.cluster_size
        for cfg in gemm_choice.candidates(gemm_choice.Problem(4096, 4096, 4096), slice_)
    } == {1, 2}
    with pytest.raises(
        tp.LimitError, match="no configuration of the GEMM fits tiny, whose CTAs have 16,384 bytes"
    ):
        gemm_choice.best(
            gemm_choice.Problem(64, 64, 64), tp.Chip(name="tiny", smem_per_cta=16 * 1024)
        )


def test_a_copy_of_a_program_with_other_arguments_launches_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched: list[int] = []

    def bound(launch: Any, **_: Any) -> Any:
        return lambda *_, **__: launched.append(launch.grid)

    monkeypatch.setattr(loading, "BoundLaunch", bound)
    program = doubled.bind(np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32))
    program.launch()
    replace(program, launch_args=replace(program.launch_args, grid=2)).launch()
    program.launch()
    assert launched == [1, 2, 1]


def test_a_kernel_is_loaded_once_for_each_device_and_build(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[Any, ...]] = []

    def compile_kernel(kernel: Any, arch: str, **options: Any) -> Any:
        built.append((arch, options))
        return Compiled("k", arch, "cubin", "", "", b"", 0, 32, 1)

    monkeypatch.setattr(loading, "compile_kernel", compile_kernel)
    monkeypatch.setattr(driver, "chip", lambda _: tp.H200)
    monkeypatch.setattr(driver, "Function", lambda ordinal, *_: SimpleNamespace(ordinal=ordinal))
    doubled.forget()
    kernel = doubled.bind(np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)).kernel
    for _ in range(2):
        assert loading.load(kernel, 0)[1].ordinal == 0
        assert loading.load(kernel, 1)[1].ordinal == 1
        loading.load(kernel, 0, debug=True)
        loading.load(kernel, 0, debug=True, perturbed=True)
    assert built == [
        ("sm_90a", {}),
        ("sm_90a", {}),
        ("sm_90a", {"debug": True}),
        ("sm_90a", {"debug": True, "perturb": True}),
    ]
    doubled.forget()
