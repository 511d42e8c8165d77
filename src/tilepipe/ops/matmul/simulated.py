"""matmul of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.rules.tma import ALIGNMENT
from tilepipe.kernels.common.epilogue import activated
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.lang.arguments.arrays import array_dtype
from tilepipe.ops.matmul import validation as options
from tilepipe.ops.matmul.shapes import Shape, kernel_takes, product

Array = npt.NDArray[Any]


def matmul(
    a: Array,
    b: Array,
    *,
    out: Any,
    bias: Any,
    activation: str | None,
    source: Any,
    alpha: float,
    beta: float | None,
    out_dtype: object,
    precision: str | None,
    seed: int,
    progress: Callable[[int, int], None] | None,
    settings: Mapping[str, Any],
) -> Array:
    """`ops.matmul` of NumPy arrays, with all its options."""
    dtype = array_dtype(a)
    options.check_inputs(dtype, array_dtype(b), precision)
    options.check_epilogue(activation, alpha, beta, source=source is not None)
    options.check_settings(settings)
    shapes = product(a.shape, b.shape, a.strides)
    wanted = output_dtype(out, out_dtype, dtype)
    check_array("out", out, shapes.result, exact=True)
    check_array("source", source, shapes.result)
    check_array("bias", bias, (shapes.n,), exact=True)
    if source is not None and array_dtype(source) is not wanted:
        raise BindError(
            f"matmul: source is {array_dtype(source)} and the result {wanted}; convert one"
        )
    if bias is not None:
        options.check_bias("bias", array_dtype(bias), dtype, wanted)
    config = options.config(settings, activation, dtype)
    scale = (1.0 if beta is None else float(beta)) if source is not None else 0.0
    addend = acceptable(shapes.like_output(source, np.broadcast_to)) if scale else None
    if 0 in shapes.output:
        c = np.zeros(shapes.output, wanted.numpy)
    elif shapes.k == 0:
        c = _without_product(shapes.output, addend, scale, bias, activation).astype(wanted.numpy)
    else:
        c = padded(shapes.output, wanted)
        left, right = (
            acceptable(x)
            for x in (
                shapes.left(a, np.broadcast_to),
                shapes.right(b, np.broadcast_to).swapaxes(-1, -2),
            )
        )
        # The kernel refuses arrays that share memory with C; C is new, so none does.
        epilogue: dict[str, Any] = {"alpha": float(alpha)} if alpha != 1 else {}
        epilogue |= {"source": addend, "beta": scale} if addend is not None else {}
        epilogue |= {"bias": np.ascontiguousarray(bias)} if bias is not None else {}
        gemm.bind(left, right, c, config, **epilogue).run(seed=seed, progress=progress)
    if out is None:
        return np.ascontiguousarray(c).reshape(shapes.result)
    out[...] = c.reshape(shapes.result)
    result: Array = out
    return result


def output_dtype(out: Any, out_dtype: object, default: DType, who: str = "matmul") -> DType:
    """Of the result: as `out` or `out_dtype` say, or `default`.

    Raises:
        BindError: `out` cannot be written, they differ, or the kernel writes no such dtype.
    """
    asked = default if out_dtype is None else dtypes.dtype(out_dtype)
    if out is not None:
        if not isinstance(out, np.ndarray):
            raise BindError(
                f"{who}: out must be a NumPy array as a and b are, got {type(out).__name__}"
            )
        if not out.flags.writeable:
            raise BindError(
                f"{who}: out is read-only, or a broadcast view; give it memory of its own"
            )
        if out_dtype is not None and array_dtype(out) is not asked:
            raise BindError(
                f"{who}: out is {array_dtype(out)} and out_dtype {asked}; give one of them, or"
                " both alike"
            )
        asked = array_dtype(out)
    options.check_output(asked, who)
    return asked


def check_array(
    name: str, x: Any, shape: Shape, *, exact: bool = False, who: str = "matmul"
) -> None:
    """Raises BindError for what is neither None nor a NumPy array of that shape, or, unless
    `exact`, one that broadcasts to it.
    """
    if x is None:
        return
    if not isinstance(x, np.ndarray):
        raise BindError(
            f"{who}: {name} must be a NumPy array as a and b are, got {type(x).__name__}"
        )
    if x.shape == shape:
        return
    if exact:
        raise BindError(f"{who}: {name} must have shape {shape}, it has {x.shape}")
    try:
        fits = np.broadcast_shapes(x.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise BindError(
            f"{who}: {name} of shape {x.shape} does not broadcast to {shape}, the result's"
        )


def _without_product(
    shape: Shape, source: Array | None, beta: float, bias: Array | None, activation: str | None
) -> Array:
    """What remains where k is 0, in float32."""
    z = np.zeros(shape, np.float32)
    if source is not None:
        z += np.float32(beta) * source.astype(np.float32)
    if bias is not None:
        z += bias.astype(np.float32)
    return activated(z, activation)


def acceptable(x: Array) -> Array:
    """`x` itself if the kernel can take it (one of its last two dimensions contiguous, the last of
    float32; the other strides positive multiples of 16 bytes), else a padded copy.
    """
    if kernel_takes(x.shape, x.strides, x.dtype.itemsize):
        return x
    copy = padded(x.shape, array_dtype(x))
    copy[...] = x
    return copy


def padded(shape: Shape, dtype: DType) -> Array:
    """Zeros, row-major, with rows padded to a multiple of 16 bytes."""
    unit = ALIGNMENT // dtype.nbytes
    whole: Array = np.zeros((*shape[:-1], -(-shape[-1] // unit) * unit), dtype.numpy)
    return whole[..., : shape[-1]]
