"""Kernels around accesses to memory: every type and vector of ld and st in each state space, every
atomic operation and reduction, copies of threads (cp.async), state tokens of mbarriers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np

from tests.ptx.measured.case import Bytes, Case, Part, module
from tests.ptx.measured.forms import values

THREADS = 128
_TYPES = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32",
          "f64")  # fmt: skip


def _bits(kind: str) -> int:
    return int(kind[1:].removesuffix("x2").removeprefix("f")) * (2 if kind.endswith("x2") else 1)


def _bytes(seed: int, count: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def _case(
    name: str, body: list[str], given: Bytes, row: int, parts: tuple[Part, ...], *,
    before: str = "", after: int = 0, start: Bytes | None = None,
) -> Case:  # fmt: skip
    """A kernel whose threads each write `row` bytes at %q1, then all `after` bytes."""
    size = row * THREADS + after
    head = [f"mad.wide.u32 %q1, %t, {row}, %b;"]
    return Case(
        name, module("\n".join([*head, *body]), THREADS, before), given,
        np.zeros(size, np.uint8) if start is None else start, parts, THREADS,
    )  # fmt: skip


def loads_and_stores() -> Iterator[Case]:
    """Bytes go through a type and a vector in a space, into registers of 16 to 64 bits."""
    for number, space in enumerate(("shared", "local", "global", "", "const")):
        body: list[str] = []
        loads, at = 0, 0
        before = ".shared .align 16 .b8 own[8192];" if space in ("shared", "") else ""
        base = {"shared": "%r300", "": "%q3"}.get(space, "%q0")
        if space in ("shared", ""):
            body += ["mov.u32 %r300, own; mad.lo.u32 %r300, %t, 64, %r300;",
                     "cvt.u64.u32 %q3, %r300; cvta.shared.u64 %q3, %q3;"]  # fmt: skip
            into = "shared"
        elif space == "local":
            body += [".local .align 16 .b8 mine[64];", "mov.u64 %q3, mine;"]
            base, into = "%q3", "local"
        elif space == "const":
            words = ", ".join(str(w) for w in _bytes(5, 64).view(np.uint32).tolist())
            before = f".const .align 16 .b32 table[16] = {{{words}}};"
            body += ["mov.u64 %q3, table;"]
            base, into = "%q3", ""
        else:
            into = ""
        body.append("mad.wide.u32 %q0, %t, 64, %a;")
        if into:
            words_ = "".join(
                f"ld.global.b32 %r1, [%q0+{4 * i}]; st.{into}.b32 "
                f"[{base if into != 'shared' else '%r300'}+{4 * i}], %r1;" for i in range(16)
            )  # fmt: skip
            body.append(words_)
        for kind, vector in product(_TYPES, ("", "v2", "v4")):
            count = {"": 1, "v2": 2, "v4": 4}[vector]
            if _bits(kind) * count > 128:
                continue
            floats = kind[0] == "f"
            widths = [_bits(kind)] if floats else [w for w in (16, 32, 64) if w >= _bits(kind)]
            for width in widths:
                letter = {16: "h", 32: "r", 64: "l"}[width] if not floats else "fd"[width == 64]
                names = [f"%{letter}{4 + i}" for i in range(count)]
                place = (loads * 5) % (64 // (_bits(kind) * count // 8)) * (
                    _bits(kind) * count // 8)  # fmt: skip
                target = f"{{{', '.join(names)}}}" if vector else names[0]
                dotted = ".".join(filter(None, ("ld", space, vector, kind)))
                body.append(f"{dotted} {target}, [{base}+{place}];")
                for name in names:
                    stored = kind if floats else f"b{width}"
                    body.append(f"st.global.{stored} [%q1+{at}], {name};")
                    at += 8
                loads += 1
        yield _case(
            f"loads/{space or 'generic'}", body, _bytes(number, 64 * THREADS), at,
            (Part(f"ld{'.' + space if space else ''}", 0, at * THREADS),), before=before,
        )  # fmt: skip
    for space in ("shared", "local", "global", ""):
        yield _stores(space)


def _stores(space: str) -> Case:
    """Each thread's 64 bytes are written by vectors of all types."""
    body = ["mad.wide.u32 %q0, %t, 64, %a;"]
    before = ".shared .align 16 .b8 own[8192];" if space in ("shared", "") else ""
    base = "%q1"
    if space in ("shared", ""):
        body.append("mov.u32 %r300, own; mad.lo.u32 %r300, %t, 64, %r300;"
                    "cvt.u64.u32 %q3, %r300; cvta.shared.u64 %q3, %q3;")  # fmt: skip
        base = "%r300" if space else "%q3"
    elif space == "local":
        body.append(".local .align 16 .b8 mine[64]; mov.u64 %q3, mine;")
        base = "%q3"
    random = Random(space)
    body += [f"ld.global.b32 %r{10 + i}, [%q0+{4 * i}];" for i in range(16)]
    body += [f"ld.global.b64 %l{10 + i}, [%q0+{8 * i}];" for i in range(8)]
    body += [f"ld.global.f32 %f{10 + i}, [%q0+{4 * i}];" for i in range(8)]
    body += [f"ld.global.b16 %h{10 + i}, [%q0+{2 * i}];" for i in range(8)]
    dot = f".{space}" if space else ""
    body += [f"st{dot}.b32 [{base}+{4 * i}], %r{10 + 15 - i};" for i in range(16)]
    for _ in range(40):
        kind, vector = random.choice(_TYPES[:-1]), random.choice(("", "v2", "v4"))
        count = {"": 1, "v2": 2, "v4": 4}[vector]
        nbytes = _bits(kind) * count // 8
        if nbytes > 16:
            continue
        widths = [w for w in (16, 32, 64) if w >= _bits(kind)]
        letter = "f" if kind == "f32" else {16: "h", 32: "r", 64: "l"}[random.choice(widths)]
        names = [f"%{letter}{10 + random.randrange(8)}" for _ in range(count)]
        source = f"{{{', '.join(names)}}}" if vector else names[0]
        place = nbytes * random.randrange(64 // nbytes)
        dotted = ".".join(filter(None, ("st", space, vector, kind)))
        body.append(f"{dotted} [{base}+{place}], {source};")
    if base != "%q1":
        body += [f"ld{dot}.b64 %l1, [{base}+{8 * i}]; st.global.b64 [%q1+{8 * i}], %l1;"
                 for i in range(8)]  # fmt: skip
    return _case(f"stores/{space or 'generic'}", body, _bytes(77, 64 * THREADS), 64,
                 (Part(f"st{dot}", 0, 64 * THREADS),), before=before)  # fmt: skip


# -- atomic operations ------------------------------------------------------------------

_ATOMIC = {
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"), "exch": ("b32", "b64"),
    "inc": ("u32",), "dec": ("u32",), "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "add": ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16", "noftz.f16x2",
            "noftz.bf16x2"),
}  # fmt: skip
_VECTORS = ("add.v2.f32", "add.v4.f32", "add.noftz.v2.f16", "add.noftz.v4.f16", "add.noftz.v8.f16",
            "add.noftz.v2.bf16x2", "add.noftz.v4.f16x2", "min.noftz.v2.f16", "max.noftz.v4.bf16",
            "min.noftz.v2.f16x2", "max.noftz.v4.bf16x2")  # fmt: skip


