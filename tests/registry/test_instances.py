"""What the shipped kernels are checked on: verified, and large enough by the phases that are
counted.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilepipe as tp
from tilepipe import check
from tilepipe.check.sizes import too_small
from tilepipe.check.verdict import combine
from tilepipe.registry.catalog import KERNELS, find

HOPPER: list[tuple[str, dict[str, Any]]] = [
    ("gemm", {}),
    ("gemm", {"cluster": 2}),
    ("gemm", {"cluster": 4, "bn": 64, "activation": "gelu"}),
    ("gemm", {"cluster_n": 2, "swap": "ab"}),
    ("gemm", {"split_k": 2}),
    ("gemm", {"early": "b", "cluster": 2}),
    ("gemm", {"early": "b", "split_k": 2, "swap": "ab", "source": True}),
    ("gemm", {"source": True, "source_slots": 2, "bias": "row"}),
    ("gemm", {"source": True, "source_slots": 3, "schedule": "pingpong", "stages": 3}),
    ("gemm", {"source": True, "source_slots": 2, "split_k": 2, "stages": 2}),
    ("gemm", {"schedule": "pingpong", "cluster": 2}),
    ("gemm", {"k_group_size": 2, "stages": 2, "a_order": "col"}),
    ("gemm", {"dtype": "float8_e4m3", "accumulate": "promote", "bn": 64}),
    ("gemm_blockwise", {}),
    ("gemm_blockwise", {"cluster": 2}),
    ("attention", {"schedule": "persistent"}),
    ("attention", {"causal": True, "schedule": "single"}),
    ("attention", {"d": 64, "schedule": "single"}),
    ("attention", {"causal": True, "schedule": "persistent", "heads": 4, "kv_heads": 2}),
    ("attention", {"dtype": "float8_e4m3", "scales": True, "schedule": "persistent"}),
    ("attention", {"block_mask": "128x128:50", "schedule": "persistent"}),
    ("attention", {"block_mask": "64x64:30", "schedule": "single", "causal": True, "left": 500}),
    *(
        ("attention_backward", {"d": d, "causal": causal, "deterministic": deterministic})
        for d in (64, 128)
        for causal in (False, True)
        for deterministic in (False, True)
    ),
    ("attention_backward", {"causal": True, "heads": 4, "kv_heads": 2}),
    ("append_kv", {}),
    ("append_kv", {"page": 8, "tokens": 3, "kv_heads": 9, "d": 256}),
    ("append_kv", {"cache": "float8_e4m3", "dtype": "float32", "tokens": 2, "d": 80}),
    ("gemm_gated", {}),
    ("gemm_gated", {"cluster": 2, "activation": "gelu"}),
    ("gemm_quantised", {}),
    ("gemm_quantised", {"bits": 8, "group": 64, "split_k": 2}),
    ("gemm_stream_k", {}),  # CTAs wait for each other's flags
    ("gemm_grouped", {}),
    ("gemm_grouped", {"cluster": 2}),
    ("gemm_grouped", {"schedule": "pingpong", "b_order": "col"}),
    ("gemm_grouped", {"form": "padded"}),
    ("gemm_grouped_blockwise", {}),
    ("gemm_grouped_blockwise", {"form": "padded", "cluster": 2}),
    ("gemm_k_grouped_blockwise", {}),
    ("gemm_k_grouped_blockwise", {"cluster": 2}),
    ("gemm_k_grouped", {}),
    ("gemm_k_grouped", {"cluster": 2}),
    *(
        (kernel, {"backward": backward})
        for kernel in ("rms_norm", "layer_norm", "softmax", "cross_entropy")
        for backward in (False, True)
    ),
    ("layer_norm", {"threads": 32, "warpgroups": 1, "parts": 4, "cluster": 2, "backward": True}),
]
BLACKWELL: list[tuple[str, dict[str, Any]]] = [
    ("gemm", {"arch": "sm100", "scheduler": "static"}),
    ("gemm", {"arch": "sm100", "scheduler": "static", "cta_group": 2, "cluster": 2}),
    ("gemm", {"arch": "sm100", "scheduler": "static", "split_k": 8}),
    (
        "gemm",
        {"arch": "sm100", "scheduler": "static", "split_k": 2, "cta_group": 2, "cluster": 2},
    ),
    ("gemm_blockwise", {"arch": "sm100", "scheduler": "static"}),
    ("gemm_block_scaled", {"scheduler": "static", "kind": "nvfp4"}),
    ("attention", {"arch": "sm100"}),
    ("attention", {"arch": "sm100", "causal": True, "d": 64}),
]
# explored: who gets which tile is open
FETCHED: list[tuple[str, dict[str, Any]]] = [
    ("gemm", {"arch": "sm100"}),
    ("gemm", {"arch": "sm100", "split_k": 2, "stages": 2}),
    ("gemm", {"arch": "sm100", "cta_group": 2, "cluster": 2}),
    ("gemm_blockwise", {"arch": "sm100"}),
    ("gemm_block_scaled", {}),
    ("attention", {}),
    ("attention", {"causal": True, "d": 64}),
    # whose parts are brought together by the CTA that comes last
    ("gemm", {"k_parts": 3, "bn": 72}),
    ("attention_decode", {"bn": 32, "stages": 2}),
    ("attention_decode", {"queries": "columns", "stages": 2}),
    ("attention_decode", {"bn": 32, "stages": 2, "d": 64, "page": 16, "tokens": 2}),
]


def checked(kernel: str, given: dict[str, Any], number: int | None = None) -> list[check.Verdict]:
    _, instances = find(kernel).instances(given)
    wanted = instances if number is None else [instances[number]]
    return [check.check(x.make().launch_args, instance=x.name) for x in wanted]


def said(case: tuple[str, dict[str, Any]]) -> str:
    return f"{case[0]} {' '.join(f'{n}={v}' for n, v in case[1].items())}".strip()


def test_every_kernel_is_among_the_cases() -> None:
    assert {name for name, _ in (*HOPPER, *BLACKWELL, *FETCHED)} == set(KERNELS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "lengths", "method"),
    [("single", "300:700,0,200:650", "single-execution"), ("dynamic", "130:40,0,70", "explored")],
)
def test_packed_sequences_are_one_instance(schedule: str, lengths: str, method: str) -> None:
    given: dict[str, Any] = {"lengths": lengths, "heads": 1, "schedule": schedule}
    verdicts = checked("attention", given)
    assert [(v.verdict, v.method, v.faults) for v in verdicts] == [("verified", method, [])]
    assert find("attention").instances(given)[1][0].name == f"lengths={lengths}, on 2 SMs"


# Not sampled: that instances are large enough, and that all of their ops are reached, is checked
# nowhere else.
@pytest.mark.slow
@pytest.mark.parametrize("case", [*HOPPER, *BLACKWELL], ids=said)
def test_an_instance_is_verified_by_one_execution_and_large_enough(
    case: tuple[str, dict[str, Any]],
) -> None:
    verdicts = checked(*case)
    assert [(v.verdict, v.method, [f.message for f in v.faults]) for v in verdicts] == [
        ("verified", "single-execution", [])
    ] * 2
    assert too_small(verdicts) == ""
    assert all(v.grid >= 2 and v.facts for v in verdicts)
    # the data of an instance let no largest score of a row grow by `rescale_above`
    rescales = ["correction"] if case[1].get("arch") == "sm100" and case[0] == "attention" else []
    assert [place.role for place in combine(verdicts).unreached] == rescales


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        # the clusters of a pair have hundreds of orders where five tiles are fetched
        pytest.param(case, marks=pytest.mark.thorough if "cta_group" in case[1] else ())
        for case in FETCHED
    ],
    ids=said,
)
def test_an_instance_whose_tiles_are_fetched_is_explored(case: tuple[str, dict[str, Any]]) -> None:
    verdicts = checked(*case)
    assert [(v.verdict, v.method, [f.message for f in v.faults]) for v in verdicts] == [
        ("verified", "explored", [])
    ] * 2
    assert too_small(verdicts) == ""
    assert verdicts[1].traces > 1
    assert not combine(verdicts).unreached


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "grid", "name"),
    [
        ({"stages": 2}, 3, "3 tiles, 5 K steps, fetched by 2 CTAs"),
        pytest.param(
            {"cta_group": 2, "cluster": 2},
            4,
            "2 tiles, 9 K steps, fetched by a cluster of 2",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_ctas_that_compete_for_a_tile_are_explored(
    given: dict[str, Any], grid: int, name: str
) -> None:
    (verdict,) = checked("gemm", {"arch": "sm100", **given}, 1)
    assert (verdict.verdict, verdict.method, verdict.grid) == ("verified", "explored", grid)
    assert verdict.instance == name
    assert verdict.traces > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "given", "ring", "phases"),
    [
        ("gemm", {}, "inputs.full", [2 * 3, 2 * 9]),
        ("gemm", {"stages": 2, "split_k": 2}, "inputs.empty", [2 * 1, 2 * 5]),
        # the first turns come without one before
        ("gemm", {"schedule": "pingpong"}, "order", [2 + 2 * 5, 2 + 2 * 2]),
        ("gemm", {"arch": "sm100", "scheduler": "static"}, "outputs.full", [5, 2]),
        (
            "gemm",
            {"arch": "sm100", "scheduler": "static", "accumulators": 1},
            "outputs.full",
            [2, 2],
        ),
        ("gemm_blockwise", {}, "inputs.full", [2 * 4, 2 * (128 + 2)]),
        ("attention", {"schedule": "persistent", "q_stages": 1}, "values.full", [2 * 1, 2 * 5]),
        ("attention", {"schedule": "persistent", "q_stages": 2}, "values.full", [5 * 1, 5 * 5]),
        ("attention", {"causal": True, "q_stages": 2}, "queries.full", [6, 2]),
        ("gemm_grouped", {}, "inputs.full", [3 * 3, 3 * 9]),
        ("gemm_k_grouped", {}, "inputs.full", [3 + 1 + 1, 9 + 1 + 1]),
    ],
)
def test_the_phases_of_a_ring(
    kernel: str, given: dict[str, Any], ring: str, phases: list[int]
) -> None:
    assert [max(map(sum, v.completions[ring])) for v in checked(kernel, given)] == phases


@pytest.mark.slow
def test_causal_tiles_that_see_no_key_are_among_the_instances() -> None:
    """The first queries of the first instance: 256 queries, one tile of keys."""
    verdict = checked("attention", {"causal": True, "d": 64, "schedule": "single"})[0]
    assert {sum(cta) for cta in verdict.completions["values.full"]} == {0, 1}


@pytest.mark.parametrize(
    ("kernel", "given", "names"),
    [
        ("gemm", {}, ["2 tiles per CTA, 3 K steps, 2 CTAs", "2 tiles per CTA, 9 K steps, 2 CTAs"]),
        (
            "gemm",
            {"cluster": 2, "stages": 2},
            [
                "2 tiles per CTA, 1 K step, a cluster of 2",
                "2 tiles per CTA, 5 K steps, a cluster of 2",
            ],
        ),
        ("gemm", {"m": 256}, ["m=256, n=1024, k=1024, on 2 SMs"]),
        ("gemm", {"k": 64, "cluster": 4, "bn": 64}, ["m=1024, n=1024, k=64, on 4 SMs"]),
        (
            "gemm",
            {"arch": "sm100"},
            ["5 tiles, 3 K steps, fetched by 1 CTA", "3 tiles, 9 K steps, fetched by 2 CTAs"],
        ),
        (
            "gemm",
            {"arch": "sm100", "cluster": 2},
            [
                "5 tiles, 3 K steps, fetched by a cluster of 2",
                "2 tiles, 9 K steps, fetched by a cluster of 2",
            ],
        ),
        (
            "attention",
            {"causal": True},
            [
                "8 tiles, 3 K and V tiles, drawn by 1 CTA",
                "4 tiles, 5 K and V tiles, drawn by 2 CTAs",
            ],
        ),
        (
            "attention",
            {"causal": True, "schedule": "single"},
            ["1 tile per CTA, 1 K and V tile, 4 CTAs", "1 tile per CTA, 5 K and V tiles, 4 CTAs"],
        ),
        ("attention", {"s_q": 64, "s_kv": 128}, ["s_q=64, s_kv=128, on 2 SMs"]),
        (
            "gemm_grouped",
            {"cluster": 2, "stages": 2},
            [
                f"3 tiles per CTA, {steps}, a cluster of 2, groups of 128, 0, 255 and 1 rows"
                for steps in ("1 K step", "5 K steps")
            ],
        ),
        (
            "gemm_k_grouped_blockwise",
            {"stages": 2},
            [
                f"4 tiles per CTA, {steps} at most, 2 CTAs, groups of {rows}, 0, 128 and 112"
                for steps, rows in (("1 K step", 128), ("5 K steps", 640))
            ],
        ),
        (
            "gemm_k_grouped",
            {"stages": 2},
            [
                f"4 tiles per CTA, {steps} at most, 2 CTAs, groups of {rows}, 0, 1 and 56"
                for steps, rows in (("1 K step", 32), ("5 K steps", 288))
            ],
        ),
        (
            "gemm_grouped",
            {"experts": 3},
            ["m=1024, n=512, k=512, experts=3, split=random, on 2 SMs"],
        ),
    ],
)
def test_what_is_checked_in_words(kernel: str, given: dict[str, Any], names: list[str]) -> None:
    config, instances = find(kernel).instances(given)
    assert [x.name for x in instances] == names
    stated = set(config) & find(kernel).extents
    assert stated == set(given) & find(kernel).extents  # the others are the instances' own


def test_a_problem_that_is_given_runs_on_few_sms() -> None:
    _, (instance,) = find("gemm").instances({"m": 512, "n": 256, "k": 64})
    launch = instance.make().launch_args
    assert (launch.grid, launch.chip.sms) == (2, 2)
    assert instance.make(stages=2).kernel.barriers[0].size == 2


def test_settings_that_a_kernel_cannot_have() -> None:
    with pytest.raises(tp.BindError, match="stages must be at least 2"):
        find("gemm").instances({"stages": 1})
    with pytest.raises(
        tp.BindError,
        match=re.escape("arch=sm100 has no setting consumers; it has bn, stages, rescale_above"),
    ):
        find("attention").instances({"arch": "sm100", "consumers": 3})


def test_settings_of_another_form_are_left_out() -> None:
    config, _ = find("attention").configure({"arch": "sm100"}, None)
    assert {"bn", "stages", "rescale_above"} <= set(config)
    assert {"consumers", "order", "store", "schedule"}.isdisjoint(config)
    assert "rescale_above" not in find("attention").configure({}, None)[0]


# -- what is too small -----------------------------------------------------------------


def verdict(grid: int = 2, instance: str = "", **rings: list[list[int]]) -> check.Verdict:
    return check.Verdict(
        "verified", "single-execution", instance, 1, 1, 0.0, completions=rings, grid=grid
    )


def test_rings_that_have_gone_round_twice_are_large_enough() -> None:
    assert too_small([verdict(ring=[[2, 2, 2], [3, 2, 2]])]) == ""
    assert (
        too_small([verdict(ring=[[1, 0, 0], [0, 0, 0]]), verdict(ring=[[3, 2, 2], [0, 0, 0]])])
        == ""
    )
    assert too_small([verdict(single=[[1], [0]])]) == ""  # no ring


def test_a_ring_that_has_not_is_named_with_its_arithmetic() -> None:
    found = too_small(
        [
            verdict(instance="few", ring=[[1, 0, 0]] * 2, fine=[[3, 3], [0, 0]]),
            verdict(instance="many", ring=[[2, 2, 2]] * 2),
        ]
    )
    assert found == (
        "ring 'ring' has 3 stages and completes 6 phases in a CTA (many); to use each "
        "stage twice and the first once more it needs 2 · 3 + 1 = 7"
    )


def test_phases_are_those_of_one_cta() -> None:
    assert "completes 4 phases" in too_small([verdict(ring=[[2, 2], [2, 2]])])
    assert "completes 1 phase in" in too_small([verdict(ring=[[1, 0], [0, 0]])])
    assert "completes 0 phases" in too_small([verdict(ring=[[0, 0], [0, 0]])])


def test_one_cta_is_too_few() -> None:
    assert "there is one CTA" in too_small([verdict(grid=1)])
    assert too_small([verdict(grid=1), verdict(grid=2)]) == ""
