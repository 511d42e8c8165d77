"""An exported launcher, compiled by the system's C compiler against a driver that records calls."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tilepipe.export.manifest import Manifest, Passed, Scalar, read

HERE = Path(__file__).parent
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler, cc")
_C_TYPES: dict[str, Any] = {
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "boolean": ctypes.c_bool,
    "float32": ctypes.c_float,
}
_SIZES = {"map": 128, "data": 8, "stride": 8, "shape": 4}
_GLUE = """
#include "{name}.h"
static tilepipe_kernel kernel;
tilepipe_kernel *glue_kernel(void) {{ return &kernel; }}
const char *glue_error(void) {{ return kernel.error; }}
void glue_forget(void) {{
  for (int i = 0; i < TILEPIPE_MAPS; i++)
    for (int j = 0; j < TILEPIPE_KEPT; j++) kernel.kept[i][j].of.data = NULL;
}}
int64_t glue_matched(void) {{ return kernel.matched[0].shape[TILEPIPE_RANK - 1]; }}
int glue_bytes(void) {{ return (int)sizeof({name}_arguments); }}
"""


class CTensor(ctypes.Structure):
    """tilepipe_tensor"""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 5),
        ("stride", ctypes.c_int64 * 5),
    )


class CLauncher:
    """The functions of NAME.c on the recording driver."""

    def __init__(self, manifest_path: Path, build: Path) -> None:
        self.directory = manifest_path.parent
        self.manifest: Manifest = read(manifest_path)
        name = self.manifest.name
        glue = build / "glue.c"
        glue.write_text(_GLUE.format(name=name))
        library = build / f"lib{name}.so"
        sources = [self.directory / f"{name}.c", self.directory / "tilepipe_launch.c"]
        sources += [HERE / "stub_driver.c", glue]
        options = [*FLAGS, "-shared", "-fPIC", f"-I{HERE}", f"-I{self.directory}"]
        subprocess.run(["cc", *options, "-o", str(library), *map(str, sources)], check=True)
        self.library = ctypes.CDLL(str(library))
        self.library.glue_kernel.restype = ctypes.c_void_p
        self.library.glue_error.restype = ctypes.c_char_p
        self.library.glue_matched.restype = ctypes.c_int64
        self.kernel = ctypes.c_void_p(self.library.glue_kernel())
        fields = [
            (x.param.name, _C_TYPES[x.param.dtype.name] if isinstance(x, Scalar) else CTensor)
            for x in self.manifest.parameters
        ]
        self._arguments: Any = type("Arguments", (ctypes.Structure,), {"_fields_": fields})
        assert ctypes.sizeof(self._arguments) == self.library.glue_bytes()
        sizes = (ctypes.c_int * 128).in_dll(self.library, "stub_sizes")
        for i, passed in enumerate(self.manifest.arguments):
            sizes[i] = self.size(passed)

    def size(self, passed: Passed) -> int:
        """The bytes of an argument of the machine code."""
        if passed.kind != "scalar":
            return _SIZES[passed.kind]
        dtypes = {x.param.name: x.param.dtype.name for x in self.manifest.scalars}
        return ctypes.sizeof(_C_TYPES[dtypes[passed.parameter]])

    def set(self, **values: int) -> None:
        """Sets the stub's `stub_NAME`: major, minor, sms, version, status, no_context."""
        for name, value in values.items():
            ctypes.c_int.in_dll(self.library, f"stub_{name}").value = value

    @property
    def error(self) -> str:
        """The sentence that the last failure left."""
        found: bytes = self.library.glue_error()
        return found.decode()

    def calls(self) -> list[list[str]]:
        """The words of each call since the last time."""
        text = ctypes.create_string_buffer(1 << 16).__class__.in_dll(self.library, "stub_text")
        found = [line.split() for line in text.value.decode().splitlines()]
        text[0] = b"\0"
        return found

    def load(self, directory: Path | None = None) -> int:
        """Calls NAME_load."""
        load = self.library[f"{self.manifest.name}_load"]
        done: int = load(self.kernel, str(directory or self.directory).encode())
        return done

    def load_data(self, cubin: bytes) -> int:
        """Calls NAME_load_data."""
        load = self.library[f"{self.manifest.name}_load_data"]
        done: int = load(self.kernel, cubin, ctypes.c_size_t(len(cubin)))
        return done

    def launch(self, given: Mapping[str, Any], stream: int = 0, beyond: int = 0) -> int:
        """Calls NAME_launch. `given`: (address, shape) or (address, shape, strides) of tensors,
        and numbers; as exported where it says nothing. `beyond`: the extents and strides that the
        given tensors hold beyond their ranks.
        """
        first = self._arguments.in_dll(self.library, f"{self.manifest.name}_as_exported")
        arguments = self._arguments.from_buffer_copy(first)
        for name, x in given.items():
            if not isinstance(x, tuple):
                setattr(arguments, name, x)
                continue
            tensor = getattr(arguments, name)
            address, shape, *strides = x
            tensor.data = address
            tensor.shape[:] = [*shape, *[beyond] * (5 - len(shape))]
            tensor.stride[:] = [0] * len(shape) + [beyond] * (5 - len(shape))
            for each in strides:
                tensor.stride[: len(each)] = each
        call = self.library[f"{self.manifest.name}_launch"]
        done: int = call(self.kernel, ctypes.byref(arguments), ctypes.c_void_p(stream))
        return done

    @property
    def matched(self) -> int:
        """The last extent, beyond its rank, that the first tensor had when shapes were last looked
        at.
        """
        return int(self.library.glue_matched())

    def forget(self) -> None:
        """Empties the cache of encoded maps."""
        self.library.glue_forget()
