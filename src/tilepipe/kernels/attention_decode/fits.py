"""What configurations of attention over a cache an SM has room for."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.attention_decode.config import (
    COLUMN_KEYS,
    MOST_COLUMNS,
    MOST_KEYS,
    MOST_NARROW_KEYS,
    ROWS,
    SLACK,
    SMEM_OF_CTA,
    DecodeConfig,
    Form,
    columns,
    padded,
)
from tilepipe.kernels.attention_decode.validation import Extents


def check_fits(cfg: DecodeConfig, found: Extents, chip: tp.Chip) -> None:
    """Raises BindError where an SM has not room for so many CTAs, or where pages neither make
    up a tile nor are made up by tiles, or where the registers do not suffice.
    """
    d, page, nbytes = found.d, found.page, found.cache_dtype.nbytes
    width = Form.of(found.rows, d, found.narrow, cfg).width
    most = most_keys(found, cfg)
    if cfg.bn > most:
        raise cfg.broken(
            f"bn={cfg.bn} keys of a tile: with heads of {d} elements and ctas={cfg.ctas} the"
            f" registers of a thread have room for {most}"
        )
    if page and cfg.bn % page and page % cfg.bn:
        raise cfg.broken(
            f"bn={cfg.bn} keys of a tile and pages of {page}: one must be a multiple of the other"
        )
    if found.narrow and cfg.bn % ROWS:
        raise cfg.broken(
            f"bn={cfg.bn} keys of a tile: of a cache of 8 bits a warpgroup widens {ROWS} at"
            f" once, so it is a multiple of {ROWS}"
        )
    ring = cfg.stages * 2 * cfg.bn * width * nbytes
    room = _ring_room(cfg, found, chip)
    if ring > room:
        lower = "stages, bn or ctas" if cfg.ctas > 1 else "stages or bn"
        free = not found.narrow and ring <= _ring_room(cfg.changed(queries="rows"), found, chip)
        other = ", or give queries='rows', which keeps no weights there" if free else ""
        raise cfg.broken(
            f"shared memory: {cfg.stages} stages of K and V, {cfg.bn} keys of {width}"
            f" elements each, take {cfg.stages} · 2 · {cfg.bn} · {width} · {nbytes} ="
            f" {ring:,} bytes; with ctas={cfg.ctas} a CTA has {room:,} bytes for them: lower"
            f" {lower}{other}"
        )


def check_columns(cfg: DecodeConfig, found: Extents) -> None:
    """Raises BindError where queries="columns", asked for by name, would not be heeded though there
    are few queries.
    """
    if cfg.queries == "columns" and found.rows <= MOST_COLUMNS and cfg.bn % COLUMN_KEYS:
        raise cfg.broken(
            f"queries='columns' needs bn, keys of a tile, to be a multiple of {COLUMN_KEYS}; with"
            f" bn={cfg.bn} queries are rows: give bn={COLUMN_KEYS}, if it fits, or leave queries"
            " out"
        )


def _ring_room(cfg: DecodeConfig, found: Extents, chip: tp.Chip) -> int:
    """Bytes of shared memory of a CTA that the ring may take."""
    room = (chip.smem_per_cta + SMEM_OF_CTA) // cfg.ctas - SMEM_OF_CTA
    return room - SLACK - fixed_bytes(found, cfg)


def fixed_bytes(found: Extents, cfg: DecodeConfig) -> int:
    """Bytes of shared memory of a CTA beside the ring: queries, and weights where queries are
    columns, or a tile of a narrow cache that has become one of 16 bits.
    """
    form, bn = Form.of(found.rows, found.d, found.narrow, cfg), cfg.bn
    if form.columns:
        return (ROWS * form.width + bn * columns(found.rows)) * 2
    return (ROWS + 2 * bn * found.narrow) * form.width * 2


def most_keys(found: Extents, cfg: DecodeConfig) -> int:
    """Keys of a tile for which the registers suffice."""
    if found.narrow and found.rows <= cfg.most_columns and found.d <= 2 * ROWS:
        return MOST_NARROW_KEYS
    return MOST_KEYS[cfg.ctas][padded(found.d)]
