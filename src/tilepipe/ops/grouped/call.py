"""The arguments of one call of `ops.grouped_matmul`, for both kinds of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tilepipe.ops.types import ArrayT, Settings

NAME = "grouped_matmul"


@dataclass
class GroupedCall(Generic[ArrayT]):
    """a[start:end] @ b[g] for the rows of each group; `ops.grouped_matmul` says what each may be."""

    a: ArrayT
    b: ArrayT
    offsets: ArrayT
    out: ArrayT | None
    out_dtype: object
    settings: Settings
