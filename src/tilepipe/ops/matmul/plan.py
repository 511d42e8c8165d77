"""Plans: what a call of matmul on CUDA tensors comes down to once its shapes, strides, dtypes and
options are known: a loaded kernel for these shapes, and how to copy the operands that it cannot
take.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from tilepipe.cuda.runtime.driver import current
from tilepipe.ir.chip import Chip
from tilepipe.ir.rules.tma import ALIGNMENT
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.lang.arguments.arrays import array_dtype
from tilepipe.ops.matmul import validation as options_
from tilepipe.ops.matmul.shapes import Product, Shape, kernel_takes, tma_order
from tilepipe.ops.torch.checks import check, hopper, tilepipe_dtype
from tilepipe.ops.torch.plans import MISALIGNED, Launcher, Prepare, span

_PLACES = ("a", "b", "c", "bias", "source")  # what `order` of a plan picks from

Options = tuple[Any, ...]


class View:
    """Shape, strides (elements) and place of a tensor, which it does not keep alive: what a kernel
    is bound to.
    """

    def __init__(self, x: Any) -> None:
        self.shape: Shape = tuple(x.shape)
        self.dtype = x.dtype
        self.device = x.device
        self._stride: Shape = tuple(x.stride())
        self._address = int(x.data_ptr())

    def stride(self) -> Shape:
        """As of a tensor."""
        return self._stride

    def data_ptr(self) -> int:
        """As of a tensor."""
        return self._address

    def swapaxes(self, i: int, j: int) -> View:
        """As of a tensor."""
        other = copy(self)
        order = list(range(len(self.shape)))
        order[i], order[j] = order[j], order[i]
        other.shape = tuple(self.shape[axis] for axis in order)
        other._stride = tuple(self._stride[axis] for axis in order)
        return other

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        size = array_dtype(self).nbytes
        strides = tuple(s * size for s in self._stride)
        return {
            "shape": self.shape,
            "typestr": f"|V{size}",
            "strides": strides,
            "data": (self._address, False),
            "version": 3,
        }


class Plan(NamedTuple):
    """One prepared product.

    Attributes:
        launcher: called with the addresses that `order` picks of (a, b, c, bias, source); None:
            nothing to multiply.
        a, b, bias, source: how each operand is brought into a form that the kernel takes; None: it
            is.
        c: the result as the kernel writes it is made by this and copied to its place; None: written
            in place.
        shape, dtype, device: of the result.
        spans: bytes from the first to the last element of a, b, bias, source and out.
    """

    launcher: Launcher | None
    order: Callable[[tuple[int, ...]], tuple[int, ...]]
    ordinal: int
    a: Prepare | None
    b: Prepare | None
    bias: Prepare | None
    source: Prepare | None
    c: Callable[[], Any] | None
    shape: Shape
    dtype: Any
    device: Any
    spans: tuple[int, ...]
    otherwise: Callable[[Any, Any], Any]


def prepare(a: Any, b: Any, out: Any, bias: Any, source: Any, options: Options) -> Plan:
    """Makes the plan for these tensors: checks them, chooses a configuration, compiles and loads
    the kernel.

    Raises:
        BindError, UnavailableError: as `ops.matmul`.
    """
    activation, alpha, beta, out_dtype, precision, items = options
    shapes, dtype = check(
        a, b, out, bias, activation, source, alpha, beta, out_dtype, precision, dict(items)
    )
    ordinal = a.get_device()
    scale = (1.0 if beta is None else float(beta)) if source is not None else 0.0
    spans = tuple(span(x) for x in (a, b, bias, source, out))

    def otherwise(bias: Any, source: Any) -> Any:
        return _without_product(shapes, bias, source if scale else None, scale, activation)

    parts: dict[str, Any] = {
        "shape": shapes.result, "dtype": dtype, "device": a.device, "ordinal": ordinal, "spans": spans, "otherwise": otherwise,
    }  # fmt: skip
    if 0 in shapes.output or shapes.k == 0:
        return Plan(None, tuple, a=None, b=None, bias=None, source=None, c=None, **parts)
    chip = hopper(ordinal)
    result = torch.empty(shapes.result, dtype=dtype, device=a.device) if out is None else out
    make_c, written = output(result, shapes.output)
    read = source if scale else None
    forms = {
        "a": operand(a, lambda x: shapes.left(x, torch.Tensor.expand)),
        "b": operand(b, lambda x: shapes.right(x, torch.Tensor.expand).transpose(-1, -2)),
        "bias": operand(bias, lambda x: x, matrix=False),
        "source": operand(read, lambda x: shapes.like_output(x, torch.Tensor.expand)),
    }
    left, right = forms["a"][1], forms["b"][1]
    config = _config(
        shapes, left, right, dtype, options, bias is not None or read is not None, chip
    )
    epilogue: dict[str, Any] = {"alpha": float(alpha)} if alpha != 1 else {}
    epilogue |= {"source": View(forms["source"][1]), "beta": scale} if read is not None else {}
    epilogue |= {"bias": View(forms["bias"][1])} if bias is not None else {}
    with current(ordinal):  # a thread that has called nothing of CUDA has no context
        launcher = gemm.bind(View(left), View(right), View(written), config, **epilogue).launcher()
    order = itemgetter(*(_PLACES.index(name) for name in launcher.tensors))
    return Plan(
        launcher, order, c=make_c, **(parts | {name: form[0] for name, form in forms.items()})
    )


def _config(
    shapes: Product, left: Any, right: Any, dtype: Any, options: Options, extras: bool, chip: Chip
) -> gemm.GemmConfig:
    activation, *_, items = options
    if items:
        return options_.config(dict(items), activation, array_dtype(left))
    batch = 1 if len(shapes.output) == 2 else shapes.matrices
    m, n = shapes.output[-2:]
    inputs, orders = array_dtype(left), [_order(x) or "row" for x in (left, right)]
    chosen = gemm.choose(
        m, n, shapes.k, inputs, tilepipe_dtype(dtype), batch=batch, a_order=orders[0], b_order=orders[1],
        extras=extras or activation is not None, chip=chip,
    )  # fmt: skip
    return chosen if activation is None else replace(chosen, activation=activation)


def _order(x: Any) -> str | None:
    return tma_order(tuple(x.shape), _byte_strides(x), x.element_size())


def _byte_strides(x: Any) -> Shape:
    size = x.element_size()
    return tuple(stride * size for stride in x.stride())


def operand(
    x: Any, form: Prepare, *, matrix: bool = True, order: str | None = None
) -> tuple[Prepare | None, Any]:
    """How to bring `x` into a form that the kernel takes, None where it lies so already; and `x` in
    it. `order`: the only one taken.
    """
    if x is None:
        return None, None

    def prepared(x: Any) -> Any:
        y = form(x)
        taken = (
            kernel_takes(tuple(y.shape), _byte_strides(y), y.element_size())
            if matrix
            else y.is_contiguous()
        )
        taken = taken and (order is None or _order(y) == order)
        return y if taken and y.data_ptr() & MISALIGNED == 0 else _padded(y)

    ready = prepared(x)
    return (None if ready.data_ptr() == x.data_ptr() else prepared), ready


def output(result: Any, shape: Shape) -> tuple[Callable[[], Any] | None, Any]:
    """How to make the array, of `shape`, that the kernel writes where it is not the result itself;
    and one to bind to.
    """
    try:
        written = result.view(shape)
    except RuntimeError:  # a batch that is no single dimension
        written = None
    if written is not None and written.data_ptr() & MISALIGNED == 0 and _order(written) == "row":
        return None, written
    make = _maker(shape, result.dtype, result.device)
    return make, make()


def _maker(shape: Shape, dtype: Any, device: Any) -> Callable[[], Any]:
    unit = ALIGNMENT // torch.empty(0, dtype=dtype, device="meta").element_size()
    whole = (*shape[:-1], -(-shape[-1] // unit) * unit)
    return lambda: torch.empty(whole, dtype=dtype, device=device)[..., : shape[-1]]


def _padded(x: Any) -> Any:
    """A row-major copy with rows padded to 16 bytes."""
    return _maker(tuple(x.shape), x.dtype, x.device)().copy_(x)


def activate(z: Any, activation: str | None) -> Any:
    """The kernel's activations, by PyTorch's functions."""
    if activation == "gelu":
        return torch.nn.functional.gelu(z, approximate="tanh")
    return z if activation is None else getattr(torch.nn.functional, activation)(z)


def _without_product(
    shapes: Product, bias: Any, source: Any, beta: float, activation: str | None
) -> Any:
    """What remains where k is 0, in float32."""
    zero = torch.zeros(
        (),
        dtype=torch.float32,
        device=next((x.device for x in (bias, source) if x is not None), None),
    )
    z = zero if source is None else beta * source.float()
    return activate(z if bias is None else z + bias.float(), activation).expand(shapes.result)
