"""TmemAddress: an address in tensor memory, without a shape."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.location import caller
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tensor_memory.tensors import TmemTensor
from tilepipe.lang.tracing.convergence import require_fragment
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, to_expr, traced_value

LOWER_LANES = 16 << 16  # in an address: the lower 16 of the 32 lanes of each warp


class TmemAddress:
    """An address in tensor memory, lane << 16 | column (PTX ISA, "Tensor Memory Addressing").

    `tp.TmemAddress(stage.tmem_offset()) + 16` is 16 columns of 32 bits further on. The two halves
    of an accumulator of 128 rows are lanes 0..15 and 16..31 of each warp, "upper" and "lower".

    Attributes:
        addr: the address, a traced uint32.
    """

    def __init__(self, addr: Value) -> None:
        """The address `addr`, a traced integer such as `stage.tmem_offset()`.

        Raises:
            TraceError: not a traced integer.
        """
        if not isinstance(addr, Value) or not addr.dtype.is_integer:
            raise TraceError(
                "an address in tensor memory is a traced uint32, such as stage.tmem_offset(); got"
                f" {addr!r}",
                caller(),
            )
        self.addr = addr.to(dtypes.uint32)
        self._tracer: Tracer = addr._tracer

    def __add__(self, columns: object) -> TmemAddress:
        """The address `columns` columns of 32 bits further on."""
        return TmemAddress(self.addr + traced_value(self._tracer, to_expr(self._tracer, columns)))

    def upper_addr(self) -> Value:
        """The address of lanes 0..15: `addr`."""
        return self.addr

    def lower_addr(self) -> Value:
        """The address of lanes 16..31."""
        return self.addr + LOWER_LANES

    def tensor(self, shape: tuple[int, int], dtype: object = "float32") -> TmemTensor:
        """The matrix (rows, cols) that begins here."""
        return TmemTensor(self._tracer, to_expr(self._tracer, self.addr), shape, dtype)

    def _half(self, address: Value, cols: int) -> TmemTensor:
        return TmemTensor(self._tracer, to_expr(self._tracer, address), (64, cols), "float32")

    def load_upper(self, cols: int) -> Fragment:
        """tcgen05.ld.16x256b of lanes 0..15 of each warp: a fragment (64, cols) whose row 16 w + r
        is lane 32 w + r.
        """
        return self._half(self.upper_addr(), cols).load()

    def load_lower(self, cols: int) -> Fragment:
        """`load_upper` of lanes 16..31."""
        return self._half(self.lower_addr(), cols).load()

    def store_upper(self, value: FragmentValue) -> None:
        """tcgen05.st.16x256b of a float32 fragment (64, cols) to lanes 0..15 of each warp."""
        self._half(self.upper_addr(), _columns(value)).store(value)

    def store_lower(self, value: FragmentValue) -> None:
        """`store_upper` to lanes 16..31."""
        self._half(self.lower_addr(), _columns(value)).store(value)

    def wait_load(self) -> None:
        """tcgen05.wait::ld: the fragments loaded before may be read after it
        (`ctx.tmem_wait_load()`).
        """
        require_fragment(self._tracer, "wait_load")
        self._tracer.emit(ops.TmemWaitLoad(caller()))

    def wait_store(self) -> None:
        """tcgen05.wait::st: the data stored before may be used after it
        (`ctx.tmem_wait_store()`).
        """
        require_fragment(self._tracer, "wait_store")
        self._tracer.emit(ops.TmemWaitStore(caller()))

    def __repr__(self) -> str:
        return f"<address in tensor memory {self.addr!r}>"


def _columns(value: object) -> int:
    if not isinstance(value, FragmentValue) or len(value.shape) != 2 or value.shape[0] != 64:
        raise TraceError(
            f"half an accumulator is stored from a fragment of 64 rows, got {value!r}", caller()
        )
    return int(value.shape[1])


def accumulator_at(
    tracer: Tracer, address: Value | TmemAddress, a: object, b: object
) -> TmemTensor:
    """The float32 accumulator of A · Bᵀ at an address: its shape is that of the product, (rows of
    A, rows of B), in a pair of CTAs (rows of A, rows of both halves of B).

    Raises:
        TraceError: the address is no integer; A or B is no operand of such a product.
    """
    if not isinstance(a, SmemTile | TmemTensor) or not isinstance(b, SmemTile):
        raise TraceError(
            f"mma into tensor memory: A is a tile or in tensor memory, B a tile; got {a!r} and"
            f" {b!r}",
            caller(),
        )
    place = address if isinstance(address, TmemAddress) else TmemAddress(address)
    return place.tensor((a.shape[0], b.shape[0] * max(tracer.kernel.cta_group, 1)))
