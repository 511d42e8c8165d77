"""What the operations share in taking a call: types, the device, settings, the result's dtype."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.host_arguments import did_you_mean
from tilepipe.ir import dtypes
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.ir.host_tensors import is_tensor
from tilepipe.kernels.gemm.validation import OUTPUTS

if TYPE_CHECKING:
    import torch
    from _typeshed import DataclassInstance

Array = npt.NDArray[np.generic]
ArrayT = TypeVar("ArrayT", npt.NDArray[np.generic], "torch.Tensor")
ConfigT = TypeVar("ConfigT")
Shape = tuple[int, ...]
Setting = int | str  # of a kernel's configuration; truth values are integers
Settings = tuple[tuple[str, Setting], ...]  # by name: a part of the key of a prepared launch
Progress = Callable[[int, int], None]

# Found here without the half microsecond that an import statement takes; only what is finished.
_imported: dict[str, Any] = {}
_importing = threading.RLock()


def gpu_module(
    name: str,
    operation: str,
    seed: int,
    progress: Progress | None,
    parameters: Sequence[str],
    *operands: object,
) -> Any:
    """The module that runs an operation on PyTorch tensors, on their GPU or, those on the CPU,
    simulated. It is imported when it is first needed.

    Args:
        parameters: the name of each operand, for the message: a string where they are letters.

    Raises:
        BindError: no operand is a tensor, or an option of the simulator is given for tensors that
            are not simulated.
    """
    for x in operands:
        if is_tensor(x):
            break
    else:
        named = zip(parameters, operands, strict=True)
        name, x = next((n, x) for n, x in named if not isinstance(x, np.ndarray))
        raise BindError(
            f"{operation}: {name} must be a NumPy array or a tensor of PyTorch, got"
            f" {type(x).__name__}"
        )
    if seed or progress is not None:
        from tilepipe.ops.torch import device

        if not device.simulates(x):
            raise BindError(
                f"{operation}: seed and progress belong to the simulator, which runs NumPy arrays"
                " and tensors on the CPU; a CUDA tensor runs on its GPU"
            )
    if sys.modules["torch"].compiler.is_compiling():
        # the one way to import that torch.compile follows
        from tilepipe.ops import registered

        return getattr(registered, name.split(".")[2])
    return _imported.get(name) or _import(name)


def _import(name: str) -> Any:
    """The module, imported by one thread at a time: of modules that import each other, another
    thread would be handed one that is not finished.
    """
    with _importing:
        module = _imported[name] = importlib.import_module(name)
    return module


def configured(
    config: Callable[..., ConfigT], defaults: Mapping[str, Setting], settings: Settings
) -> ConfigT:
    """A kernel's configuration: these settings, then `defaults`, then the defaults of its
    fields.
    """
    return config(**{**defaults, **dict(settings)})


def setting_names(config: type[DataclassInstance], *fixed: str) -> tuple[str, ...]:
    """The fields of a kernel's configuration that are settings, all but `fixed`."""
    return tuple(f.name for f in fields(config) if f.init and f.name not in fixed)


def unnamed_error(function: Callable[..., object], unnamed: Sequence[object]) -> BindError:
    """What to raise of arguments without a name beyond those that an operation takes so."""
    parameters = inspect.signature(function).parameters.values()
    places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = [f"{p.name}=" for p in parameters if p.kind is p.KEYWORD_ONLY]
    return BindError(
        f"{function.__name__} takes {', '.join(places)} by their places, and got"
        f" {len(places) + len(unnamed)} arguments without a name. The others have names:"
        f" {', '.join(named)}"
    )


def refuse_elsewhere(operation: str, given: Iterable[str], elsewhere: Mapping[str, str]) -> None:
    """Raises BindError for an argument that another library's function has; `elsewhere`: their
    names, and what there is instead.
    """
    for name in given:
        if name in elsewhere:
            raise BindError(f"{operation} has no argument {name}: {elsewhere[name]}")


def check_settings(
    operation: str,
    call: type[DataclassInstance],
    settings: Settings,
    known: Sequence[str],
    *,
    which: str = "",
) -> None:
    """Refuses settings that a kernel's configuration does not have.

    Args:
        call: the operation's arguments, for the message, which names them all.
        known: the settings that there are; an operation may have none.
        which: for the message, which form of the operation the kernel computes.

    Raises:
        BindError: names that are not in `known`.
    """
    unknown = [name for name, _ in settings if name not in known]
    if not unknown:
        return
    # the arguments of every operation end with the two that are the simulator's
    parameters = [*setting_names(call, "settings"), "seed", "progress"]
    meant = [other for name in unknown for other in did_you_mean(name, [*parameters, *known])]
    question = f" Did you mean {' or '.join(f'{name}=' for name in meant)}?" if meant else ""
    if not known:
        raise BindError(
            f"{operation} has no argument {', '.join(unknown)}.{question} It takes"
            f" {', '.join(parameters)}."
        )
    raise BindError(
        f"{operation}{which} does not know the setting {', '.join(unknown)}; it has"
        f" {', '.join(known)}.{question} {operation} takes {', '.join(parameters)}, and settings."
    )


def result_dtype(operation: str, out: ArrayT | None, out_dtype: object, default: DType) -> DType:
    """The dtype of a result: as `out` or `out_dtype` say, or `default`.

    Args:
        out_dtype: a name, or a dtype of tilepipe, NumPy or PyTorch.

    Raises:
        BindError: the two differ, or the kernels write no such dtype.
    """
    asked = default
    if out_dtype is not None:
        name = str(out_dtype)
        asked = dtypes.dtype(
            name.removeprefix("torch.") if name.startswith("torch.") else out_dtype
        )
    if out is not None:
        found = array_dtype(out)
        if out_dtype is not None and found is not asked:
            raise BindError(
                f"{operation}: out is {found} and out_dtype {asked}; give one of them, or both"
                " alike"
            )
        asked = found
    if asked not in OUTPUTS:
        raise BindError(f"{operation} returns {', '.join(t.name for t in OUTPUTS)}, not {asked}")
    return asked


def require_array(operation: str, name: str, x: object) -> None:
    """Raises BindError for what has no shape."""
    if not hasattr(x, "shape"):
        raise BindError(
            f"{operation}: {name} must be a NumPy array or a tensor of PyTorch, got"
            f" {type(x).__name__}"
        )


def check_shape(operation: str, name: str, x: ArrayT | None, shape: Shape) -> None:
    """Raises BindError for what is no array, or one of another shape; None is none."""
    if x is None:
        return
    require_array(operation, name, x)
    if tuple(x.shape) != shape:
        raise BindError(f"{operation}: {name} must have shape {shape}, it has {tuple(x.shape)}")
