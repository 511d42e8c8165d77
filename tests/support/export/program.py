"""A C++ program that launches an exported kernel: it reads tensors from files, writes back those
that the kernel writes, and prints what a launch costs the host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilepipe.export.manifest import Manifest, read

HERE = Path(__file__).parent
_MAIN = """
#include "{name}.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) do {{ CUresult s = (call); if (s) {{ \\
  std::fprintf(stderr, "%s: error %d\\n", #call, (int)s); return 2; }} }} while (0)

static std::vector<char> contents(const char *path) {{
  std::vector<char> data;
  std::FILE *file = std::fopen(path, "rb");
  if (!file) {{ std::fprintf(stderr, "cannot open %s\\n", path); std::exit(2); }}
  for (int c; (c = std::fgetc(file)) != EOF;) data.push_back((char)c);
  std::fclose(file);
  return data;
}}

int main(int argc, char **argv) {{
  if (argc < 2) return 2;
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  static tilepipe_kernel kernel;
  if ({name}_load(&kernel, argv[1])) {{ std::fprintf(stderr, "%s\\n", kernel.error); return 1; }}
  {name}_arguments arguments = {name}_as_exported;
  std::vector<char> data;
  CUdeviceptr place;
{read}
  std::vector<double> rounds;
  for (int round = 0; round < 10; round++) {{
    const int launches = round ? 200 : 1;
    auto started = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; i++)
      if ({name}_launch(&kernel, &arguments, 0)) {{
        std::fprintf(stderr, "%s\\n", kernel.error);
        return 1;
      }}
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - started;
    CHECK(cuCtxSynchronize());
    if (round) rounds.push_back(took.count() / launches);
  }}
  std::sort(rounds.begin(), rounds.end());
  std::printf("%.3f\\n", rounds[rounds.size() / 2]);
{write}
  return 0;
}}
"""
_READ = """  data = contents("{tensor}.bin");
  CHECK(cuMemAlloc(&place, data.size()));
  CHECK(cuMemcpyHtoD(place, data.data(), data.size()));
  arguments.{tensor}.data = (void *)place;
"""
_WRITE = """  data = contents("{tensor}.bin");
  CHECK(cuMemcpyDtoH(data.data(), (CUdeviceptr)arguments.{tensor}.data, data.size()));
  {{
    std::FILE *file = std::fopen("{tensor}.out", "wb");
    std::fwrite(data.data(), 1, data.size(), file);
    std::fclose(file);
  }}
"""


def source(manifest: Manifest, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The program, for tensors of these shapes."""
    reads, writes = "", ""
    for x in manifest.tensors:
        name = x.param.name
        reads += _READ.format(tensor=name)
        for axis, extent in enumerate(shapes[name]):
            reads += f"  arguments.{name}.shape[{axis}] = {extent};\n"
        if x.written:
            writes += _WRITE.format(tensor=name)
    return _MAIN.format(name=manifest.name, read=reads, write=writes)


def cuda_include() -> Path | None:
    """The directory of NVIDIA's cuda.h: of a toolkit, or of a package that has it."""
    packages = Path(sysconfig.get_path("purelib"))
    places = [
        *(Path(os.environ[n]) / "include" for n in ("CUDA_HOME", "CUDA_PATH") if n in os.environ),
        Path("/usr/local/cuda/include"),
        *Path("/usr/local").glob("cuda-*/include"),
        *packages.glob("nvidia/*/include"),
        packages / "triton/backends/nvidia/include",
    ]
    return next((x for x in places if (x / "cuda.h").exists()), None)


def missing() -> str:
    """What this machine lacks to build it, or ""."""
    for compiler in ("cc", "c++"):
        if shutil.which(compiler) is None:
            return f"there is no compiler {compiler}"
    return "" if cuda_include() is not None else "there is no cuda.h"


def build(manifest_path: Path, shapes: Mapping[str, tuple[int, ...]], stub: bool) -> Path:
    """The compiled program, beside a folder `files`, in the folder of the manifest.

    `stub`: with the driver that records calls, and memory of the host.
    """
    folder, manifest = manifest_path.parent, read(manifest_path)
    (folder / "main.cpp").write_text(source(manifest, shapes))
    include = HERE if stub else cuda_include()
    objects = []
    sources = [folder / f"{manifest.name}.c", folder / "tilepipe_launch.c"]
    for file in [*sources, *([HERE / "stub_driver.c"] if stub else [])]:
        objects.append(str(folder / f"{file.stem}.o"))
        options = ["-std=c99", "-O2", f"-I{include}", f"-I{folder}"]
        subprocess.run(["cc", *options, "-c", "-o", objects[-1], str(file)], check=True)
    program = folder / "serve"
    options = ["-std=c++17", "-O2", f"-I{include}", f"-I{folder}", "-o", str(program)]
    # libcuda.so belongs to the toolkit, libcuda.so.1 to the driver
    driver = [] if stub else ["-l:libcuda.so.1"]
    subprocess.run(["c++", *options, str(folder / "main.cpp"), *objects, *driver], check=True)
    return program


def serve(
    manifest_path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], stub: bool = False
) -> tuple[dict[str, bytes], float]:
    """Builds and runs the program on arrays in the memory order of the manifest: the bytes that it
    wrote, and the microseconds of host time that a launch took, the median of nine rounds.

    `arrays`: by name, of the shapes that the kernel sees.
    """
    folder, manifest = manifest_path.parent, read(manifest_path)
    for x in manifest.tensors:
        ordered = arrays[x.param.name].transpose(x.memory)
        (folder / f"{x.param.name}.bin").write_bytes(ordered.tobytes())
    program = build(manifest_path, {n: a.shape for n, a in arrays.items()}, stub)
    done = subprocess.run(
        [str(program), str(folder)], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    written = {
        x.param.name: (folder / f"{x.param.name}.out").read_bytes()
        for x in manifest.tensors
        if x.written
    }
    return written, float(done.stdout)
