"""One thing left out of an example at a time; the error must name what, where and for whom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.examples.ladder import line_of, load, plant
from tilepipe.errors import (
    BarrierError,
    CountError,
    DeadlockError,
    ExitError,
    HandleError,
    PoisonError,
    RaceError,
    TilepipeError,
    TraceError,
)

ONE, RING, TMA = "01_two_warps_one_barrier", "02_ring", "03_tma_in_tma_out"
BY_HAND, PIPELINED, GROUPS, CLUSTER = (
    "04_one_warpgroup_gemm",
    "05_warp_specialised_gemm",
    "06_k_groups",
    "07_cluster_multicast",
)
TMEM, PAIR, ASKING = "08_tensor_memory", "09_a_pair_of_ctas", "10_asking_before_waiting"
TURNED, CONVERTED, CHOSEN = "11_transposition", "12_conversion", "13_next_token"

EXPECT = "stage.expect_bytes(inputs.stage_bytes)"
NOT_ANNOUNCED = (
    "producer stage of 'inputs'",
    "nothing has arrived on its full barrier",
    "'inputs.full'",
    "expect_bytes",
)
READS_RUNNING = (
    "race on inputs_",
    "role 'mma' warpgroup",
    "role 'load'",
    "A wgmma reads its tiles until its group has been waited for",
)
UNREADY = (
    RaceError,
    PoisonError,
)  # a read too early is the one when the data come in between, the other when they never do
STORE_READS = (
    "race on",
    "The store reads the tile until",
    "tma_store_wait",
    "role 'mma' warpgroup",
)
LOADED = "result = output.tmem.tensor((BM, BN)).load()"
BY_HAND_ARRIVE = 'with ctx.elect_one("warpgroup"):\n                        stage.mbar().arrive()'


@dataclass(frozen=True)
class Mistake:
    """`old` replaced by `new`; `error` and what its message must contain; `at`: texts whose lines
    it must name.
    """

    name: str
    old: str
    new: str
    error: type[TilepipeError] | tuple[type[TilepipeError], ...]
    said: tuple[str, ...]
    at: tuple[str, ...] = ()


MISTAKES = {
    "11 the slot is filled while TMA reads it": Mistake(
        TURNED,
        "ctx.tma_store_wait(SLOTS - 1, read=True)",
        "ctx.tma_store_wait(SLOTS, read=True)",
        RaceError,
        ("race on turned[", "The store reads the tile until", "tma_store_wait", "role 'turn'"),
    ),
    "11 TMA reads the slot without a fence of proxies": Mistake(
        TURNED,
        "            ctx.fence_proxy_async()\n",
        "",
        RaceError,
        ("race between proxies on turned[", "ctx.fence_proxy_async()"),
    ),
    "11 rows of the result in place of columns": Mistake(
        TURNED,
        'order="col", name="turned"',
        'name="turned"',
        TraceError,
        ("turned", "order"),
    ),
    "11 nobody frees the slot": Mistake(
        TURNED,
        "with ring.consume() as stage:",
        "with ring.consume_explicit() as stage:",
        CountError,
        ("no role arrives on 'ring.empty'", "release"),
    ),
    "12 fewer rows than warps": Mistake(
        CONVERTED,
        "(ROWS, COLUMNS)",
        "(ROWS // 2, COLUMNS)",
        TraceError,
        ("rows",),
    ),
    "13 rows of two warps": Mistake(
        CHOSEN,
        "top = ctx.fragment(shape=(1, 1), layout=LAYOUT)",
        "top = ctx.fragment(shape=(1, 1), layout='rows:64')",
        TraceError,
        ("hold different elements", 'layout "rows:64"', 'layout "rows:128"'),
    ),
    "01 no arrive": Mistake(
        ONE,
        "ready.arrive()",
        "pass",
        DeadlockError,
        ("role 'read'", "ready", "32 of 32 arrivals", "nothing in the kernel arrives on it"),
        ("ready.wait(0)",),
    ),
    "01 count one too high": Mistake(
        ONE,
        "count=32",
        "count=33",
        DeadlockError,
        ("1 of 33 arrivals", "32 by role 'write'", "the count is too high"),
        ("ready.wait(0)", "ready.arrive()"),
    ),
    "01 no wait": Mistake(
        ONE,
        "        ready.wait(0)\n",
        "",
        RaceError,
        ("race on cells", "role 'read' reads", "role 'write' writes"),
        ("2.0 * ctx.load", "ctx.store(out"),
    ),
    "02 no arrive": Mistake(
        RING,
        "                stage.mbar().arrive()  # full[stage]: 32 lanes, 32 arrivals\n",
        "",
        HandleError,
        (
            "producer stage of 'rows'",
            "nothing has arrived on its full barrier",
            "'rows.full'",
            "mbar().arrive()",
        ),
        ("ring.produce()",),
    ),
    "02 no release by the consumer": Mistake(
        RING,
        "ring.consume()",
        "ring.consume_explicit()",
        CountError,
        ("no role arrives on 'rows.empty'", "Its consumer must release"),
        ("allocate(ctx",),
    ),
    "02 no wait by the consumer": Mistake(
        RING,
        "with ring.consume() as stage:",
        "ring.wait_producer_if_needed(True)\n            with tp.ConsumeContext("
        "ctx.tracer, 'stage', lambda: tp.ConsumerStage(ring, ring.consumer_stage()), "
        "tp.ConsumerStage.release) as stage:",
        UNREADY,
        ("slots", "role 'add' reads", "load slots["),
        ("total +=",),
    ),
    "03 no expect_bytes": Mistake(
        TMA,
        "                stage.mbar().expect_bytes(tiles.tile_bytes)\n",
        "",
        HandleError,
        ("producer stage of 'ring'", "'ring.full' forever", "expect_bytes"),
        ("ring.produce()",),
    ),
    "03 too many bytes": Mistake(
        TMA,
        "expect_bytes(tiles.tile_bytes)",
        "expect_bytes(tiles.tile_bytes + 16)",
        DeadlockError,
        (
            "ring.full[0]",
            "16 bytes (8,208 expected, 8,192 delivered)",
            "16 too large",
            "cycle: role",
        ),
        ("expect_bytes(", "ctx.tma_load("),
    ),
    "03 no arrive": Mistake(
        TMA,
        "                stage.mbar().arrive()\n",
        "",
        CountError,
        ("no role arrives on 'ring.empty'",),
        ("allocate(ctx",),
    ),
    "03 no wait for the store": Mistake(
        TMA,
        "                ctx.tma_store_wait(0, read=True)  # the slot has been read\n",
        "",
        RaceError,
        ("race on tiles[", "role 'store'", "role 'load'", "tma_store_wait"),
        ("ctx.tma_store(", "ctx.tma_load("),
    ),
    "03 no commit of the store": Mistake(
        TMA,
        "                ctx.tma_store_commit()\n",
        "",
        RaceError,
        ("race on tiles[", "role 'store'", "The store reads the tile until"),
        ("ctx.tma_store(", "ctx.tma_load("),
    ),
    "04 no expect_bytes": Mistake(
        BY_HAND,
        "                full.expect_bytes(a_tile.nbytes + b_tile.nbytes)\n",
        "",
        DeadlockError,
        ("copies of 24,576 bytes signal full", "no op calls expect_bytes", "cycle: role"),
        ("full.wait(k % 2)", "free.wait("),
    ),
    "04 no commit": Mistake(
        BY_HAND,
        "            ctx.mma_commit(free)\n",
        "",
        DeadlockError,
        (
            "nothing in the kernel arrives on it",
            "role 'load'",
            "a commit, an arrive or an expect_bytes is missing",
        ),
        ("free.wait(",),
    ),
    "04 no wait for the MMAs": Mistake(
        BY_HAND,
        "            ctx.wgmma_wait(0)  # the MMAs have finished: now the arrival on "
        "`free` is made\n",
        "",
        TraceError,
        ("mma_commit binds free", "no ctx.wgmma_wait in the same block"),
        ("ctx.mma_commit(free)",),
    ),
    "04 no wait for the tiles": Mistake(
        BY_HAND,
        "            full.wait(k % 2)\n",
        "",
        UNREADY,
        ("a_tile", "role 'mma'", "wgmma acc += a_tile"),
        ("ctx.mma(acc",),
    ),
    "04 no wait for the free slot": Mistake(
        BY_HAND,
        "            free.wait((k + 1) % 2)\n",
        "",
        TilepipeError,
        ("role 'load'",),
        ("ctx.tma_load(a",),
    ),
    "04 the wrong phase": Mistake(
        BY_HAND,
        "            full.wait(k % 2)\n",
        "            full.wait((k + 1) % 2)\n",
        UNREADY,
        ("a_tile", "role 'mma'", "wgmma acc += a_tile"),
        ("ctx.mma(acc",),
    ),
    "04 no proxy fence": Mistake(
        BY_HAND,
        "        ctx.fence_proxy_async()\n",
        "",
        RaceError,
        ("race between proxies on out[0]", "no fence.proxy.async", "ctx.fence_proxy_async()"),
        ("ctx.store(out[j]", "ctx.tma_store(c"),
    ),
    "05 no expect_bytes": Mistake(
        PIPELINED,
        f"                    {EXPECT}\n",
        "",
        HandleError,
        NOT_ANNOUNCED,
        ("producer.acquire()",),
    ),
    "05 freed before the MMAs retired": Mistake(
        PIPELINED,
        "# leaving the stage commits its MMAs: they arrive on its empty barrier",
        BY_HAND_ARRIVE,
        RaceError,
        READS_RUNNING,
        ("ctx.mma(acc",),
    ),
    "05 no wait for the tiles": Mistake(
        PIPELINED,
        "consumer.acquire()",
        "consumer.acquire_if_needed(True)",
        RaceError,
        ("race on inputs_", "role 'mma' warpgroup", "role 'load'"),
        ("ctx.mma(acc",),
    ),
    "05 no barrier before the store": Mistake(
        PIPELINED,
        "        ctx.sync_warpgroup()\n",
        "",
        RaceError,
        ("race on out[", "fragment_store", "tma_store", "the threads that make them must meet"),
        ("ctx.store(out", "ctx.tma_store(c"),
    ),
    "06 no expect_bytes": Mistake(
        GROUPS,
        f"                        {EXPECT}\n",
        "",
        HandleError,
        NOT_ANNOUNCED,
        ("producer.acquire()",),
    ),
    "06 the bytes of one tile of two": Mistake(
        GROUPS,
        EXPECT,
        "stage.expect_bytes(inputs.stage_bytes // GROUP)",
        TilepipeError,
        ("inputs_a[",),
        ("ctx.tma_load(a",),
    ),
    "06 slots of the output reused at once": Mistake(
        GROUPS,
        "ctx.tma_store_wait(0, read=True)",
        "pass",
        RaceError,
        STORE_READS,
        ("ctx.store(out", "ctx.tma_store(c"),
    ),
    "07 no expect_bytes": Mistake(
        CLUSTER,
        f"                        {EXPECT}\n",
        "",
        HandleError,
        NOT_ANNOUNCED,
        ("producer.acquire()",),
    ),
    "07 no commit": Mistake(
        CLUSTER,
        "                        ctx.mma_commit(stage.mbar(), mask=BOTH)\n",
        "",
        RaceError,
        ("race on inputs_b[", "role 'load' of CTA", "multicast=BOTH"),
        ("multicast=BOTH",),
    ),
    "07 no drain": Mistake(
        CLUSTER,
        "            producer.drain()\n",
        "",
        ExitError,
        (
            "exits while role 'mma' warpgroup",
            "can still arrive on inputs.empty[",
            "Call producer.drain()",
        ),
        ("ctx.mma_commit(",),
    ),
    "07 no multicast": Mistake(
        CLUSTER,
        ", multicast=BOTH",
        "",
        DeadlockError,
        ("inputs.full[0]", "8,192 bytes (32,768 expected, 24,576 delivered)", "cycle: role"),
        ("ctx.tma_load(a",),
    ),
    "08 every MMA adds": Mistake(
        TMEM,
        "accumulate=k > 0",
        "accumulate=True",
        PoisonError,
        ("role 'mma' of CTA", "tensor memory", "were never written", "let the first one overwrite"),
        ("ctx.mma(acc",),
    ),
    "08 a slot freed before the MMAs have read it": Mistake(
        TMEM,
        "ctx.mma_commit(stage.mbar())",
        "stage.mbar().arrive()",
        RaceError,
        (
            "race on inputs_a[0]",
            "role 'mma'",
            "role 'load'",
            "until a commit by the same thread has arrived",
        ),
        ("ctx.mma(acc", "ctx.tma_load(a"),
    ),
    "08 an accumulator freed before it is loaded": Mistake(
        TMEM,
        LOADED,
        f"tp.AccumBarrier().arrive(output.pipeline, output.index); {LOADED}; ctx.tmem_wait_load()",
        RaceError,
        (
            "race on tensor memory",
            "role 'epilogue'",
            "role 'mma'",
            "ctx.tmem_wait_load()",
            "ctx.tcgen05_fence_before()",
        ),
        ("ctx.mma(acc", "result = output.tmem"),
    ),
    "08 result read before they are loaded": Mistake(
        TMEM,
        LOADED,
        f"{LOADED}; result *= 2",
        RaceError,
        (
            "reads fragment",
            "while a load from tensor memory into its registers is in flight",
            "ctx.tmem_wait_load()",
        ),
        ("result *= 2",),
    ),
    "08 the epilogue does not learn where tensor memory is": Mistake(
        TMEM,
        "with outputs.epilogue_warp():",
        "if True:",
        TraceError,
        ("role 'epilogue' does not know where 'tmem' is", "with outputs.epilogue_warp():"),
        ("result = output.tmem",),
    ),
    "08 five accumulators": Mistake(
        TMEM,
        "num_stages=ACCUMULATORS",
        "num_stages=5",
        TraceError,
        ("5 stages × 128 columns = 640", "512"),
        ("num_stages=5",),
    ),
    "09 the bytes of one CTA": Mistake(
        PAIR,
        EXPECT,
        "stage.expect_bytes(inputs.stage_bytes // 2)",
        BarrierError,
        (
            "inputs.full[",
            "of CTA",
            "bytes of its copies are still to come: 24,576 bytes expected",
            "Raise the number",
        ),
        ("ctx.tma_load(",),
    ),
    "09 inputs without the pair": Mistake(
        PAIR,
        "num_group_stages=STAGES, cta_group=PAIR",
        "num_group_stages=STAGES",
        RaceError,
        ("race on inputs_b[0]", "role 'load' of CTA", "role 'mma' of CTA", "The copy is in flight"),
        ("ctx.mma(acc", "ctx.tma_load(b"),
    ),
    "09 both CTAs issue": Mistake(
        PAIR,
        ", ctx.when(tp.elect_one_cta(ctx)):",
        ":",
        TraceError,
        (
            "the even one issues it for both, but the odd one executes this too",
            "tp.elect_one_cta(ctx)",
        ),
        ("ctx.mma(acc",),
    ),
    "09 no drain": Mistake(
        PAIR,
        "            producer.drain()\n",
        "",
        ExitError,
        (
            "exits while role 'mma' of CTA",
            "can still arrive on inputs.empty[",
            "Call producer.drain()",
        ),
        ("ctx.mma_commit(",),
    ),
    "09 a commit for one CTA": Mistake(
        PAIR,
        ", mask=BOTH",
        "",
        CountError,
        (
            "consumer stage of 'inputs'",
            "signalled in CTA rank 0 of the cluster and not in rank 1",
            "Commit to both",
        ),
        ("consumer.acquire()",),
    ),
    "09 a cluster without pairs": Mistake(
        PAIR,
        "cluster=PAIR",
        "cluster=1",
        TraceError,
        ("cta_group=2 pairs CTAs", "a cluster of 1 has no pairs"),
        ("inputs = ",),
    ),
    "10 asks about the stage in hand": Mistake(
        ASKING,
        "                filled.set(",
        "                    filled.set(",
        UNREADY,
        ("inputs_", "role 'mma' warpgroup", "wgmma"),
        ("ctx.mma(acc",),
    ),
    "10 no wait where the answer is no": Mistake(
        ASKING,
        "acquire_if_needed(filled)",
        "acquire_if_needed(True)",
        UNREADY,
        ("inputs_", "role 'mma' warpgroup", "wgmma"),
        ("ctx.mma(acc",),
    ),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_what_is_left_out_is_named(mistake: Mistake, seed: int, tmp_path: Path) -> None:
    path = plant(mistake.name, mistake.old, mistake.new, tmp_path)
    main = load(path)
    with pytest.raises(mistake.error) as caught:
        main(seed)
    text = str(caught.value)
    for words in mistake.said:
        assert words in text
    for place in mistake.at:
        assert f"{path.name}:{line_of(path, place)}" in text


@pytest.mark.parametrize("seed", range(3))
def test_a_stage_that_is_not_committed_by_hand_is_committed_by_its_release(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    implicit = "# leaving the stage commits its MMAs: they arrive on its empty barrier"
    load(plant(PIPELINED, implicit, "ctx.mma_commit(stage.mbar())", tmp_path))(seed)
    assert "right" in capsys.readouterr().out


def test_at_least_one_mistake_for_each_example() -> None:
    assert {mistake.name for mistake in MISTAKES.values()} == {
        ONE,
        RING,
        TMA,
        BY_HAND,
        PIPELINED,
        GROUPS,
        CLUSTER,
        TMEM,
        PAIR,
        ASKING,
        TURNED,
        CONVERTED,
        CHOSEN,
    }


def test_too_few_bytes_complete_the_phase_early(tmp_path: Path) -> None:
    main = load(plant(GROUPS, EXPECT, "stage.expect_bytes(inputs.stage_bytes // GROUP)", tmp_path))
    with pytest.raises(
        BarrierError, match="phase 0 completes while 32,768 bytes of its copies are still to come"
    ) as caught:
        main(0)
    assert "inputs.full[0]" in str(caught.value)
    assert "Raise the number given to expect_bytes" in str(caught.value)
