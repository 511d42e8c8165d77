"""That the snapshot has every shipped kernel, for every architecture that it is written for."""

from __future__ import annotations

from tilepipe.registry.catalog import KERNELS
from tools.snapshot import doors
from tools.snapshot.families import COMPILED, FAMILIES, RUN


def test_every_kernel_has_families_in_the_snapshot() -> None:
    where = "doors.KERNELS says how to reach a kernel, families.FAMILIES, COMPILED, RUN what of it"
    assert doors.KERNELS.keys() == FAMILIES.keys() == COMPILED.keys() == RUN.keys(), where
    reached = {(name, arch) for (name, _, arch), *_ in doors.KERNELS.values()}
    assert reached == {(spec.name, arch) for spec in KERNELS.values() for arch in spec.archs}, where


def test_what_is_compiled_is_a_family() -> None:
    assert {key: set(names) - FAMILIES[key].keys() for key, names in COMPILED.items()} == {
        key: set() for key in FAMILIES
    }
