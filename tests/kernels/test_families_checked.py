"""No false alarm: every family of the shipped kernels that the tests run is verified, by one
execution of each of its instances wherever one can decide.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.gemms import FAMILIES
from tests.kernels.gemm.sm100_cases import CLUSTERS, shape_of
from tests.kernels.gemm_gated.families import FAMILIES as GATED
from tests.kernels.gemm_grouped.families import FAMILIES as GROUPED
from tests.kernels.gemm_k_grouped.families import FAMILIES as K_GROUPED
from tests.kernels.gemm_k_grouped_blockwise.families import FAMILIES as K_BLOCKWISE
from tests.kernels.gemm_quantised.families import FAMILIES as QUANTISED
from tests.registry.test_instances import BLACKWELL, HOPPER
from tilepipe import check
from tilepipe.check.sizes import too_small
from tilepipe.registry.catalog import find

Case = tuple[str, dict[str, Any]]

PAIRS: list[dict[str, Any]] = [shape_of(c) | {"scheduler": "static"} for c in CLUSTERS]
SPLITS: list[dict[str, Any]] = [
    {"split_k": 2},
    {"split_k": 4, "cluster": 2, "cta_group": 2},
    {"split_k": 2, "cluster": 2, "cluster_n": 2, "bm": 64},
    {"split_k": 8, "accumulators": 1, "store_slots": 1},
]
ATTENTION: list[dict[str, Any]] = [
    {"d": d, "causal": causal, "order": order, "store": store, "schedule": schedule}
    for d in (64, 128)
    for causal in (False, True)
    for order, store, schedule in (
        ("turns", "registers", "persistent"),
        ("free", "tile", "persistent"),
        ("turns", "tile", "single"),
        ("free", "registers", "single"),
    )
]
BLOCKWISE: list[dict[str, Any]] = [
    {"splits": 2, "bn": 256, "stages": 3},
    {"cluster_n": 2},
    {"bm": 256, "stages": 3},
    {"bn": 192, "stages": 4},
    {"consumers": 3, "bm": 192, "stages": 4},
    {"consumers": 1, "bm": 64},
]
CASES: list[Case] = [
    *(("gemm", family) for family in FAMILIES.values()),
    *(("gemm_gated", family) for family in GATED.values()),
    *(("gemm_quantised", family) for family in QUANTISED.values()),
    *(("gemm_grouped", family) for family in GROUPED.values()),
    *(("gemm_grouped_blockwise", family) for family in BLOCKWISE),
    ("gemm_grouped_blockwise", {"form": "padded"}),
    *(("gemm_k_grouped_blockwise", family) for family in K_BLOCKWISE.values()),
    *(("gemm_k_grouped", family) for family in K_GROUPED.values()),
    *(
        ("gemm", {"arch": "sm100"} | pair | {"bn": 64 if pair["cluster"] < 4 else 128})
        for pair in PAIRS
    ),
    *(("gemm", {"arch": "sm100", "scheduler": "static"} | split) for split in SPLITS),
    *(("gemm_block_scaled", pair) for pair in PAIRS),
    *(
        ("gemm_block_scaled", {"kind": kind, "scheduler": "static", "bn": 192, "accumulators": 1})
        for kind in ("mxfp4", "nvfp4")
    ),
    *(("gemm_blockwise", settings) for settings in BLOCKWISE),
    *(("gemm_blockwise", pair | {"arch": "sm100"}) for pair in PAIRS),
    *(("attention", settings) for settings in ATTENTION),
    *(
        ("attention", {"arch": "sm100", "d": d, "causal": causal})
        for d in (64, 128)
        for causal in (False, True)
    ),
]


def name(case: Case) -> str:
    return f"{case[0]} {' '.join(f'{n}={v}' for n, v in case[1].items())}".strip()


def marked(case: Case) -> Any:
    """The case; with four pairs in a cluster, whose allocs have many orders, it is one for `make
    test-all`.
    """
    pairs = (
        case[1].get("cluster", 1) * case[1].get("cluster_n", 1) // 2
        if case[1].get("cta_group") == 2
        else 0
    )
    return pytest.param(case, id=name(case), marks=[pytest.mark.thorough] if pairs > 2 else [])


# What changes sizes, or what is computed of a sum, and not who waits for whom.
SIZES = {"bm", "bn", "bk", "bits", "d", "group", "stages"}
SUMS = {"activation", "dtype", "out_dtype", "a_order", "b_order"}


def features(case: Case) -> list[tuple[Any, ...]]:
    """Of the kernel, for one generation, each of the things that set its synchronisation apart: the
    setting that the family is about, which is its first, each choice among schedules and forms, and
    whether CTAs share what they load, or pair up.
    """
    kernel, settings = case
    of = kernel, settings.get("arch")
    cta_group = settings.get("cta_group", 1)
    shares = settings.get("cluster", 1) * settings.get("cluster_n", 1) > cta_group
    about = next(iter(settings), "")
    chosen = [(n, x) for n, x in settings.items() if isinstance(x, str | bool) and n not in SUMS]
    return [
        (*of, "about", "" if about in SIZES | SUMS else about),
        *((*of, *choice) for choice in chosen),
        (*of, "CTAs", cta_group, shares),
    ]


ELSEWHERE = {x for case in (*HOPPER, *BLACKWELL) for x in features(case)}


def family(case: Case) -> list[tuple[Any, ...]]:
    """What no case of tests/registry/test_instances.py has, which is verified there as here."""
    return [x for x in features(case) if x not in ELSEWHERE]


@pytest.mark.sampled(39, suite=100, classes=family)
@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_a_family_is_verified(case: Case) -> None:
    """`make test-all` adds other sizes of tiles, rings and clusters of the same families."""
    kernel, settings = case
    _, instances = find(kernel).instances(settings)
    verdicts = [check.check(x.make().launch_args, instance=x.name) for x in instances]
    # which part of K comes last, and adds them up, is open
    method = "explored" if settings.get("k_parts", 1) > 1 else "single-execution"
    assert [(v.verdict, v.method, [f.message for f in v.faults]) for v in verdicts] == [
        ("verified", method, [])
    ] * 2
    assert too_small(verdicts) == ""
