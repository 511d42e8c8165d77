"""Kernels around TMA: tensor copies by random maps (dimensions, boxes, swizzles, traversal strides,
what lies out of bounds), reductions, bulk copies, multicast in a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import ml_dtypes
import numpy as np

from tests.ptx.measured.case import Array, Bytes, Case, Map, Part, module
from tilepipe.machine.memory.tensor_map import BY_NAME, ELEMENTS, TensorMapFields

THREADS = 128
MEMORY = 32768  # bytes of shared memory that are written out
_BEFORE = ".extern .shared .align 1024 .b8 memory[]; .shared .align 8 .b64 bar;"
_ELEMENTS = ("u8", "u16", "u32", "s32", "u64", "f16", "f32", "bf16", "f64", "tf32", "f32.ftz",
             "tf32.ftz")  # fmt: skip
_REDUCED = [
    ("add", ("u32", "s32", "u64", "f32", "f16", "bf16")),
    ("min", ("u32", "s32", "u64", "f16", "bf16")), ("max", ("u32", "s32", "u64", "f16", "bf16")),
    ("inc", ("u32",)), ("dec", ("u32",)), ("and", ("u32", "s32", "u64")),
    ("or", ("u32", "u64")), ("xor", ("u32", "s32", "u64")),
]  # fmt: skip


def _values(kind: str, nbytes: int, seed: int) -> Bytes:
    """Bytes of small numbers of a type, where sums must be exact; else any."""
    rng = np.random.default_rng(seed)
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}.get(kind)
    if dtype is None:
        return rng.integers(0, 256, nbytes, dtype=np.uint8)
    found: Array = (rng.integers(-64, 65, nbytes) / 8).astype(dtype)
    return found.view(np.uint8)[:nbytes].copy()


def _map(random: Random, kind: str, *, most: int, stores: bool) -> tuple[TensorMapFields, int]:
    """A map and the bytes of memory that its tensor spans."""
    bits = ELEMENTS[BY_NAME[kind]].bits
    while True:
        rank = random.randint(1, 5)
        swizzle = random.choice([0, 0, 1, 2, 3])
        span = (0, 32, 64, 128)[swizzle]
        units = random.randint(1, span // 16) if span else random.randint(1, 12)
        if swizzle and stores:
            units = span // 16  # of narrower rows nothing says what a store reads
        box = [units * 128 // bits, *(random.choice([1, 2, 3, 5, 8, 9]) for _ in range(rank - 1))]
        shape = [random.randint(1, 300), *(random.randint(1, 12) for _ in range(rank - 1))]
        steps = [1] * rank
        if not stores and random.random() < 0.4:
            steps = [1, *(random.choice([1, 1, 2, 3]) for _ in range(rank - 1))]
        strides, width = [], -(-shape[0] * bits // 128) * 16
        for n in shape[1:]:
            width += 16 * random.choice([0, 0, 1, 3])
            strides.append(width)
            width *= n
        map_ = TensorMapFields(
            BY_NAME[kind], 0, tuple(shape), tuple(strides), tuple(box), tuple(steps),
            swizzle=swizzle,
            nan=not stores and kind in ("f16", "f32", "bf16") and random.random() < 0.4,
        )  # fmt: skip
        if box[0] <= 256 and not map_.broken_rule() and map_.smem_bytes <= most and width < 1 << 16:
            return map_, max(width, 16)


def _coordinates(random: Random, map_: TensorMapFields, *, stores: bool = False) -> list[int]:
    """Of a box that may lie out of bounds. An H100 wants its first byte to be at a multiple of 16
    in its row, and takes no store that starts before the tensor.
    """
    found = [random.randint(0 if stores else -n, s) if random.random() < 0.6
             else random.randint(0, s - 1)
             for n, s in zip(map_.box, map_.shape, strict=True)]  # fmt: skip
    found[0] -= found[0] % (128 // map_.bits)
    return found


_FILL = [
    f"mov.u32 %r300, memory; mad.lo.u32 %r301, %t, {MEMORY // THREADS}, %r300;",
    "mov.u32 %r302, bar; setp.ne.u32 %p1, %t, 0; mov.b32 %r1, 0;",
    f"mad.wide.u32 %q0, %t, {MEMORY // THREADS}, %a;",
    "LOOP: ld.global.v2.b64 {%l1, %l2}, [%q0]; st.shared.v2.b64 [%r301], {%l1, %l2};",
    "add.u64 %q0, %q0, 16; add.u32 %r301, %r301, 16; add.u32 %r1, %r1, 16;",
    f"setp.lt.u32 %p2, %r1, {MEMORY // THREADS}; @%p2 bra LOOP;",
    "@!%p1 mbarrier.init.shared::cta.b64 [%r302], 1;",
    "fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;",
]
_WAIT = ["WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r302], 0; @!%p3 bra WAIT;"]
_DUMP = [
    "bar.sync 0; mov.b32 %r1, 0;",
    f"mad.lo.u32 %r301, %t, {MEMORY // THREADS}, %r300;",
    f"mad.wide.u32 %q1, %t, {MEMORY // THREADS}, %b;",
    "COPY: ld.shared.v2.b64 {%l1, %l2}, [%r301]; st.global.v2.b64 [%q1], {%l1, %l2};",
    "add.u64 %q1, %q1, 16; add.u32 %r301, %r301, 16; add.u32 %r1, %r1, 16;",
    f"setp.lt.u32 %p2, %r1, {MEMORY // THREADS}; @%p2 bra COPY;",
]
_MAP = ["mov.b64 %q4, m0; cvta.param.u64 %q4, %q4;"]


def _loads(seed: int) -> Case:
    random = Random(seed)
    kind = _ELEMENTS[seed % len(_ELEMENTS)]
    map_, width = _map(random, kind, most=MEMORY, stores=False)
    coords = _coordinates(random, map_)
    body = [
        *_FILL, *_MAP, "@%p1 bra DONE;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 %l5, [%r302], {map_.nbytes};",
        f"cp.async.bulk.tensor.{map_.rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        f" [%r300], [%q4, {{{', '.join(map(str, coords))}}}], [%r302];",
        "DONE:", *_WAIT, *_DUMP,
    ]  # fmt: skip
    given = np.concatenate([
        np.full(MEMORY, 0x5A, np.uint8),
        np.random.default_rng(seed).integers(0, 256, width, np.uint8),
    ])  # fmt: skip
    return Case(
        f"copies/load-{seed}", module("\n".join(body), THREADS, _BEFORE, maps=1), given,
        np.zeros(MEMORY, np.uint8), (Part(f"tensor load {kind}", 0, MEMORY),), THREADS,
        smem=MEMORY, maps=(Map(map_, "a", MEMORY),),
    )  # fmt: skip


def _stores(seed: int) -> Case:
    random = Random(9000 + seed)
    if seed % 2:
        operation, kinds = _REDUCED[seed // 2 % len(_REDUCED)]
        kind = random.choice(kinds)
        form = f"cp.reduce.async.bulk.tensor.{{}}d.global.shared::cta.{operation}.bulk_group"
    else:
        kind = _ELEMENTS[seed // 2 % 9]
        operation, form = "", "cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group"
    map_, width = _map(random, kind, most=MEMORY, stores=True)
    coords = _coordinates(random, map_, stores=True)
    body = [
        *_FILL, *_MAP, "@%p1 bra DONE;",
        f"{form.format(map_.rank)} [%q4, {{{', '.join(map(str, coords))}}}], [%r300];",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", "DONE:",
    ]  # fmt: skip
    return Case(
        f"copies/store-{seed}", module("\n".join(body), THREADS, _BEFORE, maps=1),
        _values(kind, MEMORY, seed), _values(kind, width, seed + 1),
        (Part(f"tensor {operation or 'store'} {kind}", 0, width),), THREADS, smem=MEMORY,
        maps=(Map(map_, "b", 0),),
    )  # fmt: skip


_BULK = [
    ("add", ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16")),
    ("min", ("u32", "s32", "u64", "s64", "f16", "bf16")),
    ("max", ("u32", "s32", "u64", "s64", "f16", "bf16")), ("inc", ("u32",)), ("dec", ("u32",)),
    ("and", ("b32", "b64")), ("or", ("b32", "b64")), ("xor", ("b32", "b64")),
]  # fmt: skip


def _bulk(seed: int) -> Case:
    """To shared memory, and back to other places, with a reduction or without."""
    random = Random(seed)
    nbytes = 16 * random.randint(1, 60)
    source, at, to = (16 * random.randrange(20) for _ in range(3))
    operation, kinds = _BULK[seed % len(_BULK)]
    kind = random.choice(kinds)
    base = kind.rsplit(".", 1)[-1]
    store = (f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind}"
             if seed % 3 else "cp.async.bulk.global.shared::cta.bulk_group")  # fmt: skip
    body = [
        *_FILL, "@%p1 bra DONE;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 %l5, [%r302], {nbytes};",
        f"add.u64 %q2, %a, {MEMORY + source}; add.u32 %r2, %r300, {at}; add.u64 %q3, %b, {to};",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%q2],"
        f" {nbytes}, [%r302];",
        "DONE:", *_WAIT, "@%p1 bra END;", f"{store} [%q3], [%r2], {nbytes};",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", "END:",
    ]  # fmt: skip
    if base == "f64":
        given = (np.arange((MEMORY + 2048) // 8) % 37).astype(np.float64).view(np.uint8)
        before = (np.arange(256) % 11).astype(np.float64).view(np.uint8)
    else:
        given, before = _values(base, MEMORY + 2048, seed), _values(base, 2048, seed + 1)
    return Case(
        f"copies/bulk-{seed}", module("\n".join(body), THREADS, _BEFORE), given, before.copy(),
        (Part(f"bulk {operation if seed % 3 else 'store'} {kind}", 0, 2048),), THREADS, smem=MEMORY,
    )  # fmt: skip


def _multicast(seed: int) -> Case:
    """CTA 1 of a cluster of four sends parts of a tensor to some of them."""
    random = Random(400 + seed)
    kind = random.choice(["u8", "u16", "f32"])
    map_, width = _map(random, kind, most=MEMORY // 4, stores=False)
    coords = _coordinates(random, map_)
    mask = random.randrange(1, 16)
    each = MEMORY // 4
    body = [
        *_FILL, *_MAP, "mov.u32 %r10, %cluster_ctarank;",
        f"@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %l5, [%r302], {map_.nbytes};",
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        f"setp.ne.u32 %p4, %r10, 1; or.pred %p4, %p4, %p1; mov.b16 %h1, {mask};",
        "@%p4 bra DONE;",
        f"cp.async.bulk.tensor.{map_.rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        f".multicast::cluster [%r300], [%q4, {{{', '.join(map(str, coords))}}}], [%r302], %h1;",
        "DONE:", f"shr.u32 %r11, {mask}, %r10; and.b32 %r11, %r11, 1; setp.eq.u32 %p5, %r11, 0;",
        "@%p5 bra NOT;", *_WAIT, "NOT:",
        f"bar.sync 0; mad.lo.u32 %r301, %t, {each // THREADS}, %r300; mov.b32 %r1, 0;",
        f"mad.lo.u32 %r12, %r10, {THREADS}, %t; mad.wide.u32 %q1, %r12, {each // THREADS}, %b;",
        "COPY: ld.shared.v2.b64 {%l1, %l2}, [%r301]; st.global.v2.b64 [%q1], {%l1, %l2};",
        "add.u64 %q1, %q1, 16; add.u32 %r301, %r301, 16; add.u32 %r1, %r1, 16;",
        f"setp.lt.u32 %p2, %r1, {each // THREADS}; @%p2 bra COPY;",
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    ]  # fmt: skip
    given = np.concatenate([
        np.full(MEMORY, 0x5A, np.uint8),
        np.random.default_rng(seed).integers(0, 256, width, np.uint8),
    ])  # fmt: skip
    return Case(
        f"copies/multicast-{seed}",
        module("\n".join(body), THREADS, _BEFORE, maps=1, cluster=4), given,
        np.zeros(MEMORY, np.uint8), (Part("tensor load multicast", 0, MEMORY),), THREADS, cluster=4,
        smem=MEMORY, maps=(Map(map_, "a", MEMORY),),
    )  # fmt: skip


def probes() -> Iterator[Case]:
    """Copies of which an H100 is said to refuse each: the first byte of a box at another place than
    a multiple of 16 in its row, a store that starts before the tensor.
    """
    for number, (stores, coords) in enumerate(
        [(False, (1, 0)), (False, (-3, 0)), (False, (8, 0)), (True, (1, 0)), (True, (-8, 0)),
         (True, (0, -1)), (True, (8, 1))]
    ):  # fmt: skip
        map_ = TensorMapFields(BY_NAME["f16"], 0, (64, 16), (512,), (16, 8))
        text = ", ".join(map(str, coords))
        if stores:
            ops = [f"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%q4, {{{text}}}],"
                   " [%r300]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
                   "DONE:"]  # fmt: skip
        else:
            ops = [f"mbarrier.arrive.expect_tx.shared::cta.b64 %l5, [%r302], {map_.nbytes};",
                   "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                   f" [%r300], [%q4, {{{text}}}], [%r302];", "DONE:", *_WAIT, *_DUMP]  # fmt: skip
        body = [*_FILL, *_MAP, "@%p1 bra DONE;", *ops]
        given = _values("u8", MEMORY + 8192, 1)
        yield Case(
            f"probes/{'store' if stores else 'load'}-{number} at {text}",
            module("\n".join(body), THREADS, _BEFORE, maps=1), given,
            np.zeros(MEMORY, np.uint8), (Part("probe", 0, MEMORY),), THREADS, smem=MEMORY,
            maps=(Map(map_, "b" if stores else "a", 0 if stores else MEMORY),),
        )  # fmt: skip


def cases() -> Iterator[Case]:
    for seed in range(120):
        yield _loads(seed)
    for seed in range(120):
        yield _stores(seed)
    for seed in range(48):
        yield _bulk(seed)
    for seed in range(12):
        yield _multicast(seed)
