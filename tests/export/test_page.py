"""The C of docs/how-to/export.md, compiled against the recording driver."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.export.test_manifest import MNK, a_gemm
from tests.support.export.c_launcher import FLAGS, HERE, needs_cc
from tests.support.export.program import serve
from tools.docs.readme import ROOT, blocks


@pytest.mark.slow
@needs_cc
def test_the_program_in_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a_gemm().export("served", extents=MNK)
    (code,) = blocks(ROOT / "docs" / "how-to" / "export.md", "c")
    Path("page.c").write_text(code + "\nint bytes(void) { return sizeof(tilepipe_kernel); }\n")
    sources = ["page.c", "served/gemm.c", "served/tilepipe_launch.c", str(HERE / "stub_driver.c")]
    options = [*FLAGS, "-shared", "-fPIC", f"-I{HERE}", "-Iserved"]
    subprocess.run(["cc", *options, "-o", "libpage.so", *sources], check=True)
    page = ctypes.CDLL(str(tmp_path / "libpage.so"))
    sizes = (ctypes.c_int * 128).in_dll(page, "stub_sizes")
    for i, size in enumerate((128, 4, 128, 128, 4, 4, 4)):
        sizes[i] = size
    kernel = ctypes.create_string_buffer(page.bytes())
    assert page.prepare(kernel) == 0
    places = [ctypes.c_void_p(0x10000 * i) for i in (1, 2, 3)]
    extents = [ctypes.c_int64(x) for x in (1000, 328, 776)]
    assert page.multiply(kernel, *places, *extents, ctypes.c_void_p(5)) == 0
    text = bytes((ctypes.c_char * (1 << 16)).in_dll(page, "stub_text")).split(b"\0")[0].decode()
    launch = text.splitlines()[-1].split()
    program = a_gemm(1000, 328, 776)
    assert launch[:3] == ["launch", "1", str(program.launch_args.grid)]
    k, m, n = (int.from_bytes(bytes.fromhex(launch[13 + i]), "little") for i in (1, 4, 5))
    assert (m, n, k) == (1000, 328, 776)
    assert page.multiply(kernel, *places, *extents[:2], ctypes.c_int64(4), None) == 1  # 8 bytes


@pytest.mark.slow
@needs_cc
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler, c++")
def test_the_header_is_one_of_cpp_too(tmp_path: Path) -> None:
    a_gemm().export(tmp_path, extents=MNK)
    (tmp_path / "use.cpp").write_text(
        '#include "gemm.h"\n'
        "int use(tilepipe_kernel &kernel, CUstream stream) {\n"
        "  gemm_arguments arguments = gemm_as_exported;\n"
        "  arguments.a.shape[0] = 64;\n"
        "  return gemm_launch(&kernel, &arguments, stream);\n"
        "}\n"
    )
    options = ["-std=c++17", *FLAGS[1:], f"-I{HERE}", f"-I{tmp_path}"]
    subprocess.run(
        ["c++", *options, "-c", "-o", str(tmp_path / "use.o"), str(tmp_path / "use.cpp")],
        check=True,
    )


@pytest.mark.slow
@needs_cc
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler, c++")
def test_the_program_of_the_gpu_tests_gives_back_what_it_read(tmp_path: Path) -> None:
    """On the stub, whose kernels do nothing."""
    program = a_gemm(64, 128, 72)
    path = program.export(tmp_path, extents=MNK)
    arrays = {n: np.asarray(program.launch_args.args[n].array) for n in "abc"}  # type: ignore[union-attr]
    arrays["c"] = np.arange(64 * 128).reshape(64, 128).astype(arrays["c"].dtype)
    written, us = serve(path, arrays, stub=True)
    assert written == {"c": arrays["c"].tobytes()}
    assert us > 0
