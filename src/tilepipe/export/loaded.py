"""An exported kernel in Python: launched from its files, traced and compiled never."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilepipe import files
from tilepipe.cuda.codegen.parameters import Argument
from tilepipe.cuda.nvrtc.compiler import Compiled
from tilepipe.cuda.runtime import driver, interop
from tilepipe.cuda.runtime.launching import Launcher
from tilepipe.cuda.runtime.staging import staged
from tilepipe.errors import BindError, ExportError, UnavailableError
from tilepipe.export.manifest import Manifest, Tensor, read
from tilepipe.export.rules import CLUSTERS, Number, value
from tilepipe.host_arguments import plain, question, shown
from tilepipe.ir.arrays import array_dtype, byte_strides, refuse_shared_memory
from tilepipe.ir.host_tensors import is_tensor
from tilepipe.ir.location import Loc
from tilepipe.ir.program import Kernel, Launch, TensorArg

_LAUNCHERS = 256  # that are kept, each of one set of shapes, strides and numbers


class ExportedKernel:
    """An exported kernel. Safe to launch from several threads.

    Attributes:
        manifest: what the files say of it.
    """

    def __init__(self, manifest: Manifest, cubin: bytes, path: Path) -> None:
        self.manifest = manifest
        self._path = path
        self._cubin = cubin
        self._functions: dict[int, driver.Function] = {}  # by device
        self._launchers: OrderedDict[object, Launcher] = OrderedDict()
        self._checked: OrderedDict[object, Launcher] = OrderedDict()  # by what `_known_by` returns
        self._lock = threading.Lock()
        params = [x.param for x in manifest.parameters]
        by_name = {p.name: p for p in params}
        self._written = [x.param.name for x in manifest.tensors if x.written]
        self._passed = [Argument(x.kind, by_name[x.parameter], x.axis) for x in manifest.arguments]
        self._kernel = Kernel(
            manifest.kernel, Loc(str(path), 1), params, cooperative=manifest.cooperative
        )
        self._compiled = Compiled(
            manifest.entry, manifest.arch, "cubin", "", "", cubin, manifest.smem_bytes,
            manifest.threads, manifest.cluster,
        )  # fmt: skip

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ExportedKernel:
        """The kernel of a manifest, or of a directory with one.

        Raises:
            BindError, ExportError: as `tilepipe.load_exported`.
        """
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise BindError(
                "load_exported takes the path of a manifest, NAME.json, or of its directory, as a"
                f" str or a Path; got {shown(path)}"
            )
        found = _manifest_path(Path(path))
        manifest = read(found)
        place = found.parent / manifest.cubin_file
        try:
            cubin = files.read(place)
        except OSError as error:
            raise ExportError(f"cannot read {place}: {error.strerror}") from None
        digest = hashlib.sha256(cubin).hexdigest()
        if digest != manifest.cubin_sha256:
            raise ExportError(
                f"{place} is not what was exported: its SHA-256 is {digest[:16]}..., expected"
                f" {manifest.cubin_sha256[:16]}.... Export again, all files together."
            )
        return cls(manifest, cubin, found)

    def __repr__(self) -> str:
        takes = ", ".join(x.param.name for x in self.manifest.parameters)
        return f"<exported kernel {self.manifest.name}({takes}) for {self.manifest.arch}>"

    def launch(self, *unnamed: object, stream: Any = None, **arguments: Any) -> None:
        """Launches it on arrays in GPU memory or of NumPy, as `Program.launch` does.

        Args:
            stream: as for `Program.launch`.
            arguments: arrays, and numbers, by the names of the kernel's parameters; a number that
                is left out is what it was in the exported program.

        Raises:
            BindError: an argument is not named, missing, unknown, or not of a shape, dtype or
                memory order that the kernel was exported for. ExportError: the GPU is not one that
                it was exported for. LaunchError: the driver refuses it. UnavailableError: there is
                no driver, or no GPU.
        """
        if unnamed:
            names = ", ".join(f"{x.param.name}=..." for x in self.manifest.parameters)
            raise BindError(
                f"exported kernel '{self.manifest.name}' takes its arguments by name, got"
                f" {len(unnamed)} without: launch({names})"
            )
        key = _known_by(arguments)
        launcher = self._kept(self._checked, key) if key is not None else None
        if launcher is None:
            launch = self._launch(arguments)
            ordinal = interop.device_of(
                arg.array for arg in launch.args.values() if isinstance(arg, TensorArg)
            )
            launcher = self._launcher(launch, ordinal or 0)
            if ordinal is None:
                self._launch_staged(launch, launcher, stream)
                return
            if key is not None:
                self._keep(self._checked, key, launcher)
        arrays = [arguments[name] for name in launcher.tensors]
        handle = interop.stream_handle(stream, arrays, launcher.ordinal)
        launcher(tuple(map(interop.address, arrays)), handle)

    def _launch_staged(self, launch: Launch, launcher: Launcher, stream: Any) -> None:
        """A launch on NumPy arrays."""
        with staged(launch, 0, self._written) as staged_at:
            handle = interop.stream_handle(0 if stream is None else stream, (), 0)
            launcher(tuple(staged_at[n] for n in launcher.tensors), handle)

    def grid(self, extents: Mapping[str, int], **numbers: Number) -> int:
        """The CTAs of a launch. `extents`: the free extents by name. `numbers`: the other numbers
        that are arguments.
        """
        known = {x.param.name: x.value for x in self.manifest.scalars} | numbers | dict(extents)
        return int(value(self.manifest.grid, known))

    def _launch(self, arguments: Mapping[str, Any]) -> Launch:
        """The checked arguments, with the grid that follows from them."""
        manifest = self.manifest
        names = [x.param.name for x in manifest.parameters]
        unknown = [n for n in arguments if n not in names]
        missing = [
            f"{x.param.name}: {x}" for x in manifest.tensors if arguments.get(x.param.name) is None
        ]
        if unknown or missing:
            raise BindError(
                f"exported kernel '{manifest.name}' "
                + (f"does not know {unknown[0]}" if unknown else f"needs {'; '.join(missing)}")
                + f"; it takes {', '.join(names)}"
                + (question(unknown[0], names) if unknown else "")
            )
        extents: dict[str, tuple[int, str]] = {}
        args: dict[str, Any] = {}
        for x in manifest.parameters:
            name = x.param.name
            if isinstance(x, Tensor):
                args[name] = TensorArg(arguments[name], _shape(x, arguments[name], extents))
            else:
                args[name] = _number(name, arguments.get(name, x.value), x.param.dtype.is_float)
        arrays = {n: arg.array for n, arg in args.items() if isinstance(arg, TensorArg)}
        refuse_shared_memory(manifest.name, self._written, arrays, _byte_strides)
        known: dict[str, Number] = {n: extent for n, (extent, _) in extents.items()}
        known |= {x.param.name: args[x.param.name] for x in manifest.scalars}
        grid = int(value(manifest.grid, known))
        if not 1 <= grid < 2**31 or grid % manifest.cluster:
            raise BindError(
                f"the grid of '{manifest.name}' comes to {grid} CTAs; it has to be 1 to 2147483647,"
                f" in clusters of {manifest.cluster}"
            )
        known[CLUSTERS] = grid // manifest.cluster
        for condition in manifest.conditions:
            if not value(condition.holds, known):
                said = condition.message.format(*(value(x, known) for x in condition.shows))
                raise BindError(f"{condition.at}: {said}")
        return Launch(self._kernel, grid, args)

    def _launcher(self, launch: Launch, ordinal: int) -> Launcher:
        strides: dict[str, tuple[int, ...]] = {}
        key: list[object] = [ordinal]
        for name, arg in launch.args.items():
            if isinstance(arg, TensorArg):
                strides[name] = _byte_strides(arg.array)
                key.append((arg.shape, strides[name]))
            else:
                key.append(repr(arg))  # 0.0 and -0.0 are equal
        found = self._kept(self._launchers, tuple(key))
        if found is None:
            function = self._function(ordinal)
            found = Launcher(launch, self._compiled, function, strides, self._passed)
            self._keep(self._launchers, tuple(key), found)
        return found

    def _kept(self, known: OrderedDict[object, Launcher], key: object) -> Launcher | None:
        with self._lock:
            if key in known:
                known.move_to_end(key)  # the least recently used one is dropped
            return known.get(key)

    def _keep(self, known: OrderedDict[object, Launcher], key: object, launcher: Launcher) -> None:
        with self._lock:
            known[key] = launcher
            if len(known) > _LAUNCHERS:
                known.popitem(last=False)

    def _function(self, ordinal: int) -> driver.Function:
        with self._lock:
            found = self._functions.get(ordinal)
            if found is None:
                self._check_device(ordinal)
                m = self.manifest
                found = self._functions[ordinal] = driver.Function(
                    ordinal, self._cubin, m.entry, m.threads, m.smem_bytes, m.cluster
                )
        return found

    def _check_device(self, ordinal: int) -> None:
        manifest = self.manifest
        if ordinal >= driver.device_count():
            raise UnavailableError(f"there is no device {ordinal}")
        major, minor, sms = (
            driver.attribute(ordinal, name)
            for name in (
                "COMPUTE_CAPABILITY_MAJOR",
                "COMPUTE_CAPABILITY_MINOR",
                "MULTIPROCESSOR_COUNT",
            )
        )
        if not manifest.runs_on(major, minor):
            home, least, _ = manifest.compute_capability
            raise ExportError(
                f"{self._path} is compiled for compute capability {home}.{least}; device {ordinal}"
                f" has {major}.{minor}. Export it for this GPU."
            )
        if sms < manifest.sms:
            raise ExportError(
                f"the grid of {self._path} counts on {manifest.sms} multiprocessors; device"
                f" {ordinal} has {sms}. Export it with a program that is bound for this GPU."
            )


def _manifest_path(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.json"))
    if len(found) != 1:
        names = ", ".join(x.name for x in found) or "no .json"
        raise ExportError(f"{path} has {names}: name the manifest of one exported kernel")
    return found[0]


def _known_by(arguments: Mapping[str, Any]) -> tuple[object, ...] | None:
    """What a launch depends on but for addresses: launches that are alike in it are checked once.
    None where an array is not a PyTorch tensor on a GPU; such launches are checked each time.
    """
    found: list[object] = []
    for name in sorted(arguments):
        x = arguments[name]
        if is_tensor(x):
            if not x.is_cuda:
                return None
            found += name, x.dtype, x.shape, x.stride(), x.device
        elif isinstance(x, (int, float)):
            found += name, repr(x)  # 1, True and 1.0 are equal, 0.0 and -0.0 are
        else:
            return None
    return tuple(found)


def _shape(x: Tensor, array: Any, extents: dict[str, tuple[int, str]]) -> tuple[int, ...]:
    """The shape of an array, in elements, after checks. `extents`: of the arrays before it, and
    where each was found.
    """
    p = x.param
    dtype = array_dtype(array)
    packed = p.dtype.per_byte > 1 or (dtype.name == "uint8" and p.dtype.is_float)
    if dtype is not p.dtype and not packed:
        raise BindError(f"argument '{p.name}' is exported for {p.dtype}, got {dtype}")
    *outer, last = map(int, array.shape or (1,))
    shape = (*outer, last * p.dtype.per_byte)
    if len(shape) != p.rank:
        raise BindError(f"argument '{p.name}' has {p.rank} dimensions, got shape {shape}")
    for axis, (wanted, actual) in enumerate(zip(x.extents, shape, strict=True)):
        here = f"{p.name}.shape[{axis}]"
        if actual < 1:
            raise BindError(f"{here} is {actual}; an extent is at least 1")
        if isinstance(wanted, int):
            if actual != wanted:
                raise BindError(f"{here} is {actual}; it was exported for {wanted}")
            continue
        found, place = extents.setdefault(wanted, (actual, here))
        if found != actual:
            raise BindError(f"{here} is {actual}, but {place} is {found}; both are '{wanted}'")
    inner, size = p.contiguous_axis, max(p.dtype.bits // 8, 1)
    stride = _byte_strides(array)[inner]
    if shape[inner] > 1 and stride != size:
        raise BindError(
            f"argument '{p.name}' is exported with dimension {inner} contiguous; here its stride is"
            f" {stride} bytes"
        )
    return shape


def _byte_strides(array: Any) -> tuple[int, ...]:
    return (
        interop.view(array).byte_strides
        if interop.is_device_array(array)
        else (byte_strides(array))
    )


def _number(name: str, given: Any, is_float: bool) -> Number:
    found = plain(given)
    if isinstance(found, bool) or not isinstance(found, (int, float) if is_float else int):
        kind = "a number" if is_float else "an integer"
        raise BindError(f"argument '{name}' is {kind}, got {shown(given)}")
    return found
