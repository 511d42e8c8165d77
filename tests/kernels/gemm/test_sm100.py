"""The sm_100 GEMM in the simulator: right in every configuration, for every shape, dtype and order;
refused where it cannot be.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.gemm.sm100_cases import BF16, CLUSTERS, E4M3, E5M2, Problem, shape_of, simulate
from tilepipe.kernels.gemm import sm100
from tilepipe.kernels.gemm.config import Sm100GemmConfig
from tilepipe.kernels.gemm.reference import activated
from tilepipe.testing import compare_matmul

CONFIGS: list[dict[str, Any]] = [
    {},
    {"bm": 64},
    {"bm": 64, "bn": 16},
    {"bn": 16},
    {"bn": 48},
    {"bn": 256},
    {"bn": 256, "accumulators": 1, "stages": 3},
    {"bk": 128, "stages": 2},
    {"bk": 32, "stages": 7},
    {"k_group_size": 2, "stages": 2},
    {"k_group_size": 3, "stages": 2, "bn": 64},
    {"k_group_size": 2, "stages": 2, "cluster": 2, "cta_group": 2},
    {"accumulators": 1},
    {"accumulators": 4},
    {"accumulators": 3, "bn": 96},
    {"cta_group": 2, "cluster": 2, "bn": 256},
    {"cta_group": 2, "cluster": 2, "bn": 32},
    {"cta_group": 2, "cluster": 2, "accumulators": 1},
    {"raster": "rows", "scheduler": "static"},
    {"raster": "columns", "group": 2},
    {"store_slots": 1},
    {"store_slots": 4},
]


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_setting(config: dict[str, Any]) -> None:
    simulate(264, 296, 200, clusters=2, seed=1, **config)


@pytest.mark.sampled(suite=20, classes=lambda cluster, scheduler: [cluster, scheduler])
@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["clc", "static"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_clusters(cluster: tuple[int, int, int], scheduler: str) -> None:
    """Ragged at every edge, several tiles a cluster, a ring that the steps do not fill evenly."""
    simulate(392, 296, 264, seed=3, clusters=1, stages=3, scheduler=scheduler, **shape_of(cluster))


@pytest.mark.sampled(
    suite=100, classes=lambda cluster, scheduler, seed: [scheduler, cluster[2], cluster[1] > 1]
)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scheduler", ["clc", "static"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_interleavings(cluster: tuple[int, int, int], scheduler: str, seed: int) -> None:
    """`make test` runs both schedulers, a cluster along N and a pair: `test_clusters` has each
    cluster, in `make test-all` with each scheduler.
    """
    for clusters, accumulators, stages in ((1, 2, 2), (2, 1, 3), (0, 2, 5)):
        settings: dict[str, Any] = {
            "clusters": clusters,
            "accumulators": accumulators,
            "stages": stages,
            "scheduler": scheduler,
        }
        simulate(600, 424, 200, seed=seed, **settings, **shape_of(cluster))


SHAPES = [
    (1, 8, 8),
    (8, 8, 8),
    (127, 120, 56),
    (128, 128, 64),
    (129, 136, 72),
    (1100, 64, 64),
    (64, 1100, 64),
    (65, 72, 1000),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheduler", ["clc", "static"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, int, int], group: int, scheduler: str) -> None:
    """Smaller than a tile, one more than a tile, one dimension long."""
    m, n, k = shape
    simulate(
        m,
        -(-n // 8) * 8,
        k,
        seed=2,
        clusters=2,
        scheduler=scheduler,
        cta_group=group,
        cluster=group,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("group", [1, 2])
def test_trip_counts(steps: int, group: int) -> None:
    """K shorter and longer than the ring of three; five tiles, so that phases go round."""
    problem = Problem(
        5 * 128 * group,
        64,
        steps * 64 - 8,
        bn=64,
        stages=3,
        cta_group=group,
        cluster=group,
        clusters=1,
    )
    run = problem.right(seed=4)
    assert sum(map(sum, run.completions["inputs.full"])) == 5 * steps
    assert sum(map(sum, run.completions["inputs.empty"])) == 5 * steps * group
    assert sum(map(sum, run.completions["outputs.full"])) == 5 * group
    assert sum(map(sum, run.completions["outputs.empty"])) == 5


@pytest.mark.sampled(3)
@pytest.mark.parametrize("clusters", [1, 2, 3])
@pytest.mark.parametrize("tiles", [1, 2, 5, 6])
def test_tiles_of_a_cta(tiles: int, clusters: int) -> None:
    """Odd and even numbers of tiles through two accumulators."""
    for scheduler in ("clc", "static"):
        problem = Problem(128 * tiles, 32, 72, bn=32, clusters=clusters, scheduler=scheduler)
        run = problem.right(seed=5)
        assert sum(map(sum, run.completions["outputs.full"])) == tiles


DTYPES = [
    ((BF16, BF16), BF16),
    ((BF16, BF16), np.float16),
    ((BF16, BF16), np.float32),
    ((np.float16, np.float16), BF16),
    ((np.float16, np.float16), np.float16),
    ((np.float16, np.float16), np.float32),
    ((E4M3, E4M3), BF16),
    ((E5M2, E5M2), np.float32),
    ((E4M3, E5M2), np.float16),
    ((E5M2, E4M3), BF16),
]


@pytest.mark.parametrize(("dtypes", "out"), DTYPES)
def test_dtypes(dtypes: tuple[Any, Any], out: Any) -> None:
    simulate(136, 136, 208, dtypes=dtypes, out=out)


@pytest.mark.sampled(
    suite=100, classes=lambda dtypes, out, settings: [(dtypes, out), str(settings)]
)
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"cta_group": 2, "cluster": 2},
        {"bm": 64, "bk": 128, "stages": 2},
        {"cluster": 2, "cluster_n": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize(("dtypes", "out"), DTYPES)
def test_dtypes_in_other_shapes(
    dtypes: tuple[Any, Any], out: Any, settings: dict[str, Any]
) -> None:
    simulate(264, 144, 208, dtypes=dtypes, out=out, **settings)


@pytest.mark.sampled(3, suite=15, classes=lambda orders, cluster: [orders, cluster])
@pytest.mark.parametrize(
    "cluster", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2, 2)], ids=str
)
@pytest.mark.parametrize("orders", ["CF", "FC", "FF"])
def test_operands_contiguous_along_m_and_n(orders: str, cluster: tuple[int, int, int]) -> None:
    simulate(264, 200, 136, orders=orders, **shape_of(cluster))


EXTRAS: dict[str, dict[str, Any]] = {
    "alpha": {"alpha": -0.5},
    "bias": {"bias": (1, np.float32)},
    "bias of rows": {"bias": (2, np.float32)},
    "source": {"source": (2, BF16), "beta": 0.75},
    "one scale": {"a_scale": (0, 1), "b_scale": (0, 1)},
    "scales of rows": {"a_scale": (0, 0), "b_scale": (0, 0)},
    "everything": {
        "alpha": 1.5,
        "bias": (1, BF16),
        "source": (2, np.float32),
        "beta": -1.0,
        "a_scale": (0, 0),
        "b_scale": (0, 0),
    },
}


def made(extras: dict[str, Any], m: int, n: int) -> dict[str, Any]:
    """Arrays for the placeholders."""
    rng = np.random.default_rng(3)
    found = dict(extras)
    if "bias" in extras:
        shape = n if extras["bias"][0] == 1 else (m, 1)
        found["bias"] = rng.standard_normal(shape).astype(extras["bias"][1])
    if "source" in extras:
        found["source"] = rng.standard_normal((m, n)).astype(extras["source"][1])
    if "a_scale" in extras:
        single = extras["a_scale"][1]
        found["a_scale"], found["b_scale"] = (
            rng.uniform(0.2, 0.9, single or rows).astype(np.float32) for rows in (m, n)
        )
    return found


@pytest.mark.sampled(5, suite=21, classes=lambda name, settings: [name, str(settings)])
@pytest.mark.parametrize(
    "settings",
    [{}, {"cta_group": 2, "cluster": 2, "activation": "relu"}, {"bm": 64, "activation": "silu"}],
    ids=str,
)
@pytest.mark.parametrize("name", EXTRAS)
def test_what_is_done_with_the_sums(name: str, settings: dict[str, Any]) -> None:
    m, n = 200, 136
    extras = made(EXTRAS[name], m, n)

    def then(product: Any) -> Any:
        z = extras.get("alpha", 1.0) * product
        if "a_scale" in extras:
            z = z * extras["a_scale"][:, None] * extras["b_scale"][None, :]
        z = (
            z
            + extras.get("bias", np.zeros(n)).astype(np.float64)
            + extras.get("beta", 0.0) * np.asarray(extras.get("source", 0.0), float)
        )
        return activated(z, settings.get("activation"))

    problem = Problem(m, n, 136, out=np.float32, extras=extras, **settings)
    problem.program.run(seed=2)
    want = then(problem.a.astype(np.float64) @ problem.b.astype(np.float64).T)
    np.testing.assert_allclose(problem.c, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "gelu_erf"])
def test_activations(activation: str) -> None:
    for out in (BF16, np.float32):
        problem = Problem(136, 72, 64, out=out, activation=activation)
        problem.program.run()
        reference = activated(
            problem.a.astype(np.float64) @ problem.b.astype(np.float64).T, activation
        )
        np.testing.assert_allclose(
            problem.c.astype(np.float64), reference, rtol=2**-7 if out is BF16 else 2e-5, atol=2e-5
        )


def test_the_trace_does_not_depend_on_the_shapes() -> None:
    def text(m: int, n: int, k: int) -> str:
        sm100.gemm.forget()
        return str(Problem(m, n, k).program)

    assert text(256, 256, 256) == text(1000, 328, 776)


@pytest.mark.slow
def test_every_cta_lets_the_next_kernel_in() -> None:
    """griddepcontrol.launch_dependents stands in the load role of all CTAs, under no condition."""
    from tilepipe.ir import ops

    for cluster in CLUSTERS:
        roles = {
            role.name: role
            for role in Problem(128, 128, 64, **shape_of(cluster)).program.kernel.roles
        }
        assert [type(op) for op in roles["load"].body.ops].count(ops.LaunchDependents) == 1


# -- refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bm": 96}, "bm must be 64 or 128, and 128 where cta_group is 2"),
        (
            {"bm": 64, "cta_group": 2, "cluster": 2},
            "bm must be 64 or 128, and 128 where cta_group is 2",
        ),
        ({"bn": 24}, "bn must be a multiple of 16 in 16..256"),
        ({"bn": 48, "cta_group": 2, "cluster": 2}, "bn must be a multiple of 32 in 32..256"),
        ({"bn": 272}, "bn must be a multiple of 16 in 16..256"),
        ({"bk": 48}, "bk must be a multiple of 32 in 32..256"),
        ({"stages": 1}, "stages must be at least 2"),
        ({"cta_group": 3}, "cta_group must be 1 or 2"),
        ({"cta_group": 2}, "cta_group 2 takes an even cluster"),
        ({"cta_group": 2, "cluster_n": 2}, "cta_group 2 takes an even cluster"),
        ({"cluster": 3}, "cluster · cluster_n · split_k must be 1, 2, 4 or 8"),
        ({"cluster": 4, "cluster_n": 4}, "cluster · cluster_n · split_k must be 1, 2, 4 or 8"),
        ({"bn": 16, "cluster": 4}, "bm / cluster_n must be a multiple of 8, and bn / cluster, too"),
        (
            {"accumulators": 3, "bn": 256},
            "3 accumulators of 256 columns are 768; tensor memory has 512",
        ),
        ({"accumulators": 0}, "accumulators must be at least 1"),
        ({"scheduler": "atomic"}, "scheduler must be one of clc, static"),
        ({"raster": "zigzag"}, "raster must be one of grouped, rows, columns"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"bm": "64"}, "bm must be an integer, got '64'"),
        ({"cluster": True}, "cluster must be an integer, got True"),
        ({"scheduler": 1}, "scheduler must be a string, got 1"),
    ],
    ids=str,
)
def test_settings_that_no_kernel_can_have(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        Sm100GemmConfig(**settings)


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


BAD_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    (
        {"cfg": Sm100GemmConfig(k_group_size=100, stages=2)},
        "k_group_size=100 makes a stage of 100 tiles",
    ),
    ({"cfg": None}, "gemm: cfg is an Sm100GemmConfig, got None"),
    ({"a": None}, "a must be an array, got None"),
    (
        {"a": half(2, 128, 64), "c": half(2, 128, 128)},
        "gemm multiplies matrices on sm_100, without a batch dimension",
    ),
    ({"a": half(128, 72)}, "both k equal"),
    ({"c": half(128, 120)}, "C is 128×120"),
    ({"a": np.zeros((128, 64), BF16)}, "the same for A and B, or fp8; got bfloat16 and float16"),
    (
        {"c": np.zeros((128, 128), E4M3)},
        "gemm writes bfloat16, float16, float32; C is float8_e4m3",
    ),
    ({"bias": half(64)}, "bias must have shape (128,), one value a column"),
    ({"beta": 1.0}, "beta=1.0 scales source, which is not given"),
    ({"source": half(64, 128), "beta": 1.0}, "source has shape (64, 128), C (128, 128)"),
    ({"a_scale": np.ones(1, np.float32)}, "a_scale and b_scale have shapes (1,) and None"),
    (
        {"a": np.zeros((64, 128), E4M3).T, "b": np.zeros((128, 64), E4M3)},
        "A is contiguous along m; tensor cores transpose 16-bit elements",
    ),
    (
        {"b": half(64, 128).T, "cfg": Sm100GemmConfig(cluster=8)},
        "tiles of 128 along n are loaded in parts of 16",
    ),
    ({"c": half(128, 256)[:, ::2]}, "128"),
]


@pytest.mark.parametrize(
    ("arguments", "words"), BAD_ARGUMENTS, ids=[words for _, words in BAD_ARGUMENTS]
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    given = {
        "a": half(128, 64),
        "b": half(128, 64),
        "c": half(128, 128),
        "cfg": Sm100GemmConfig(),
    } | arguments
    with pytest.raises(tp.BindError, match=re.escape(words)):
        sm100.bind(**given)


def test_too_much_shared_memory() -> None:
    with pytest.raises(tp.LimitError, match="shared memory"):
        Problem(128, 128, 64, stages=8, bn=256, bk=128)


def test_a_result_of_the_wrong_kind_is_seen() -> None:
    """The comparison that these tests rely on."""
    problem = Problem(128, 128, 64)
    problem.right()
    problem.c[5, 7] += 1
    assert not compare_matmul(problem.c, problem.a, problem.b.T).ok
