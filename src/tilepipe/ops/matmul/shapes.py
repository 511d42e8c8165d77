"""The shapes of a product as `matmul` of NumPy and PyTorch has them, brought to what the kernel
takes.

a (m, k) · b (k, n)          both matrices
a (batch, m, k) · b (k, n)   one b for all
a (batch, m, k) · b (batch, k, n)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from tilepipe.errors import BindError
from tilepipe.ops.calls import ArrayT, Shape

Expand = Callable[[ArrayT, Shape], ArrayT]


class Product(NamedTuple):
    """Shapes of one product; see `product`.

    Attributes:
        result: shape of a @ b. m, n, k: extents of one product of matrices.
        batch: the broadcast batch extents; `matrices` is their product.
        one_a, one_b: a, or b, is one matrix for the whole batch.
        fold: the batch of a is taken as more rows: (matrices · m, k) · (k, n).
    """

    result: Shape
    m: int
    n: int
    k: int
    batch: Shape
    matrices: int
    one_a: bool
    one_b: bool
    fold: bool

    @property
    def output(self) -> Shape:
        """Shape of the kernel's C."""
        if not self.batch or self.fold:
            return (self.matrices * self.m, self.n)
        return (self.matrices, self.m, self.n)

    def left(self, a: ArrayT, expand: Expand[ArrayT]) -> ArrayT:
        """`a` as the kernel takes it: a view where there is one, else a copy."""
        if not self.batch and len(a.shape) == 2:
            return a
        if self.fold:
            return a.reshape((self.matrices * self.m, self.k))
        if not self.batch or self.one_a:
            return a.reshape((self.m, self.k))
        made: ArrayT = _batched(a, (*self.batch, self.m, self.k), self.matrices, expand)
        return made

    def right(self, b: ArrayT, expand: Expand[ArrayT]) -> ArrayT:
        """`b` as the kernel takes it, still (k, n)."""
        if self.one_b and len(b.shape) == 2:
            return b
        if self.one_b:
            return b.reshape((self.k, self.n))
        made: ArrayT = _batched(b, (*self.batch, self.k, self.n), self.matrices, expand)
        return made

    def like_output(self, x: ArrayT, expand: Expand[ArrayT]) -> ArrayT:
        """An operand of the result's shape, or one that broadcasts to it, in the shape of the
        kernel's C.
        """
        full = x if tuple(x.shape) == self.result else expand(x, self.result)
        return full.reshape(self.output)

    def added(self, bias: ArrayT, expand: Expand[ArrayT]) -> ArrayT:
        """A bias (n,), or (m, 1), as the kernel adds it: of all rows of C where the batch of a is
        taken as more rows.
        """
        if len(bias.shape) == 1 or not self.fold:
            return bias
        return expand(bias, (self.matrices, self.m, 1)).reshape((self.matrices * self.m, 1))


def _batched(x: ArrayT, shape: Shape, count: int, expand: Expand[ArrayT]) -> ArrayT:
    full = x if tuple(x.shape) == shape else expand(x, shape)
    return full if len(shape) == 3 else full.reshape((count, *shape[-2:]))


def product(operation: str, a: Shape, b: Shape, a_strides: Shape) -> Product:
    """The product of arrays of shapes `a` and `b`, by the rules of NumPy's and PyTorch's matmul:
    1-D operands are a row and a column that the result does not have; the dimensions before the
    last two are broadcast.

    Args:
        operation: its name, for messages.
        a_strides: of a, in any unit; rows of a batch that lie one after another become rows of one
            matrix.

    Raises:
        BindError: the shapes do not multiply, or the batches do not broadcast.
    """
    if not a or not b:
        raise BindError(
            f"{operation} multiplies arrays of at least 1 dimension; a has shape {_show(a)} and b"
            f" {_show(b)}"
        )
    m, k = (1, a[0]) if len(a) == 1 else a[-2:]
    kb, n = (b[0], 1) if len(b) == 1 else b[-2:]
    if k != kb:
        raise BindError(
            f"{operation}: a is {_show(a)} and b is {_show(b)}; {k} columns against {kb} rows"
        )
    batch = _broadcast(operation, a, b)
    count = prod(batch)
    one_a, one_b = (all(extent == 1 for extent in x[:-2]) for x in (a, b))
    fold = one_b and len(batch) > 0 and _one_after_another(a, a_strides)
    result = (*batch, *(() if len(a) == 1 else (m,)), *(() if len(b) == 1 else (n,)))
    return Product(result, m, n, k, batch, count, one_a, one_b, fold)


def _broadcast(operation: str, a: Shape, b: Shape) -> Shape:
    left, right = a[:-2], b[:-2]
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + tuple(left), (1,) * (rank - len(right)) + tuple(right)
    for x, y in zip(left, right, strict=True):
        if x != y and x != 1 and y != 1:
            raise BindError(
                f"{operation}: the batches {_show(a[:-2])} of a {_show(a)} and {_show(b[:-2])} of b"
                f" {_show(b)} do not broadcast"
            )
    return tuple(y if x == 1 else x for x, y in zip(left, right, strict=True))


def _one_after_another(shape: Shape, strides: Shape) -> bool:
    """True if all dimensions but the last are one: each steps over exactly what lies inside it."""
    step, inner = None, 1
    for extent, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if extent == 1:
            continue
        if step is not None and stride != step * inner:
            return False
        step, inner = stride, extent
    return True


def _show(shape: Shape) -> str:
    return "×".join(map(str, shape)) if shape else "()"
