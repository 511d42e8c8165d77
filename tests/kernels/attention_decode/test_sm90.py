"""Attention over a cache: every family in the simulator and from its PTX, its machine code, how
CTAs share sequences, its planted mistakes, and what it says of arguments that do not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.attention_decode.families import FAMILIES
from tilepipe import cuda
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import mutants
from tilepipe.check.sizes import too_small
from tilepipe.check.verdict import combine
from tilepipe.ir.program import TensorArg
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.attention_decode.reference import compare_decode, random_cache
from tilepipe.kernels.attention_decode.shares import share_size
from tilepipe.kernels.attention_decode.sm90 import attention_decode, bind
from tilepipe.program.grid_rule import grid_rule
from tilepipe.registry.attention_decode import ATTENTION_DECODE as SPEC
from tilepipe.registry.instances import small_chip
from tilepipe.registry.spec import Case

SMALL: dict[str, Any] = {"batch": 3, "s": 700, "lengths": "690,130,0"}
SMS = 2


def made(family: str, seed: int = 0, sms: int = SMS, **given: Any) -> Case:
    settings, _ = SPEC.configure(SMALL | FAMILIES[family] | given, None)
    return SPEC.make(settings, seed, small_chip(tp.H200, sms))


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_right(family: str) -> None:
    case = made(family, seed=1)
    run = case.program.run(seed=1)
    found = case.verify()
    assert found.ok, found
    assert run.advice == []


def test_an_export_has_a_ticket_for_each_sequence_and_head(tmp_path: Path) -> None:
    program = made("default").program
    shapes = {n: a.shape for n, a in program.launch_args.args.items() if isinstance(a, TensorArg)}
    batch, heads = (shapes["q"][axis] for axis in (0, 2))
    with pytest.raises(tp.ExportError) as error:
        program.export(tmp_path / "out", extents={"q": ("batch", *shapes["q"][1:])})
    assert str(error.value) == (
        f"attention_decode: tickets has shape ({batch * heads},), and is drawn from for each"
        f" sequence and head of the cache: batch batch times kv_heads {heads}. In an export where"
        " the batch is free, tickets follows it, and there is one head of the cache:"
        ' extents={"tickets": ("batch",), ...}; otherwise leave the batch fixed'
    )
    assert not (tmp_path / "out").exists()
    program = made("default", kv_heads=1, heads=2).program
    grid, args = program.grid_function, program.launch_args.args
    assert grid is not None
    shapes = {n: a.shape for n, a in args.items() if isinstance(a, TensorArg)}
    named: dict[str, tuple[int | str, ...]] = {**shapes}
    named |= {"q": ("batch", *shapes["q"][1:]), "tickets": ("batch",)}
    assert grid_rule(grid.given, grid.known, named, ()) == shapes["parts"][0] // 2


@pytest.mark.slow
@pytest.mark.sampled(suite=100, classes=lambda family: ["8 bits"] * ("8 bits" in family))
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "default"])
def test_the_printed_kernel_is_right(family: str) -> None:
    """Of a cache that the kernel widens. `ptx.test_print_families` has the default, which does
    not.
    """
    case = made(family, s=280, lengths="270,130,0")
    case.program.ptx("sm_90a").run(0)
    found = case.verify()
    assert found.ok, found


@pytest.mark.slow
@pytest.mark.sampled(suite=2, classes=lambda lengths, sms: [tuple(lengths), sms])
@pytest.mark.parametrize("sms", [1, 3, 8])
@pytest.mark.parametrize(
    "lengths",
    [
        [1, 2, 1],  # fewer keys than tokens
        [64, 0, 64, 128, 0],
        [-5, 1000],  # as 0, and as the cache
        [1 if i % 9 else i for i in range(130)],  # looked at in three parts
        [256],
    ],
    ids=str,
)
def test_sequences_of_any_lengths(lengths: list[int], sms: int) -> None:
    """Shares that begin and end anywhere; tickets are 0 again, so that the next launch is right,
    too.
    """
    rng, s, dtype = np.random.default_rng(0), 256, tp.bfloat16
    seen = np.clip(lengths, 0, s).astype(np.int32)
    q = rng.standard_normal((len(lengths), 2, 4, 64)).astype(dtype.numpy)
    cache = random_cache(rng, seen, s, 2, 64, dtype)
    out, lse = np.empty_like(q), np.empty((len(lengths), 4, 2), np.float32)
    program = bind(
        q,
        cache.k,
        cache.v,
        out,
        lse,
        DecodeConfig(bn=32),
        cache_seqlens=np.array(lengths, np.int32),
        chip=small_chip(tp.H200, sms),
    )
    for seed in range(2):
        out[...], lse[...] = np.nan, np.nan
        program.run(seed=seed)
        found = compare_decode(out, q, cache, seen, lse=lse)
        assert found.ok, found


@pytest.mark.slow
def test_a_query_without_keys_has_zeros() -> None:
    q = np.ones((1, 2, 2, 64), ml_dtypes.bfloat16)
    k = np.full((1, 64, 1, 64), np.nan, ml_dtypes.bfloat16)
    k[0, 0] = 1
    out, lse = np.empty_like(q), np.empty((1, 2, 2), np.float32)
    bind(q, k, k.copy(), out, lse, cache_seqlens=np.ones(1, np.int32)).run()
    assert (out[0, 0] == 0).all()  # of the first token, which is before the one key
    assert (out[0, 1] == 1).all()
    assert lse[0, 0].tolist() == [-np.inf, 8.0]


@pytest.mark.slow
def test_without_lengths_the_whole_cache_is_seen() -> None:
    rng, dtype = np.random.default_rng(0), tp.float16
    lengths = np.full(2, 200, np.int32)
    q = rng.standard_normal((2, 1, 4, 64)).astype(dtype.numpy)
    cache = random_cache(rng, lengths, 200, 2, 64, dtype)
    out = np.empty_like(q)
    chip = small_chip(tp.H200, SMS)
    bind(q, cache.k, cache.v, out, scale=0.25, chip=chip).run()
    found = compare_decode(out, q, cache, lengths, scale=0.25)
    assert found.ok, found


@pytest.mark.slow
def test_the_reference_notices_a_wrong_element() -> None:
    case = made("default")
    case.program.run()
    assert case.verify().ok
    case.output[1, 0, 3, 5] += 1
    found = case.verify()
    assert (found.ok, found.worst_at) == (False, (1, 0, 3, 5))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "written"),
    [
        ([64, 64, 64, 64], []),  # a tile for each CTA
        ([128, 128, 64, 64], []),  # shares of two tiles, the last CTA has none
        # CTA 0 ends with a part of sequence 1; CTA 1 has parts of it and of 2, CTA 2 the rest of 2
        ([64, 128, 128, 64], [1, 2, 3, 4]),
    ],
)
def test_only_parts_of_sequences_that_are_cut_go_to_memory(
    keys: list[int], written: list[int]
) -> None:
    q, k = np.zeros((4, 1, 1, 64), np.float16), np.zeros((4, 128, 1, 64), np.float16)
    parts = np.full((8, 1, 64), 7, np.float32)
    workspace = parts, np.zeros((8, 2, 8), np.float32), np.zeros(4, np.int32)
    lengths = np.array(keys, np.int32)
    bind(q, k, k.copy(), q.copy(), cache_seqlens=lengths, workspace=workspace).run()
    assert np.flatnonzero((parts != 7).any(axis=(1, 2))).tolist() == written


@pytest.mark.slow
@pytest.mark.sampled(
    suite=100, classes=lambda family: {"8 bits", "d 256"} & {family.removeprefix("of "), family}
)
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code(family: str) -> None:
    """No spills, and wgmma not serialised: where the cache is widened in registers, and where a
    thread has the most to hold.
    """
    compiled = cuda.compile(made(family).program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log


@pytest.mark.parametrize(
    ("total", "ctas", "size"),
    [
        (0, 4, 1),
        (5, 4, 2),
        (124, 4, 31),
        (125, 4, 32),
        (129, 4, 34),
        (16384, 264, 64),
        (65536, 264, 256),
    ],
)
def test_the_size_of_a_share(total: int, ctas: int, size: int) -> None:
    """Up to a sixteenth more than an equal part, a multiple of a power of two."""
    assert share_size(total, ctas) == size


@pytest.mark.slow
@pytest.mark.sampled(suite=24)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_verified(family: str) -> None:
    """In every order of tickets; no line is left out."""
    _, instances = SPEC.instances(FAMILIES[family])
    verdicts = [x.make().check() for x in instances]
    assert [(v.verdict, v.method) for v in verdicts] == [("verified", "explored")] * 2
    assert all(v.traces > 1 for v in verdicts)
    assert too_small(verdicts) == ""
    assert combine(verdicts).unreached == []


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("family", ["default", "two CTAs of an SM", "pages of 16"])
def test_the_printed_kernel_is_verified(family: str) -> None:
    """What the instances of `tilepipe check` say of the program holds for its PTX."""
    _, instances = SPEC.instances(FAMILIES[family])
    verdict = instances[0].make().ptx("sm_90a").check()
    assert (verdict.verdict, verdict.method, verdict.faults) == ("verified", "explored", [])
    assert verdict.traces > 1


MUTATED: dict[str, Any] = {"d": 64, "bn": 32, "stages": 2, "ctas": 1, "lse": False}
COLUMNS = MUTATED | {"bn": 64, "queries": "columns"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "file", "kinds", "least"),
    [
        (MUTATED, "combine.py", ["drop", "move"], 8),
        (COLUMNS, "combine.py", ["drop", "move"], 8),
        (COLUMNS, "columns.py", ["drop"], 8),
    ],
    ids=["parts, rows", "parts, columns", "columns"],
)
def test_mutants_are_found(
    settings: dict[str, Any], file: str, kinds: list[str], least: int
) -> None:
    """The meetings of the warpgroup before and after the ticket: without one, or moved. Where
    queries are columns, nothing that orders the products and their operands is there twice.
    """
    _, instances = SPEC.instances(settings)
    launch = instances[0].make().launch_args
    before = outputs(launch)
    survivors, count = [], 0
    for mutant in mutants(launch.kernel, kinds):
        if file in str(mutant):
            count += 1
            if not judge(mutant, launch, before).caught:
                survivors.append(str(mutant))
    assert survivors == []
    assert count >= least


@pytest.mark.slow
@pytest.mark.parametrize("order", ["relaxed", "release", "acquire"])
def test_a_ticket_that_orders_too_little_is_a_race(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = tp.Context.atomic_add

    def weaker(ctx: tp.Context, *args: Any, **options: Any) -> Any:
        return drawn(ctx, *args, **options | {"order": order})

    monkeypatch.setattr(tp.Context, "atomic_add", weaker)
    attention_decode.forget()
    try:
        _, instances = SPEC.instances(MUTATED)
        verdict = instances[0].make().check()
    finally:
        attention_decode.forget()
    assert verdict.verdict == "fault"
    (fault,) = verdict.faults
    assert "race on tensor 'part" in fault.message


def arrays(**changes: Any) -> dict[str, Any]:
    half = ml_dtypes.bfloat16
    good = {
        "q": np.zeros((2, 1, 4, 64), half),
        "k_cache": np.zeros((2, 96, 2, 64), half),
        "v_cache": np.zeros((2, 96, 2, 64), half),
        "out": np.zeros((2, 1, 4, 64), half),
    }
    return good | changes


HALF = ml_dtypes.bfloat16
PAGED = np.zeros((5, 16, 2, 64), HALF)
TABLE = np.zeros((2, 6), np.int32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q": np.zeros((2, 4, 64), HALF)}, "q has 4 dimensions (batch, tokens, heads, d), it has"),
        ({"q": np.zeros((2, 1, 4, 64), np.float32)}, "takes bfloat16 or float16, the same for q,"),
        ({"q": 3}, "q must be an array"),
        ({"v_cache": np.zeros((2, 97, 2, 64), HALF)}, "k_cache and v_cache have one shape"),
        ({"q": np.zeros((2, 1, 3, 64), HALF)}, "q has 3 heads and the cache 2"),
        ({"q": np.zeros((2, 33, 4, 64), HALF)}, "at most 64 rows; 4 / 2 · 33 = 66"),
        ({"q": np.zeros((2, 1, 4, 72), HALF)}, "a multiple of 8 up to 256; they have 72 and 64"),
        ({"q": np.zeros((3, 1, 4, 64), HALF)}, "q has 3 sequences and the cache 2"),
        (
            {name: np.zeros((2, 0, 4, 64), HALF) for name in ("q", "out")},
            "there is nothing to launch; ops.attention_decode returns the result",
        ),
        ({"out": np.zeros((2, 1, 2, 64), HALF)}, "out must have the shape of q, (2, 1, 4, 64)"),
        ({"out": None}, "out is the array that the kernel writes; got None"),
        ({"lse": np.zeros((2, 4), np.float32)}, "lse must have 3 dimensions"),
        ({"lse": np.zeros((2, 1, 4), np.float32)}, "(2, 4, 1), (batch, heads, tokens)"),
        ({"cache_seqlens": np.zeros(2, np.int64)}, "is int32 of shape (2,), the keys of each"),
        ({"cache_seqlens": np.zeros(3, np.int32)}, "it is int32 of (3,)"),
        ({"block_table": TABLE[0]}, "block_table is int32 of shape (2, most pages), the pages"),
        ({"block_table": TABLE, "k_cache": PAGED[:, :12], "v_cache": PAGED[:, :12]}, "it has 12"),
        ({"scale": -1.0}, "for a negative one pass -q"),
        ({"scale": "1"}, "scale must be a number, got '1'"),
        ({"cfg": 3}, "cfg is a DecodeConfig, got 3"),
        (
            {"cfg": DecodeConfig(bn=160, stages=3)},
            "3 · 2 · 160 · 64 · 2 = 122,880 bytes; with ctas=2 a CTA has",
        ),
        (
            {"cfg": DecodeConfig(bn=144, stages=3)},
            "a CTA has 107,008 bytes for them: lower stages, bn or ctas (Dec",
        ),
        (
            {
                name: np.zeros((2, 96, 2, 128), HALF) if "cache" in name else x.repeat(2, 3)
                for name, x in arrays().items()
            }
            | {"cfg": DecodeConfig(bn=80)},
            "bn=80 keys of a tile: with heads of 128 elements and ctas=2 the registers of a thread"
            " have room for 64",
        ),
    ],
)
def test_arguments_that_do_not_fit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        bind(**arrays(**changes))
    assert "attention_decode" in str(caught.value) or "DecodeConfig(" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("d", "narrow", "cfg", "words"),
    [
        (264, False, None, "a multiple of 8 up to 256; they have 264"),
        (208, True, None, "a multiple of 16 up to 192 of a cache of float8_e4m3; they have 208"),
        (72, True, None, "a multiple of 16 up to 192 of a cache of float8_e4m3; they have 72"),
        (256, False, DecodeConfig(bn=48, ctas=1), "ctas=1 the registers of a thread have room for"),
        (128, False, DecodeConfig(stages=3), "97,792 bytes for them: lower stages, bn or ctas, or"),
        (128, False, DecodeConfig(stages=3), "or give queries='rows', which keeps no weights"),
        (
            128,
            False,
            DecodeConfig(stages=9, ctas=1),
            "a CTA has 214,528 bytes for them: lower stages or bn (",
        ),
        (256, False, DecodeConfig(bn=16), "ctas=2 the registers of a thread have room for 0"),
        (64, True, DecodeConfig(bn=96), "widens 64 at once, so it is a multiple of 64"),
        (128, True, DecodeConfig(stages=6), "6 · 2 · 64 · 128 · 1 = 98,304 bytes; with ctas=2 a"),
        (64, True, DecodeConfig(stages=6), "6 · 2 · 64 · 128 · 1 = 98,304 bytes; with ctas=2 a"),
    ],
)
def test_sizes_that_do_not_fit(d: int, narrow: bool, cfg: DecodeConfig | None, words: str) -> None:
    q, k = np.zeros((2, 1, 4, d), HALF), np.zeros((2, 96, 2, d), HALF)
    k = k.astype(tp.float8_e4m3.numpy) if narrow else k
    with pytest.raises(tp.BindError) as caught:
        bind(q, k, k, q.copy(), cfg=cfg)
    assert words in str(caught.value)


def test_a_window_reads_only_the_tiles_that_it_sees() -> None:
    """What is before it may be NaN; copies start for two tiles of K and V each."""
    keys, left = 40 * 64, 100
    q, cache = np.ones((1, 1, 1, 64), HALF), np.full((1, keys, 1, 64), np.nan, HALF)
    cache[:, keys - left - 1 :] = 1
    out = np.zeros_like(q)
    program = bind(q, cache, cache, out, window=(left, None), chip=small_chip(tp.H200, 1))
    run = program.run(timeline=True)
    assert (out == 1).all()
    assert run.timeline is not None
    copies = [x for x in run.timeline.events if x.op == "tma_load"]
    assert len(copies) == 2 * 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bn": 24}, "bn must be a multiple of 16 up to 160"),
        ({"bn": 176}, "bn must be a multiple of 16 up to 160"),
        ({"ctas": 3}, "ctas must be 1 or 2"),
        ({"stages": 0}, "stages must be at least 1"),
    ],
)
def test_settings_that_there_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        DecodeConfig(**settings)
    assert words in str(caught.value)


@pytest.mark.slow
def test_a_page_that_is_no_part_of_a_tile() -> None:
    """Neither divides the other; three pages make up a tile."""
    big = np.zeros((5, 64, 2, 64), HALF)
    given = arrays(k_cache=big, v_cache=big, block_table=TABLE)
    with pytest.raises(tp.BindError, match="bn=80 keys of a tile and pages of 64"):
        bind(**given, cfg=DecodeConfig(bn=80))
    bind(**arrays(k_cache=PAGED, v_cache=PAGED, block_table=TABLE, cfg=DecodeConfig(bn=48)))
