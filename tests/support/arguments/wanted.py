"""Which of the bad values are good for which parameters: what a parameter takes, by its annotation
and its name.
"""

from __future__ import annotations

import inspect
from typing import Annotated, get_args, get_origin

from tests.support.arguments.interpose import members
from tilepipe.lang.arguments import annotations as aliases

SCALARS = {
    "-1",
    "0",
    "3",
    "2**31",
    "2**34",
    "1.5",
    "2.0",
    "True",
    "np.int64(3)",
    "np.float32(2)",
    "np.True_",
}
INTEGERS = {"0", "3", "np.int64(3)"}
CONDITIONS = {"True", "np.True_"}
NAMES = {"text", "markup"}
TEXTS = NAMES | {"empty text", "two lines"}

# By name, or by member and name.
BY_NAME: dict[str, set[str]] = {
    "message": TEXTS,
    "format": TEXTS,
    "name": NAMES,
    "cond": CONDITIONS,
    "ready": CONDITIONS,
    "already_ready": CONDITIONS,
    "accumulate": CONDITIONS,
    "pred": CONDITIONS,
    "x": SCALARS,
    "y": SCALARS,
    "value": SCALARS,
    "expected": SCALARS,
    "other": SCALARS,
    "a": SCALARS,
    "b": SCALARS,
    "args": SCALARS,
    "init": SCALARS,
    "b_scale": SCALARS,
    "init_c": CONDITIONS,
    "bounds": INTEGERS | {"-1"},
    "tmem_offset": SCALARS,
    "address": SCALARS,
    "phase": INTEGERS | CONDITIONS,
    "e": {"0", "None"} | CONDITIONS,
    "mask": INTEGERS | {"None"},
    "multicast": INTEGERS | {"None"},
    "mma_complete_mask": INTEGERS | {"None"},
    "dst_cta": INTEGERS | {"None"},
    "idx": INTEGERS | {"None"},
    "ScalarMembers.ceil_div.b": INTEGERS,
    "ScalarMembers.ceil_div.a": SCALARS - {"1.5", "2.0", "np.float32(2)"},
    # the number of a lane counts modulo 32
    "LaneMembers.shuffle.lane": INTEGERS | {"-1", "2**31", "2**34"},
    "LaneMembers.shuffle_xor.mask": INTEGERS | {"-1", "2**31", "2**34"},
    "TensorCoreMembers.fragment.value": {"None"},
    "SmemTileArray.view.dtype": {"None"},
    "tiles": INTEGERS,
    "rows": INTEGERS | {"None"},
    "lines": INTEGERS | {"None"},
    # where an element lies outside its tensor, the access is a fault
    "GlobalTensor.__getitem__.index": INTEGERS | {"-1", "2**31", "2**34"},
    "columns": INTEGERS,
    "TransferMembers.tma_store.rows": INTEGERS | {"None"},
    "tensor_map.swizzle": {"0", "None"},
    "tensor_map.order": {"None"},
    "tensor_map.box": {"None"},
    "tensor_map.dtype": {"None"},
    "ScalarMembers.var.dtype": {"None"},
    "Fragment.set.value": SCALARS,
    "TileLayout.of.tiles": {"other tiles"},  # what they are is all that is asked
}


def _plain(name: str) -> str:
    """The type of an alias of `lang.arguments.annotations`, any other name as it is."""
    alias = getattr(aliases, name, None)
    return str(get_args(alias)[0].__name__) if get_origin(alias) is Annotated else name


def good(member: str, parameter: str) -> set[str]:
    """The values of the list that may be taken for a parameter."""
    named = BY_NAME.get(f"{member}.{parameter}", BY_NAME.get(parameter))
    _, _, raw = members()[member]
    inner = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
    annotation = str(inspect.signature(inner).parameters[parameter].annotation).strip("\"'")
    parts = {_plain(part.strip()) for part in annotation.split("|")}
    if "object" in parts or "Any" in parts or f"{member}.{parameter}" in BY_NAME:
        return named if named is not None else INTEGERS
    found: set[str] = set()
    if "None" in parts:
        found.add("None")
    if "int" in parts:
        found |= INTEGERS
    if "bool" in parts:
        found |= CONDITIONS
    if "Scalar" in parts:
        found |= SCALARS
    if "float" in parts:
        found |= SCALARS - CONDITIONS
    if "str" in parts and "DType" not in parts and named is not None:
        found |= named
    if "Value" in parts:
        found |= INTEGERS
    return found