def atomics() -> Iterator[Case]:
    """Each thread on its own place: what it returns, and what is there then."""
    for space, opcode in product(("global", "shared", ""), ("atom", "red")):
        names = [f"{op}.{kind}" for op, kinds in _ATOMIC.items() for kind in kinds]
        names += [n for n in _VECTORS if space == "global"]
        if opcode == "red":
            names = [n for n in names if n.split(".")[0] not in ("cas", "exch")]
        for begin in range(0, len(names), 8):
            yield _atomic(f"atomics/{opcode}-{space or 'generic'}-{begin // 8}", opcode, space,
                          names[begin : begin + 8])  # fmt: skip


def _atomic(name: str, opcode: str, space: str, forms: list[str]) -> Case:
    body: list[str] = []
    columns: list[Bytes] = []
    before = ".shared .align 16 .b8 own[2048];" if space != "global" else ""
    if space != "global":
        body.append("mov.u32 %r300, own; mad.lo.u32 %r300, %t, 16, %r300;"
                    "cvt.u64.u32 %q3, %r300; cvta.shared.u64 %q3, %q3;")  # fmt: skip
    at = 0
    orders = ("", "relaxed.gpu.", "acq_rel.cta.", "acquire.sys.", "release.cluster.")
    for number, form in enumerate(forms):
        kind = form.rsplit(".", 1)[1]
        vector = next((int(m[1:]) for m in form.split(".") if m in ("v2", "v4", "v8")), 1)
        width = _bits(kind if not kind.startswith("b") or kind[:2] != "bf" else
                      ("f16x2" if kind == "bf16x2" else "f16"))  # fmt: skip
        letter = (
            "f" if kind == "f32" else "d" if kind == "f64" else {16: "h", 32: "r", 64: "l"}[width]
        )
        # what is there, then the operands: columns of 16 bytes
        for slot in range(3):
            columns.append(_column(kind, vector, slot + 3 * number))
        column = 48 * number
        loads = []
        for slot in range(2):
            for i in range(vector):
                move = {"f": "f32", "d": "f64"}.get(letter, f"b{width}")
                loads.append(f"ld.global.{move} %{letter}{(1 + 8 * slot + i) % 19 + 1}, "
                             f"[%q0+{column + 16 * (1 + slot) + i * width // 8}];")  # fmt: skip
        where = {"global": "%q2", "shared": "%r300", "": "%q3"}[space]
        dot = f".{space}" if space else ""
        body += [
            f"add.u64 %q2, %q1, {at};",
            f"ld.global.v2.b64 {{%l1, %l2}}, [%q0+{column}];",
            f"st{dot}.v2.b64 [{where}], {{%l1, %l2}};", *loads,
        ]  # fmt: skip
        into = [f"%{letter}{(1 + 20 + i) % 19 + 1}" if letter == "d" else f"%{letter}{21 + i}"
                for i in range(vector)]  # fmt: skip
        operands = []
        for slot in range(2 if ".cas." in f".{form}" else 1):
            names = [f"%{letter}{(1 + 8 * slot + i) % 19 + 1}" for i in range(vector)]
            operands.append(f"{{{', '.join(names)}}}" if vector > 1 else names[0])
        order = orders[number % (5 if opcode == "atom" else 2)]
        if vector > 1:
            order = ""
        order = order.rstrip(".")
        head = ".".join(filter(None, (opcode, order, space, form)))
        if opcode == "atom":
            target = f"{{{', '.join(into)}}}" if vector > 1 else into[0]
            body.append(f"{head} {target}, [{where}], {', '.join(operands)};")
        else:
            body.append(f"{head} [{where}], {', '.join(operands)};")
        body.append(f"ld{dot}.v2.b64 {{%l1, %l2}}, [{where}];")
        body.append(f"st.global.v2.b64 [%q1+{at}], {{%l1, %l2}};")
        if opcode == "atom":
            move = {"f": "f32", "d": "f64"}.get(letter, f"b{width}")
            body += [f"st.global.{move} [%q1+{at + 16 + i * width // 8}], {n};"
                     for i, n in enumerate(into)]  # fmt: skip
        at += 32
    body.insert(0, f"mad.wide.u32 %q0, %t, {48 * len(forms)}, %a;")
    body = [line.replace("ROW", str(at)) for line in body]
    given = np.concatenate([c.reshape(THREADS, 16) for c in columns], axis=1)
    dot = f".{space}" if space else ""
    return _case(name, body, np.ascontiguousarray(given).reshape(-1), at,
                 (Part(f"{opcode}{dot}", 0, at * THREADS),), before=before)  # fmt: skip


