"""Kernels that other compilers made of our own sources compute right results in the reader.

What vouches for the reader here is that their address arithmetic is not ours: descriptors, swizzles
and the places of lanes come from compilers whose output runs on GPUs.
"""

from __future__ import annotations

import pytest

from tests.ptx.foreign.launching import DATA, kernel, launch, records, text
from tests.ptx.foreign.problems import problem

_MODES = dict(
    line.split(" ", 1) for line in (DATA / "modes.txt").read_text(encoding="utf-8").splitlines()
)


def modes(name: str) -> list[str]:
    """The modes that a kernel vouches for (`tools/foreign/vouched.py`), for sm_100a; and what its
    compiler is, for sm_90a.
    """
    if name.endswith("sm90"):
        return [name.split("_")[0] + "_sm90"]
    return _MODES.get(name.removesuffix("_sm100"), "").split()


# those with many modes first, so that few kernels have them all
NAMES = sorted(records(), key=lambda name: (-len(modes(name)), name))


@pytest.mark.slow
@pytest.mark.sampled(suite=16)
@pytest.mark.parametrize("name", NAMES)
def test_a_record_says_what_compiled_it_and_how_it_is_launched(name: str) -> None:
    record = records()[name]
    assert text(name).startswith(f"// {record['source']}, compiled by {record['compiler']} for")
    parsed = kernel(name)
    assert parsed.module.targets[0] == record["arch"]
    assert len(parsed.function.parameters) == len(record["parameters"])
    threads = parsed.function.directives.get("reqntid") or parsed.function.directives["maxntid"]
    assert threads[0] == record["block"][0]
    assert any(i.position is not None for i in parsed.function.instructions)


@pytest.mark.slow
@pytest.mark.sampled(suite=1000, classes=modes)
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_computes_what_numpy_does(name: str) -> None:
    given = problem(name)
    launch(name, given).run(given.seed)
    given.verify()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_computes_the_same_in_any_order(name: str, seed: int) -> None:
    given = problem(name)
    launch(name, given).run(seed)
    given.verify()
