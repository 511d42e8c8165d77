"""The dtypes that the operations return, and the arrays that a caller gives for results."""

from __future__ import annotations

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.gemm.validation import OUTPUTS as OUTPUTS
from tilepipe.ops.types import ArrayT, Shape


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


def check_shape(operation: str, name: str, x: ArrayT | None, shape: Shape) -> None:
    """Raises BindError for an array of another shape; None is none."""
    if x is not None and tuple(x.shape) != shape:
        raise BindError(f"{operation}: {name} must have shape {shape}, it has {tuple(x.shape)}")
