"""What `matmul` asks of PyTorch tensors, each broken rule one sentence; looked at once for each
plan.
"""

from __future__ import annotations

from typing import Any

import torch

from tilepipe.cuda.runtime import driver
from tilepipe.errors import BindError, UnavailableError
from tilepipe.ir import dtypes
from tilepipe.ir.chip import Chip
from tilepipe.ir.dtypes import DType
from tilepipe.lang.arguments.arrays import array_dtype
from tilepipe.ops.matmul import validation as options
from tilepipe.ops.matmul.shapes import Product, product

DEVICES = ["cuda", "meta"]
"""Types of device that a tensor may be on: the kernel's, and the one that has shapes only."""


def torch_dtype(spec: object, who: str = "matmul") -> Any:
    """The torch dtype for a torch dtype, a name, or a dtype of tilepipe or NumPy.

    Raises:
        BindError: an unknown one, or one that the kernel does not write.
    """
    if isinstance(spec, torch.dtype):
        return spec
    wanted = dtypes.dtype(spec)
    options.check_output(wanted, who)
    return getattr(torch, wanted.name)


def check(
    a: Any, b: Any, out: Any, bias: Any, activation: object, source: Any, alpha: object, beta: object, out_dtype: object, precision: object,
    settings: dict[str, Any],
) -> tuple[Product, Any]:  # fmt: skip
    """The shapes of the product and the torch dtype of its result.

    Raises:
        BindError: as `ops.matmul`.
    """
    for name, x in (("a", a), ("b", b), ("out", out), ("bias", bias), ("source", source)):
        if x is not None or name in ("a", "b"):
            check_tensor(name, x, a)
    options.check_inputs(array_dtype(a), array_dtype(b), precision)
    options.check_epilogue(activation, alpha, beta, source=source is not None)
    options.check_settings(settings)
    shapes = product(tuple(a.shape), tuple(b.shape), tuple(a.stride()))
    result = a.dtype if out_dtype is None else torch_dtype(out_dtype)
    if out is not None:
        if out_dtype is not None and out.dtype != result:
            raise BindError(
                f"matmul: out is {_name(out.dtype)} and out_dtype {_name(result)}; give one of"
                " them, or both alike"
            )
        if tuple(out.shape) != shapes.result:
            raise BindError(
                f"matmul: out must have shape {shapes.result}, it has {tuple(out.shape)}"
            )
        result = out.dtype
    wanted = tilepipe_dtype(result)
    options.check_output(wanted)
    if bias is not None:
        if tuple(bias.shape) != (shapes.n,):
            raise BindError(
                f"matmul: bias must have shape {(shapes.n,)}, it has {tuple(bias.shape)}"
            )
        options.check_bias("bias", array_dtype(bias), array_dtype(a), wanted)
    if source is not None:
        if source.dtype != result:
            raise BindError(
                f"matmul: source is {_name(source.dtype)} and the result {_name(result)}; convert"
                " one with .to()"
            )
        if not _broadcasts(tuple(source.shape), shapes.result):
            raise BindError(
                f"matmul: source of shape {tuple(source.shape)} does not broadcast to"
                f" {shapes.result}, the result's"
            )
    return shapes, result


def hopper(ordinal: int, who: str = "matmul") -> Chip:
    """What a device offers.

    Raises:
        UnavailableError: it is not of compute capability 9.0, whose wgmma the kernel is made of.
    """
    capability = torch.cuda.get_device_capability(ordinal)
    if capability != (9, 0):
        major, minor = capability
        raise UnavailableError(
            f"{who} needs a Hopper GPU (compute capability 9.0, wgmma); cuda:{ordinal} is"
            f" {torch.cuda.get_device_name(ordinal)} of"
            f" {major}.{minor}"
        )
    return driver.chip(ordinal)


def check_tensor(name: str, x: Any, a: Any, who: str = "matmul", first: str = "a") -> None:
    """Raises BindError unless `x` is a dense tensor on the device of `a`, named `first`, which is
    one that kernels run on.
    """
    if not isinstance(x, torch.Tensor):
        raise BindError(
            f"{who}: {name} must be a CUDA tensor of PyTorch as the others, got {type(x).__name__}"
        )
    if x.layout is not torch.strided:
        raise BindError(
            f"{who}: {name} must be a dense tensor, its layout is {_name(x.layout)}; .to_dense()"
            " makes one"
        )
    if x.device.type not in DEVICES:
        raise BindError(
            f"{who} runs tensors on CUDA devices; {name} is on {x.device}. Move it with .cuda();"
            " NumPy arrays are simulated"
        )
    if isinstance(a, torch.Tensor) and x.device != a.device:
        raise BindError(
            f"{who}: {first} is on {a.device} and {name} on {x.device}; move one with .to()"
        )


def tilepipe_dtype(raw: Any) -> DType:
    """tilepipe's dtype for a torch dtype."""
    return dtypes.dtype(_name(raw))


def _name(raw: Any) -> str:
    return str(raw).removeprefix("torch.")


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    if len(shape) > len(to):
        return False
    return all(x in (1, y) for x, y in zip(reversed(shape), reversed(to), strict=False))
