"""Plants mistakes in the reader of PTX, and writes docs/generated/ptx-planted.md: what notices
each.

    python -m tests.mutation.reader.run [--only WORD] [--out docs/generated/ptx-planted.md]
    (make ptx-planted)

Exits with 1 where a mistake is not noticed and no reason is known, or cannot be planted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.mutation.reader.mistakes import (
    COPIES,
    DESCRIPTORS,
    MISTAKES,
    PAIRS,
    REGISTERS,
    TENSOR_MEMORY,
    Mistake,
)
from tests.mutation.reader.planting import planted
from tests.ptx.foreign.launching import launch
from tests.ptx.foreign.problems import problem
from tests.ptx.measured import copies, forms, golden, matrices, memory, programs
from tests.ptx.measured.case import Case
from tests.support.time_limit import TimeLimitExceeded, time_limit
from tilepipe.errors import TilepipeError
from tilepipe.machine.memory.tensor_map import TensorMapFields, encode

LIMIT = 60  # seconds of one witness


@dataclass(frozen=True)
class Outcome:
    """What becomes of a mistake: the witness that notices it, and how; "" where none does."""

    mistake: Mistake
    witness: str
    how: str


@cache
def _cases() -> dict[str, Case]:
    return {c.name: c for make in (memory, matrices, copies) for c in make.cases()}


@cache
def _forms() -> dict[str, list[forms.Form]]:
    """The measured forms by name."""
    found: dict[str, list[forms.Form]] = {}
    for form in forms.candidates():
        if form.key in golden.measured():
            found.setdefault(form.name, []).append(form)
    return found


def _ask(witness: str) -> None:
    """Raises AssertionError where a result is wrong."""
    kind, _, name = witness.partition(" ")
    if kind == "foreign":
        given = problem(name)
        launch(name, given).run(timeout=LIMIT)
        given.verify()
        return
    if kind == "call":
        module, function, *texts = name.split()
        chosen = [{"True": True, "False": False}.get(each, each) for each in texts]
        getattr(importlib.import_module(module), function)(*chosen)
        return
    if kind == "maps":
        with np.load(golden.PATH.parent / "tensor_maps_h100.npz") as data:
            _ask_maps(data["arguments"].tolist()[:200], data["bytes"])
        return
    if kind == "form":
        case = forms.case(f"forms/{name}", tuple(_forms()[name]))
    elif kind == "program":
        case = programs.case(int(name))
    else:
        case = _cases()[name]
    output = case.read(timeout=LIMIT)
    assert all(golden.error(case, part, output) <= 1 for part in case.parts), "wrong result"


def _ask_maps(arguments: list[list[int]], raw: Any) -> None:
    for row, each in zip(arguments, raw, strict=False):
        kind, address, rank, swizzle, promotion, nan, result = row[:7]
        element = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 11, 12)[kind]
        if result or rank < 2:
            continue
        map_ = TensorMapFields(
            element, address, tuple(row[7 : 7 + rank]), tuple(row[12 : 11 + rank]),
            tuple(row[16 : 16 + rank]), tuple(row[21 : 21 + rank]), swizzle=swizzle,
            nan=bool(nan), promotion=promotion,
        )  # fmt: skip
        assert encode(map_) == each.tobytes(), "other bytes than the driver's"


def judge(mistake: Mistake) -> Outcome:
    """The first witness that notices a mistake."""
    with planted(mistake.edits):
        for witness in mistake.witnesses:
            try:
                with time_limit(LIMIT):
                    _ask(witness)
            except AssertionError:
                return Outcome(mistake, witness, "wrong result")
            except TilepipeError as error:
                return Outcome(mistake, witness, type(error).__name__)
            except (Exception, TimeLimitExceeded) as error:
                return Outcome(mistake, witness, f"{type(error).__name__} in Python")
    return Outcome(mistake, "", "")


HEAD = """# Mistakes planted in the reader of PTX

The reader of PTX has one mistake, or two whose errors could cancel, and computes kernels whose
right results are known independently of it: *foreign* ones, which other compilers made, and those
that an H100 has *measured* (forms of instructions, random programs, kernels around memory, matrices
and copies). `make ptx-planted` plants each mistake, asks kernels in turn until one notices, and
writes this page. It fails where a mistake is not noticed that has no reason here.

**{count} mistakes**, {pairs} of them pairs: {noticed} noticed.
"""
SECTIONS = {
    "Descriptors and fragments": DESCRIPTORS, "Tensor memory": TENSOR_MEMORY, "Copies": COPIES,
    "Registers, warps, memory": REGISTERS, "Pairs": PAIRS,
}  # fmt: skip


def page(outcomes: Sequence[Outcome]) -> str:
    """The text of the page."""
    by_name = {o.mistake.name: o for o in outcomes}
    parts = [
        HEAD.format(
            count=len(outcomes), pairs=sum(o.mistake.pair for o in outcomes),
            noticed=sum(bool(o.witness) for o in outcomes),
        )
    ]  # fmt: skip
    for title, mistakes in SECTIONS.items():
        rows = [by_name[m.name] for m in mistakes if m.name in by_name]
        lines = ["| mistake | noticed by | how |", "|---|---|---|"]
        lines += [
            f"| {o.mistake.name} | {f'`{o.witness}`' if o.witness else 'nothing'} |"
            f" {o.how or o.mistake.reason or '**not explained**'} |" for o in rows
        ]  # fmt: skip
        parts.append("\n".join([f"## {title}", "", *lines, ""]))
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaign; 0 where each mistake is noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.reader.run")
    parser.add_argument("--only", default="", help="mistakes whose names have this in them")
    parser.add_argument("--out", type=Path, help="the page to write")
    options = parser.parse_args(arguments)
    begun, outcomes, failed = time.monotonic(), [], 0
    for mistake in MISTAKES:
        if options.only not in mistake.name:
            continue
        try:
            outcome = judge(mistake)
        except ValueError as error:
            print(f"CANNOT BE PLANTED: {mistake.name}: {error}", flush=True)
            failed += 1
            continue
        outcomes.append(outcome)
        failed += bool(outcome.witness) == bool(mistake.reason)
        print(
            f"{time.monotonic() - begun:5.0f} s  {mistake.name}: {outcome.witness or 'NOT NOTICED'}"
            f" {outcome.how}",
            flush=True,
        )
    if options.out is not None and not options.only:
        options.out.write_text(page(outcomes), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
