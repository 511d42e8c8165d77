"""The members that kernels call: each of them checks its arguments, see `lang.arguments.member_checks`."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tilepipe.lang.arguments import member_checks, tensor_map
from tilepipe.lang.context import named_barriers as named
from tilepipe.lang.control import loops as control
from tilepipe.lang.fragments import fragment as fragments
from tilepipe.lang.handles import linear as handles
from tilepipe.lang.memory import shared_tiles as memory
from tilepipe.lang.tracing import tracer
from tilepipe.lang.values import scalars as values
from tilepipe.lang.values import variables

# Classes whose objects a kernel is given and never names.
_GIVEN: tuple[type, ...] = (
    values.Value, variables.Var, fragments.FragmentValue, fragments.Fragment, named.NamedBarrier, memory.SmemTile, memory.SmemTileArray,
    control.Range, control.WhileLoop,
)  # fmt: skip
_WORDS = {
    "Context": "the kernel's ctx", "GlobalTensor": "a tensor argument of the kernel", "SmemTile": "a tile of shared memory",
    "SmemTileArray": "an array of tiles in shared memory", "SharedMemBarrier": "a barrier", "SMemArray": "an array in shared memory",
    "ElementRef": "an element, `tile[r, c]` or `tensor[i, j]`", "Fragment": "a fragment",
    "FragmentValue": "a fragment, or an expression of one",
    "TmemTensor": "a matrix in tensor memory", "TmemScales": "scale factors in tensor memory", "NamedBarrier": "a named barrier",
    "Value": "a traced value", "Var": "a variable (`ctx.var(...)`)",
}  # fmt: skip
_TRACED = ("tilepipe.lang", "tilepipe.pipelines")


def check_arguments(public: dict[str, Any]) -> None:
    """Has all classes and functions of a namespace that are about tracing check their arguments, in
    place.
    """
    member_checks.note_class(tracer.Tracer)
    member_checks.note_class(handles.Handle)
    found = [x for name, x in public.items() if not name.startswith("_") and isinstance(x, type)]
    for cls in (*_GIVEN, *found):
        # made by each bind; `tp.tensor_map` checks
        if cls.__module__.startswith(_TRACED) and cls is not tensor_map.TensorMap:
            member_checks.note_class(cls, _WORDS.get(cls.__name__, ""))
            for base in reversed(cls.__mro__):
                if base.__module__.startswith(_TRACED):
                    member_checks.note_class(base, _WORDS.get(base.__name__, ""))
                    member_checks.check_class(base)
    for name, x in list(public.items()):
        if (
            isinstance(x, FunctionType)
            and not name.startswith("_")
            and x.__module__.startswith("tilepipe.pipelines")
        ):
            public[name] = member_checks.check_function(x, f"tp.{name}")
