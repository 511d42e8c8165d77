"""Arguments of shipped kernels: their tensor maps, with mistakes told by the names that the caller
knows.
"""

from __future__ import annotations

from typing import Any

import tilepipe as tp


def mapped(
    kernel: str, name: str, x: Any, box: tuple[int, ...] | None = None, order: str | None = None
) -> tp.TensorMap:
    """`tp.tensor_map(x, box, order=order)` of the argument `name` of `kernel`.

    Raises:
        BindError: it cannot be; the message names both.
    """
    try:
        return tp.tensor_map(x, box=box, order=order)
    except tp.BindError as error:
        raise tp.BindError(f"{kernel}: {name}: {error}") from None
