"""The members that kernels call: each checks its arguments (`lang.arguments.member_checks`)."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tilepipe.lang.arguments.member_checks import check_class, check_function
from tilepipe.lang.arguments.parameters import note_class, note_public
from tilepipe.lang.arguments.tensor_map import TensorMap
from tilepipe.lang.control.loops import Range, WhileLoop
from tilepipe.lang.handles.linear import Handle
from tilepipe.lang.tracing.tracer import Tracer

# Classes whose objects a kernel is given and never names.
_GIVEN: tuple[type, ...] = (Range, WhileLoop)
_WORDS = {
    "Context": "the kernel's ctx",
    "GlobalTensor": "a tensor argument of the kernel",
    "SmemTile": "a tile of shared memory",
    "SmemTileArray": "an array of tiles in shared memory",
    "SharedMemBarrier": "a barrier",
    "SMemArray": "an array in shared memory",
    "ElementRef": "an element, `tile[r, c]` or `tensor[i, j]`",
    "Fragment": "a fragment",
    "FragmentValue": "a fragment, or an expression of one",
    "TmemTensor": "a matrix in tensor memory",
    "TmemScales": "scale factors in tensor memory",
    "NamedBarrier": "a named barrier",
    "Value": "a traced value",
    "Var": "a variable (`ctx.var(...)`)",
}
_TRACED = ("tilepipe.lang", "tilepipe.pipelines")


def check_arguments(public: dict[str, Any]) -> None:
    """Has all classes and functions of a namespace that are about tracing check their arguments, in
    place.
    """
    note_class(Tracer)
    note_class(Handle)
    found = [x for name, x in public.items() if not name.startswith("_") and isinstance(x, type)]
    note_public(x for x in found if x.__module__.startswith(_TRACED))
    for cls in (*_GIVEN, *found):
        # made by each bind; `tp.tensor_map` checks
        if cls.__module__.startswith(_TRACED) and cls is not TensorMap:
            note_class(cls, _WORDS.get(cls.__name__, ""))
            for base in reversed(cls.__mro__):
                if base.__module__.startswith(_TRACED):
                    note_class(base, _WORDS.get(base.__name__, ""))
                    check_class(base)
    for name, x in list(public.items()):
        if (
            isinstance(x, FunctionType)
            and not name.startswith("_")
            and x.__module__.startswith("tilepipe.pipelines")
        ):
            public[name] = check_function(x, f"tp.{name}")
