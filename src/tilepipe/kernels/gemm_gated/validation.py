"""What the gated GEMM takes: dtypes, shapes and memory orders, each mistake one sentence."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.tiling import BLOCK_ROWS, store_width
from tilepipe.kernels.common.validation import Array, check_array, check_product, mapped
from tilepipe.kernels.gemm.validation import OUTPUTS, check_order, check_stage_bytes
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig

NAME = "gemm_gated"
HALVES = (tp.bfloat16, tp.float16)


def check_arguments(a: Array, gate: Array, up: Array, c: Array) -> None:
    """Raises BindError where something is no matrix, has another dtype, or the shapes do not fit
    together.
    """
    for name, x in (("a", a), ("gate", gate), ("up", up)):
        check_array(NAME, name, x, 2, HALVES)
    check_array(NAME, "c", c, 2, OUTPUTS)
    if tuple(gate.shape) != tuple(up.shape):
        raise tp.BindError(
            f"{NAME}: gate and up must have one shape (n, k); they have {tuple(gate.shape)} and"
            f" {tuple(up.shape)}"
        )
    check_product(NAME, a, gate, c, "(gate and up) ")
    types = [mapped(NAME, name, x).dtype for name, x in (("a", a), ("gate", gate), ("up", up))]
    if len(set(types)) > 1:
        raise tp.BindError(
            f"{NAME} takes a, gate and up of one dtype; got {', '.join(t.name for t in types)}"
        )


def maps(
    a: Array, gate: Array, up: Array, c: Array, cfg: GatedGemmConfig
) -> tuple[tp.TensorMap, tp.TensorMap, tp.TensorMap, tp.TensorMap]:
    """The tensor maps of a, gate, up and c, checked."""
    a_map = mapped(NAME, "a", a, (load_rows(cfg.bm // cfg.cluster_n), cfg.bk))
    box = load_rows(cfg.bn // 2 // cfg.cluster), cfg.bk
    gate_map, up_map = (mapped(NAME, n, x, box) for n, x in (("gate", gate), ("up", up)))
    if gate_map.order != up_map.order:
        raise tp.BindError(
            f"{NAME}: gate is contiguous along {'k' if gate_map.order == 'row' else 'n'} and up"
            f" along {'k' if up_map.order == 'row' else 'n'}; one MMA reads both, so they must be"
            " alike: pass a copy of one of them"
        )
    check_stage_bytes(cfg.bm, cfg.bn, cfg.bk, cfg.k_group_size, a_map.dtype)
    check_order("A", a_map, cfg.bm, "bm and cluster_n")
    _check_halves(gate_map, cfg)
    width = store_width(mapped(NAME, "c", c).dtype, cfg.output)
    return a_map, gate_map, up_map, mapped(NAME, "c", c, (BLOCK_ROWS, width), order="row")


def _check_halves(gate: tp.TensorMap, cfg: GatedGemmConfig) -> None:
    """Raises BindError where gate and up are contiguous along n and a part that a CTA loads of them
    is not of whole swizzle spans.
    """
    part = cfg.bn // 2 // cfg.cluster
    line = max(x for x in (32, 64) if cfg.bn % x == 0)  # elements of a swizzle span
    if gate.order == "row" or part % line == 0:
        return
    raise tp.BindError(
        f"{NAME}: gate and up are contiguous along n, and their tiles are loaded in parts of bn / 2"
        f" / cluster = {cfg.bn} / 2 / {cfg.cluster} = {part} along n, which must be a multiple of"
        f" {line}: change bn and cluster, or pass gate and up contiguous along k"
    )
