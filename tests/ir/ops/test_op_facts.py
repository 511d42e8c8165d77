"""What each op class declares of itself, against evidence that does not come from the
declaration.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from tests.support.cuda import signatures
from tilepipe.ir import ops
from tilepipe.ir.expressions import Local
from tilepipe.ir.facts import Control, Facts, Proxy, Scope, Sync, Unit
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import (
    BarrierRef,
    Cursor,
    Element,
    NamedBarrier,
    TensorParam,
    Tile,
    Tmem,
    TmemScales,
    Variable,
)

OPS = pytest.mark.parametrize("op", ops.EVERY, ids=lambda op: op.__name__)
CONTENTS = (Element, TensorParam, Tile, Tmem, TmemScales, Fragment, Variable, Cursor)
WRAPPERS = Path(inspect.getfile(ops)).parents[2] / "cuda" / "ptx"


def hints(op: type[ops.Op]) -> dict[str, str]:
    """The annotation of each field of an op's own, as text without what it declares."""
    found = get_type_hints(op)
    return {name: str(found[name]) for name in inspect.get_annotations(op)}


def names(hint: str, *types: type) -> bool:
    return any(re.search(rf"\.{kind.__name__}\b", hint) for kind in types)


@OPS
def test_an_op_declares_its_facts(op: type[ops.Op]) -> None:
    assert isinstance(vars(op).get("facts"), Facts), "declare what the op is: ir/facts.py"


@OPS
def test_every_local_is_bound(op: type[ops.Op]) -> None:
    """What an op reads is an expression; a field that can only be a name is one that it defines."""
    assert {n for n, hint in hints(op).items() if names(hint, Local)} == set(op.bound)


@OPS
def test_an_operand_with_contents_says_whether_they_are_read_or_written(op: type[ops.Op]) -> None:
    assert {n for n, hint in hints(op).items() if names(hint, *CONTENTS)} <= set(op.uses)
    assert all(use.reads or use.writes for use in op.uses.values())


@OPS
def test_a_barrier_operand_says_what_is_done_to_it(op: type[ops.Op]) -> None:
    if any(names(hint, BarrierRef, NamedBarrier) for hint in hints(op).values()):
        assert op.sync & ~op.facts.sync


@OPS
def test_an_op_holds_blocks_where_it_is_control_flow(op: type[ops.Op]) -> None:
    assert bool(op.blocks) == (op.facts.control is not None)
    assert {n for n, hint in hints(op).items() if names(hint, ops.Block)} == set(op.blocks)
    assert op.facts.control is not Control.BRANCH or len(op.blocks) == 2


@OPS
def test_an_asynchronous_access_is_made_by_a_unit(op: type[ops.Op]) -> None:
    """An access through the asynchronous proxy outlasts the op: something else makes it, and the
    op says how its end is learned of: by a group, or by bytes on a barrier.
    """
    asynchronous = any(use.proxy is Proxy.ASYNC for use in op.uses.values())
    assert not asynchronous or op.facts.unit is not None
    if op.facts.unit is not None:
        assert op.facts.issues or op.facts.commits or Sync.CREDIT in op.sync


@OPS
def test_the_section_of_the_ptx_isa_is_one_that_a_wrapper_names(op: type[ops.Op]) -> None:
    """tests/support/cuda/signatures.py holds wrappers to the sections of the PTX ISA; a few
    instructions are printed as intrinsics of CUDA C++ or by a family of functions, which name them
    otherwise.
    """
    section = op.facts.ptx
    rows = {row.section for row in signatures.TABLE.values()}
    texts = [path.read_text(encoding="utf-8") for path in sorted(WRAPPERS.glob("*.*"))]
    known = any(row.startswith(section) for row in rows) or any(section in text for text in texts)
    assert known or section in INTRINSICS


# __syncwarp, __any_sync, __shfl_sync; the functions of cuda/ptx/tcgen05.py are made to measure
INTRINSICS = {"bar.warp.sync", "vote.sync", "shfl.sync", "tcgen05.ld", "tcgen05.st"}


@OPS
def test_an_instruction_of_one_architecture_says_so(op: type[ops.Op]) -> None:
    alone = ("wgmma", "tcgen05", "clusterlaunchcontrol")
    assert op.facts.ptx.startswith(alone) == (op.facts.feature is not None)
    if op.facts.feature is not None:
        arch = op.facts.feature.value[1]
        assert arch == ("sm_90a" if op.facts.ptx.startswith("wgmma") else "sm_100a")
    assert op.facts.unit is not Unit.TENSOR_CORE or op.facts.feature is not None


@OPS
def test_an_op_of_a_warp_in_part_depends_on_the_active_lanes(op: type[ops.Op]) -> None:
    """An op that a warp performs, but not necessarily with all its lanes, depends on which lanes
    are active. Not so a test of a barrier: in a branch each lane makes its own.
    """
    in_part = op.facts.scope is Scope.WARP and op.facts.together is Scope.LANE
    assert op.facts.active_lanes == ((in_part and Sync.TEST not in op.sync) or op is ops.Elect)


def test_kinds_tell_ops_apart() -> None:
    assert len({op.kind for op in ops.EVERY}) == len(ops.EVERY)
    assert ops.TmaLoad.kind == "tma_load"
    assert ops.Tcgen05FenceAfter.kind == "tcgen05_fence_after"
