"""What both front ends decide: every shipped kernel as `tilepipe check` has it, its families on
their smallest instances, the examples, and mutants of all these.
"""

from __future__ import annotations

import contextlib
import functools
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from tests.examples.ladder import EXAMPLES, NAMES, load
from tests.mutation.cases import Case, cases
from tilepipe.check.mutation.mutants import Mutant, mutants
from tilepipe.ir.program import Launch
from tilepipe.registry.catalog import KERNELS, find
from tilepipe.registry.settings import Setting
from tools.snapshot import doors
from tools.snapshot.families import FAMILIES


@dataclass(frozen=True, eq=False)
class Subject:
    """A launch that is to be decided: see `judging.Pair`."""

    group: str
    subject: str
    instance: str
    make: Callable[[], Launch]
    mutant: Mutant | None = None
    number: int = -1

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What identifies it among stored results."""
        return self.group, self.subject, self.instance, self.number


def shipped() -> Iterator[Subject]:
    """Each kernel of the registry for each architecture that it has, on all instances."""
    for kernel, spec in KERNELS.items():
        for target in spec.archs:
            arch = target.removesuffix("a").replace("_", "")
            yield from _instances("shipped", kernel, {"arch": arch}, f"{kernel}, {arch}")


def families() -> Iterator[Subject]:
    """Each family of a kernel that the snapshot holds, on the smaller of its instances."""
    for key, found in FAMILIES.items():
        kernel, chosen, _ = doors.KERNELS[key][0]
        extents = find(kernel).extents
        for name, settings in found.items():
            given = {k: v for k, v in {**chosen, **settings}.items() if k not in extents}
            yield from islice(_instances("families", kernel, given, f"{key}: {name}"), 1)


def _instances(
    group: str, kernel: str, given: dict[str, Setting], subject: str
) -> Iterator[Subject]:
    _, instances = find(kernel).instances(given)
    for x in instances:
        yield Subject(group, subject, x.name, functools.partial(_launch, x.make))


def _launch(make: Callable[[], object]) -> Launch:
    launch = getattr(make(), "launch_args")  # noqa: B009
    assert isinstance(launch, Launch)
    return launch


def examples() -> Iterator[Subject]:
    """Each example."""
    for name in NAMES:
        yield Subject("examples", name, "", functools.partial(_example, name))


def _example(name: str) -> Launch:
    with contextlib.redirect_stdout(io.StringIO()):
        return load(EXAMPLES / f"{name}.py")(0).launch_args


def mutated(rounds: int, only: str = "") -> Iterator[Subject]:
    """Mutants: in each round one of each case of the campaign, each on one of its instances.

    Args:
        only: a part of the name of the cases that are wanted.
    """
    chosen = [c for c in cases() if only in f"{c.kernel}: {c.name}"]
    for n in range(rounds):
        for case in chosen:
            launches, every = _mutants(case.kernel, case.name)
            if n < len(every):
                # from a place of the case's own, which other cases do not move
                first = zlib.crc32(f"{case.kernel}: {case.name}".encode())
                at = (n * STEP + first) % len(every)
                which = at % len(launches)
                made = replace(launches[which], kernel=every[at].kernel)
                yield Subject(
                    "mutants", f"{case.kernel}: {case.name}", str(which),
                    functools.partial(_same, made), every[at], at,
                )  # fmt: skip


# Mutants of one case that follow each other in the campaign are of the same kind: those of
# neighbouring rounds lie so far apart. A prime, so that all get their turn (no case has a multiple
# of it).
STEP = 37


def _same(launch: Launch) -> Launch:
    return launch


@functools.cache
def _mutants(kernel: str, name: str) -> tuple[list[Launch], list[Mutant]]:
    case: Case = next(c for c in cases() if (c.kernel, c.name) == (kernel, name))
    launches = case.launches()
    return launches, list(mutants(launches[0].kernel))
