"""What the GEMM takes: dtypes, shapes and memory orders, each mistake one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import tilepipe as tp
from tilepipe.kernels.common import limits
from tilepipe.kernels.common.multicast import rows_of_load
from tilepipe.kernels.common.tiling import OutputTiling, Sm100Tiling, store_width
from tilepipe.kernels.common.validation import Array, check_array, check_product, mapped

FP8 = (tp.float8_e4m3, tp.float8_e5m2)
INPUTS = (tp.bfloat16, tp.float16, tp.float32, *FP8)
OUTPUTS: tuple[tp.DType, ...] = (tp.bfloat16, tp.float16, tp.float32)


@dataclass(frozen=True, eq=False)
class Extras:
    """What a product is scaled by and added to: arrays and numbers as `bind` takes them."""

    bias: Array | None = None
    a_scale: Array | None = None
    b_scale: Array | None = None
    source: Array | None = None
    alpha: float = 1.0
    beta: float = 0.0

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises BindError for a bias or a source that does not fit a C of that shape, or a factor
        of no source.
        """
        bias, source, beta = self.bias, self.source, self.beta
        m, n = shape[-2:]
        if bias is not None and tuple(bias.shape) not in ((n,), (m, 1)):
            raise tp.BindError(
                f"gemm: bias must have shape ({n},), one value a column of C, or ({m}, 1), one"
                f" value a row; it has {tuple(bias.shape)}"
            )
        if source is not None and tuple(source.shape) != shape:
            raise tp.BindError(f"gemm: source has shape {tuple(source.shape)}, C {shape}")
        if beta and source is None:
            raise tp.BindError(
                f"gemm: beta={beta} scales source, which is not given; to add to what C holds, pass"
                " it as source"
            )

    def scales(self, m: int, n: int) -> str:
        """What the scales are of: "none", the whole "tensor", or each "row"."""
        if self.a_scale is None and self.b_scale is None:
            return "none"
        shapes = tuple(None if x is None else tuple(x.shape) for x in (self.a_scale, self.b_scale))
        if shapes not in (((1,), (1,)), ((m,), (n,))):
            raise tp.BindError(
                f"gemm: a_scale and b_scale have shapes {shapes[0]} and {shapes[1]}; need both"
                f" (1,), or ({m},) and ({n},)"
            )
        return "tensor" if shapes == ((1,), (1,)) and (m, n) != (1, 1) else "row"

    def operands(
        self, c: tp.TensorMap | None = None
    ) -> tuple[Array | tp.TensorMap | float | None, ...]:
        """What the kernel is bound with: nothing for a factor of 1, or for a source times 0; a bias
        of rows as (1, m), which loads of fragments take along the last dimension.

        Args:
            c: the tensor map of C, where the source is read by TMA as C is written.

        Raises:
            BindError: TMA cannot read the source so.
        """
        bias, source = self.bias, self.source if self.beta else None
        return (
            bias if bias is None or len(bias.shape) == 1 else bias.swapaxes(-1, -2),
            self.a_scale,
            self.b_scale,
            source if source is None or c is None else source_map(source, c),
            None if self.alpha == 1.0 else float(self.alpha),
            float(self.beta) if self.beta else None,
        )


def check_kinds(arrays: dict[str, Array], extras: Extras) -> None:
    """Raises BindError for what is not an array, or of a dtype that the kernel reads, or not a
    number.
    """
    for name, x in arrays.items():
        check_array("gemm", name, x)
    for name in ("bias", "a_scale", "b_scale", "source"):
        if (x := getattr(extras, name)) is not None:
            takes = (tp.float32,) if name.endswith("_scale") else OUTPUTS
            check_array("gemm", name, x, dtypes=takes)
    factors: dict[str, object] = {"alpha": extras.alpha, "beta": extras.beta}
    for name, value in factors.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise tp.BindError(f"gemm: {name} must be a number, got {value!r}")


def check_inputs(a: tp.DType, b: tp.DType) -> None:
    """Raises BindError unless the tensor cores multiply them."""
    both = {a, b}
    if not both <= set(INPUTS) or (len(both) > 1 and not both <= set(FP8)):
        raise tp.BindError(
            f"gemm takes bfloat16, float16 or float32, the same for A and B, or fp8; got {a} and"
            f" {b}"
        )