def _column(kind: str, vector: int, slot: int) -> Bytes:
    """16 bytes of each thread: small numbers of the type, or of inc, dec and cas equal ones."""
    if kind in ("u32", "s32", "u64", "s64", "b16", "b32", "b64"):
        random = Random(slot)
        found = np.zeros((THREADS, 16), np.uint8)
        column = values(kind, slot).copy()
        close = np.array([random.randrange(0, 4) for _ in range(THREADS)], np.uint64)
        column = np.where(np.arange(THREADS) % 2 == 0, close, column)
        found[:, :8] = column[:, None].view(np.uint8)
        return found
    base = kind.removesuffix("x2")
    width = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[base]
    found = np.zeros((THREADS, 16), np.uint8)
    for i in range(16 // width):
        column = values(base, 40 + 9 * slot + i)
        if base == "f64":  # which NaN a sum of doubles is, nothing says
            column = np.where(np.isnan(column.view(np.float64)), 0, column)
        found[:, width * i : width * (i + 1)] = column[:, None].view(np.uint8)[:, :width]
    return found


def shared_sums() -> Iterator[Case]:
    """Operations that all threads make on one word, in any order."""
    forms = ["add.u32", "add.u64", "min.s32", "max.u32", "min.u64", "max.s64", "and.b32", "or.b64",
             "xor.b32"]  # fmt: skip
    for space in ("global", "shared"):
        body = ["mad.wide.u32 %q0, %t, 8, %a;", "ld.global.b64 %l1, [%q0]; cvt.u32.u64 %r1, %l1;"]
        before = ".shared .align 8 .b64 words[16];" if space == "shared" else ""
        base = "%r300" if space == "shared" else "%b"
        if space == "shared":
            body += ["mov.u32 %r300, words; setp.ne.u32 %p1, %t, 0; mov.b64 %l2, 12345;"]
            body += [f"@!%p1 st.shared.b64 [%r300+{8 * i}], %l2;" for i in range(len(forms))]
            body += ["bar.sync 0;"]
        body += [f"red.{space}.{form} [{base}+{8 * i}], %{'l' if '64' in form else 'r'}1;"
                 for i, form in enumerate(forms)]  # fmt: skip
        if space == "shared":
            body += ["bar.sync 0;", "@%p1 bra DONE;"]
            body += [f"ld.shared.b64 %l3, [%r300+{8 * i}]; st.global.b64 [%b+{8 * i}], %l3;"
                     for i in range(len(forms))]  # fmt: skip
            body += ["DONE:"]
        size = 8 * len(forms)
        yield Case(
            f"atomics/together-{space}", module("\n".join(body), THREADS, before),
            values("b64", 3).view(np.uint8), np.full(size, 7, np.uint8),
            (Part(f"red.{space} of all threads", 0, size),), THREADS,
        )  # fmt: skip


# -- copies of threads, barriers ---------------------------------------------------------


def thread_copies() -> Iterator[Case]:
    """cp.async of all sizes, with the size or a predicate that says how much is read."""
    random = Random(3)
    body = [
        "mov.u32 %r300, own; mad.lo.u32 %r300, %t, 256, %r300; mad.wide.u32 %q0, %t, 256, %a;",
        "mov.b32 %r1, 0x5a5a5a5a;",
        *(f"st.shared.b32 [%r300+{4 * i}], %r1;" for i in range(64)),
        "and.b32 %r2, %t, 15; setp.lt.u32 %p1, %r2, 7; and.b32 %r3, %t, 3;",
        "and.b32 %r4, %t, 7;",
    ]
    forms = [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)]
    for number in range(16):
        kind, nbytes = forms[number % 4]
        extra = ["", f", {random.randrange(nbytes + 1)}", ", %p1",
                 f", {'%r3' if nbytes == 4 else '%r4' if nbytes == 8 else '%r2'}",
                 ][number // 4]  # fmt: skip
        source = 16 * random.randrange(16)
        body.append(f"cp.async.{kind}.shared.global [%r300+{16 * number}], [%q0+{source}],"
                    f" {nbytes}{extra};")  # fmt: skip
        if number % 3 == 2:
            body.append("cp.async.commit_group;")
    body += ["cp.async.commit_group;", "cp.async.wait_group 0;"]
    body += [f"ld.shared.v2.b64 {{%l1, %l2}}, [%r300+{16 * i}];"
             f"st.global.v2.b64 [%q1+{16 * i}], {{%l1, %l2}};" for i in range(16)]  # fmt: skip
    yield _case("copies/cp.async", body, _bytes(9, 256 * THREADS), 256,
                (Part("cp.async", 0, 256 * THREADS),),
                before=".shared .align 16 .b8 own[32768];")  # fmt: skip


def tokens() -> Iterator[Case]:
    """State tokens of mbarriers: what is pending, and which phases tests see."""
    for seed in range(6):
        random = Random(seed)
        count = random.randint(2, 6)
        body = [
            "setp.ne.u32 %p1, %t, 0;", "@%p1 bra DONE;", "mov.u32 %r300, bar;",
            f"mbarrier.init.shared.b64 [%r300], {count};",
        ]  # fmt: skip
        at = 0
        pending, held, phase = count, 0, 0
        for _ in range(24):
            what = random.random()
            if what < 0.45:
                n = random.randint(1, pending) if what < 0.3 else 1
                form = random.choice(["", ".release.cta"])
                name = "arrive" if random.random() < 0.8 or pending < 2 else "arrive.noComplete"
                if name.endswith("noComplete"):
                    n, form = random.randint(1, pending - 1), ""
                body.append(f"mbarrier.{name}{form}.shared.b64 %l{held % 5 + 1}, [%r300], {n};")
                held += 1
                pending -= n
                if not pending:  # each phase is waited for in turn
                    body += [f"mbarrier.test_wait.parity.shared.b64 %p2, [%r300], {phase & 1};",
                             f"selp.b32 %r1, 1, 0, %p2; st.global.b32 [%b+{at}], %r1;"]  # fmt: skip
                    at += 4
                    phase += 1
                    pending = count
            elif held and what < 0.7:
                token = random.randrange(max(0, held - 5), held) % 5 + 1
                body += [f"mbarrier.pending_count.b64 %r1, %l{token};",
                         f"st.global.b32 [%b+{at}], %r1;"]  # fmt: skip
                at += 4
            elif held and what < 0.85:
                token = (held - 1) % 5 + 1
                body += [f"mbarrier.test_wait.shared.b64 %p2, [%r300], %l{token};",
                         f"selp.b32 %r1, 1, 0, %p2; st.global.b32 [%b+{at}], %r1;"]  # fmt: skip
                at += 4
            else:
                body += [f"mbarrier.test_wait.parity.shared.b64 %p2, [%r300], {phase & 1};",
                         f"selp.b32 %r1, 1, 0, %p2; st.global.b32 [%b+{at}], %r1;"]  # fmt: skip
                at += 4
        body.append("DONE:")
        yield Case(
            f"barriers/tokens-{seed}", module("\n".join(body), 32, ".shared .align 8 .b64 bar;"),
            np.zeros(8, np.uint8), np.zeros(at, np.uint8), (Part("mbarrier", 0, at),), 32,
        )  # fmt: skip


def cases() -> Iterator[Case]:
    yield from loads_and_stores()
    yield from atomics()
    yield from shared_sums()
    yield from thread_copies()
    yield from tokens()
