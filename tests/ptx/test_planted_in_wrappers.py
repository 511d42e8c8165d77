"""Mistakes planted inside printed wrappers of tcgen05 instructions, which tests of call arguments
and of machine code do not see: the reader's result is wrong, or it reports a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.printed_ptx import printed
from tilepipe.errors import SimFault
from tilepipe.registry.catalog import find

SMALL = ["m=128", "n=128", "k=512", "stages=2"]
_STRIDE_FIELD = 0x3FFF << 32  # bits 32-45 of a shared memory descriptor, in units of 16 bytes


def in_function(name: str, old: str, new: str) -> Callable[[str], str]:
    """Replaces a part of the body of a printed function."""

    def patch(source: str) -> str:
        found = re.search(rf"{name}\(.*?\n}}\n", source, re.S)
        assert found is not None
        assert old in found[0]
        return source.replace(found[0], found[0].replace(old, new))

    return patch


def halved_stride_of_scale_copies(source: str) -> str:
    """An SBO of 64 bytes in the place of 128."""

    def halved(match: re.Match[str]) -> str:
        descriptor = int(match[2], 16)
        assert descriptor & _STRIDE_FIELD == 128 >> 4 << 32
        return f"{match[1]}{descriptor & ~_STRIDE_FIELD | 64 >> 4 << 32:#x}ull"

    patched, count = re.subn(r"(u64 scale_format = )(0x[0-9a-f]+)ull", halved, source)
    assert count == 1
    return patched


MISTAKES: dict[str, tuple[str, list[str], Callable[[str], str]]] = {
    "the scale factor ID of B shifted by 5": (
        "gemm_block_scaled",
        ["kind=mxfp4", "bk=256"],
        in_function("scale_ids", "byte << 4", "byte << 5"),
    ),
    "scale copies with half the stride": (
        "gemm_block_scaled",
        ["kind=mxfp4", "bk=256"],
        halved_stride_of_scale_copies,
    ),
    "sfa and sfb swapped": (
        "gemm_block_scaled",
        ["kind=mxfp4", "bk=256"],
        in_function("tcgen05_mma_mxf4", '"r"(sfa), "r"(sfb)', '"r"(sfb), "r"(sfa)'),
    ),
    "descriptors of A and B swapped": (
        "gemm",
        ["arch=sm100"],
        in_function("tcgen05_mma_f16", '"l"(a), "l"(b)', '"l"(b), "l"(a)'),
    ),
}


def case(name: str, settings: list[str]) -> Any:
    spec = find(name)
    config, _ = spec.configure(spec.parse([*settings, *SMALL]), None)
    return spec.make(config, 0)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_inside_a_wrapper_is_noticed(mistake: str) -> None:
    name, settings, patch = MISTAKES[mistake]
    planted = case(name, settings)
    try:
        printed(planted.program, "sm_100a", patch).run()
    except SimFault:
        return
    assert not planted.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    sorted({(name, tuple(given)) for name, given, _ in MISTAKES.values()}),
)
def test_without_a_mistake_the_result_is_right(name: str, settings: tuple[str, ...]) -> None:
    good = case(name, list(settings))
    printed(good.program, "sm_100a").run()
    assert good.verify().ok