def check_stage_bytes(
    bm: int, b_rows: int, bk: int, k_group_size: int, dtype: tp.DType, cta_group: int = 1
) -> None:
    """Raises BindError where the tiles of one stage are more bytes than its full barrier counts.

    Args:
        b_rows: rows of B that one CTA holds. dtype: of A, or of B: elements of the same size.
        cta_group: CTAs whose copies are counted on one barrier.
    """
    each = (bm + b_rows) * bk * dtype.nbytes * cta_group
    total = each * k_group_size
    if total <= tp.Chip.max_tx_bytes:
        return
    pair = f" * {cta_group} CTAs" if cta_group > 1 else ""
    raise tp.BindError(
        f"k_group_size={k_group_size} makes a stage of {k_group_size} tiles of A, {bm}×{bk}, and"
        f" of B, {b_rows}×{bk}, of {dtype}:"
        f" {k_group_size} * ({bm} + {b_rows}) * {bk} * {dtype.nbytes} bytes{pair} = {total:,}"
        " bytes, and the stage's mbarrier counts"
        f" up to {tp.Chip.max_tx_bytes:,}. With these tiles k_group_size may be"
        f" {tp.Chip.max_tx_bytes // each} at most, and as many as all stages"
        " find room for in shared memory"
    )


def check_order(name: str, x: tp.TensorMap, tile_rows: int, settings: str) -> None:
    """Raises BindError for an operand that is not contiguous along K, where that cannot be."""
    if x.order == "row" or x.box is None:
        return
    axis = {"A": "m", "B": "n"}[name]
    if x.dtype.nbytes != 2:
        raise tp.BindError(
            f"gemm: {name} is contiguous along {axis}; tensor cores transpose 16-bit elements"
            f" only, so {x.dtype} must be contiguous"
            f" along k: pass a copy that is"
        )
    limits.check_lines(name, tile_rows, x.box[-2], settings)


def check_arguments(a: Array, b: Array, c: Array, extras: Extras) -> tuple[int, int]:
    """(m, n) of a product, checked. Raises BindError for what does not fit together."""
    check_kinds({"a": a, "b": b, "c": c}, extras)
    for name, array in (("a", a), ("b", b), ("c", c)):
        if len(array.shape) not in (2, 3):
            raise tp.BindError(f"gemm multiplies matrices; {name} has shape {tuple(array.shape)}")
    check_product("gemm", a, b, c)
    batches = {name: x.shape[0] for name, x in (("A", a), ("B", b), ("C", c)) if len(x.shape) == 3}
    if batches and ("C" not in batches or len(set(batches.values())) > 1):
        raise tp.BindError(f"gemm: batch dimensions {batches} must be equal, and C must have one")
    extras.check(tuple(c.shape))
    return a.shape[-2], b.shape[-2]


def output_map(c: Array, cfg: OutputTiling, order: str = "row") -> tp.TensorMap:
    """The tensor map of C, whose boxes are the epilogue's stores. Raises BindError for a dtype that
    the epilogue does not write.
    """
    dtype = mapped("gemm", "c", c).dtype
    if dtype not in OUTPUTS:
        raise tp.BindError(f"gemm writes {', '.join(t.name for t in OUTPUTS)}; C is {dtype}")
    box = cfg.block_rows, store_width(dtype, cfg)
    return mapped("gemm", "c", c, (1,) * (len(c.shape) - 2) + box, order=order)


def source_map(source: Array, c: tp.TensorMap) -> tp.TensorMap:
    """The tensor map of a source that TMA brings in boxes like those of C.

    Raises:
        BindError: another dtype or memory order than C's, or what TMA cannot take.
    """
    made = mapped("gemm", "source", source)
    either_order = source.shape[-2:] == (1, 1)
    if made.dtype != c.dtype or (made.order != c.order and not either_order):
        along = {"row": "rows", "col": "columns"}
        raise tp.BindError(
            f"gemm: source is {made.dtype}, contiguous along its {along[made.order]}, and C"
            f" {c.dtype}, along its {along[c.order]}; with source_slots above 0 TMA reads it as it"
            " writes C: pass a copy like C, or source_slots=0"
        )
    return mapped("gemm", "source", source, c.box, order=c.order)


def input_maps(
    a: Array, b: Array, cfg: OutputTiling, rows: tuple[int, int], parts: tuple[int, int]
) -> tuple[tp.TensorMap, tp.TensorMap]:
    """The tensor maps of A and B, checked.

    Args:
        rows: of A and of B that one CTA holds of a K tile. parts: CTAs that load a part of them
            each.
    """
    boxes = [(rows_of_load(count, part), cfg.bk) for count, part in zip(rows, parts, strict=True)]
    a_map, b_map = (
        mapped("gemm", name, x, (1,) * (len(x.shape) - 2) + box)
        for name, x, box in zip("ab", (a, b), boxes, strict=True)
    )
    check_inputs(a_map.dtype, b_map.dtype)
    group = cfg.cta_group if isinstance(cfg, Sm100Tiling) else 1
    check_stage_bytes(*rows, cfg.bk, cfg.k_group_size, a_map.dtype, group)
    settings = ["bm and cluster_n", "bn and cluster"]
    if cfg.swap == "ab":
        settings.reverse()
    check_order("A", a_map, rows[0], settings[0])
    check_order("B", b_map, rows[1], settings[1])
    return a_map, b_map
