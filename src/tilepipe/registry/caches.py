"""What the settings of the kernels of a cache state alike: the keys of each sequence, pages and
dtypes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.host_arguments import INT32_MAX, INT32_MIN


def lengths_of(
    settings: Mapping[str, Any], seed: int = 0, *, beyond: bool = False
) -> npt.NDArray[np.int32]:
    """The keys of each sequence that settings state: `lengths=300,100`, `lengths=random`, from 1 to
    the whole cache, or all of it. `beyond`: there may be more than the cache has room for, and
    fewer than none.

    Raises:
        BindError: other numbers than those of the batch, or one beyond the cache.
    """
    text, batch, s = (settings[name] for name in ("lengths", "batch", "s"))
    if not text:
        return np.full(batch, s, np.int32)
    if text == "random":
        drawn: npt.NDArray[np.int32] = np.random.default_rng(seed).integers(
            1, s, batch, dtype=np.int32, endpoint=True
        )
        return drawn
    parts = text.split(",")
    least, most = (INT32_MIN, INT32_MAX) if beyond else (0, s)
    numbers = [int(x) for x in parts if x.removeprefix("-").isdecimal()]
    if not len(parts) == len(numbers) == batch or not all(least <= n <= most for n in numbers):
        bound = "of 32 bits" if beyond else f"{s} (s) at most"
        raise BindError(
            f"setting lengths has the keys of each sequence, as many as batch={batch}, {bound},"
            f" such as lengths={','.join(['100'] * batch)}, or is random; got {text!r}"
        )
    return np.array(numbers, np.int32)


def checked_page(settings: Mapping[str, Any]) -> int:
    """The keys of a page; 0: there are none. Raises BindError: the kernels take no such pages."""
    page: int = settings["page"]
    if page and (page < 8 or page & (page - 1)):
        raise BindError(f"setting page must be 0, or a power of two from 8, got {page}")
    return page


def checked_dtype(name: str, value: object, takes: Collection[tp.DType]) -> tp.DType:
    """The dtype of a setting. Raises BindError: the kernel takes another one."""
    dtype = tp.dtype(value)
    if dtype not in takes:
        raise BindError(
            f"setting {name} must be one of {', '.join(t.name for t in takes)}, got {dtype}"
        )
    return dtype
