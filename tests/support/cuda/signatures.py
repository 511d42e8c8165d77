"""What the PTX ISA says of each instruction that a wrapper prints: its modifiers, the order of its
operands, and their types.

A row has the wrapper's parameters in the order in which the printer passes them, each with the
ISA's name of the operand that it is; the syntax, in the ISA's names; and the section that defines
it. What the compiler must be told follows from what the instruction does: it clobbers memory if it
reads or writes memory that C++ code touches, or orders such accesses; it is volatile unless it only
computes.
"""

from __future__ import annotations

from dataclasses import dataclass

# The ISA's name of an operand -> its C++ type.
TYPES = {
    # tcgen05: addresses of tensor memory, 64-bit shared-memory descriptors, a 32-bit instruction
    # descriptor
    "d-tmem": "u32",
    "a-tmem": "u32",
    "a-desc": "u64",
    "b-desc": "u64",
    "idesc": "u32",
    "enable-input-d": "u32",
    "scale-A-tmem": "u32",
    "scale-B-tmem": "u32",
    "taddr": "u32",
    "nCols": "u32",
    "s-desc": "u64",
    "scale-d": "i32",
    # mbarriers, copies, barriers
    "mbar": "u32",
    "addr": "u32",
    "count": "u32",
    "txCount": "u32",
    "phaseParity": "u32",
    "waitComplete": "u32",
    "dstMem": "u32",
    "cache-policy": "u64",
    "srcMem": "u32",
    "tensorMap": "const TensorMap&",
    "ctaMask": "u16",
    "membermask": "u32",
    "predicate": "u32",
    "barrier": "u32",
    "threads": "u32",
    "cta": "u32",
    "dst": "u32",
    "try-cancel-response": "u32",
    "imm-reg-count": "",
    "N": "",
    "row": "u32",
    "x": "u32",
    "y": "u32",
    "z": "u32",
    "w": "u32",
    "old": "u32",
    "signed-old": "i32",
    "value": "u32",
    "signed": "i32",
    "global-i32": "i32*",
    "global-u32": "u32*",
    "time": "u64",
    "word": "u64",
    "expected": "u32",
    "next": "u32",
    "f": "float",
    "g": "float",
    "out-f": "float",
    "ref-f": "float&",
    "ref-g": "float&",
    "ref-x": "u32&",
    "ref-y": "u32&",
    "ref-z": "u32&",
    "ref-w": "u32&",
    "h": "u16",
    "h2": "u16",
    "byte": "u8",
    **{f"c{i}": "i32" for i in range(5)},
}
CONSTRAINTS = {
    "u32": "r",
    "i32": "r",
    "u64": "l",
    "i64": "l",
    "u16": "h",
    "float": "f",
    "double": "d",
    "float&": "f",
    "u32&": "r",
    "const TensorMap&": "l",
    **{f"{t}*": "l" for t in ("i32", "u32", "i64", "u64", "u16", "float", "double")},
    "": "n",
}


@dataclass(frozen=True)
class Signature:
    """What a wrapper prints.

    Attributes:
        parameters: `name:operand` of each parameter, in order; `name:operand:type` where the
            operand has no type of its own.
        locals: the same of variables of the function that are operands, `=` before those that are
            written.
        syntax: the instructions of its asm statements. section: of the PTX ISA.
        memory, volatile: what the compiler must be told.
    """

    parameters: str
    locals: str
    syntax: tuple[str, ...]
    section: str
    memory: bool = True
    volatile: bool = True


def _row(
    parameters: str,
    syntax: str | tuple[str, ...],
    section: str,
    locals: str = "",
    memory: bool = True,
    volatile: bool = True,
) -> Signature:
    return Signature(
        parameters,
        locals,
        (syntax,) if isinstance(syntax, str) else syntax,
        section,
        memory,
        volatile,
    )


def _pure(parameters: str, syntax: str, section: str, locals: str) -> Signature:
    """An instruction that computes from its operands alone."""
    return _row(parameters, syntax, section, locals, memory=False, volatile=False)


def _of_both_groups() -> dict[str, Signature]:
    """tcgen05 instructions that have .cta_group."""
    found: dict[str, Signature] = {}
    for n, suffix in ((1, ""), (2, "_pair")):
        group = f"cta_group::{n}"
        arrive = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
        rows = {
            "tmem_alloc": _row(
                "dst:dst columns:nCols",
                f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [dst], nCols",
                "tcgen05.alloc",
            ),
            "tmem_dealloc": _row(
                "address:taddr columns:nCols",
                f"tcgen05.dealloc.{group}.sync.aligned.b32 taddr, nCols",
                "tcgen05.dealloc",
            ),
            "tmem_relinquish": _row(
                "",
                f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned",
                "tcgen05.relinquish_alloc_permit",
            ),
            "tmem_copy_128x128b": _row(
                "dst:taddr src:s-desc", f"tcgen05.cp.{group}.128x128b [taddr], s-desc", "tcgen05.cp"
            ),
            "tmem_copy_32x128b_warpx4": _row(
                "dst:taddr src:s-desc",
                f"tcgen05.cp.{group}.32x128b.warpx4 [taddr], s-desc",
                "tcgen05.cp",
            ),
            "tcgen05_commit": _row("bar:mbar", f"{arrive}.b64 [mbar]", "tcgen05.commit"),
            "tcgen05_commit_multicast": _row(
                "bar:mbar ctas:ctaMask",
                f"{arrive}.multicast::cluster.b64 [mbar], ctaMask",
                "tcgen05.commit, .multicast::cluster",
            ),
        }
        mma = f"tcgen05.mma.{group}.kind"
        plain = "a:a-desc b:b-desc shape:idesc accumulate:enable-input-d"
        for kind in ("f16", "tf32", "f8f6f4"):
            rows[f"tcgen05_mma_{kind}"] = _row(
                f"d:d-tmem {plain}",
                f"{mma}::{kind} [d-tmem], a-desc, b-desc, idesc, enable-input-d",
                "tcgen05.mma, without block scaling",
            )
        rows["tcgen05_mma_f16_tmem_a"] = _row(
            f"d:d-tmem {plain.replace('a-desc', 'a-tmem')}",
            f"{mma}::f16 [d-tmem], [a-tmem], b-desc, idesc, enable-input-d",
            "tcgen05.mma, A in tensor memory",
        )
        for kind, block in (("mxf8f6f4", 32), ("mxf4", 32), ("mxf4nvf4", 16)):
            rows[f"tcgen05_mma_{kind}"] = _row(
                "d:d-tmem a:a-desc b:b-desc shape:idesc sfa:scale-A-tmem "
                "sfb:scale-B-tmem accumulate:enable-input-d",
                f"{mma}::{kind}.block_scale.block{block} [d-tmem], a-desc, b-desc, "
                "idesc, [scale-A-tmem], [scale-B-tmem], enable-input-d",
                "tcgen05.mma, with block scaling",
            )
        found |= {name + suffix: row for name, row in rows.items()}
    return found


def _copies() -> dict[str, Signature]:
    """TMA: coordinates innermost first, which the wrappers number."""
    found = {}
    for rank in range(1, 6):
        given, coords = (
            " ".join(f"c{i}:c{i}" for i in range(rank)),
            "{" + ", ".join(f"c{i}" for i in range(rank)) + "}",
        )
        load = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        for suffix, group in (("", ""), ("_pair", ".cta_group::2")):
            section = "cp.async.bulk.tensor, .mbarrier::complete_tx::bytes" + (
                ", .cta_group" if group else ""
            )
            found[f"tma_load{suffix}_{rank}d"] = _row(
                f"dst:dstMem map:tensorMap bar:mbar {given}",
                f"{load}{group} [dstMem], [tensorMap, {coords}], [mbar]",
                section,
            )
            found[f"tma_load_multicast{suffix}_{rank}d"] = _row(
                f"dst:dstMem map:tensorMap bar:mbar ctas:ctaMask {given}",
                f"{load}.multicast::cluster{group} [dstMem], [tensorMap, {coords}], "
                "[mbar], ctaMask",
                section + ", .multicast::cluster",
            )
            found[f"tma_load{suffix}_hinted_{rank}d"] = _row(
                f"dst:dstMem map:tensorMap bar:mbar policy:cache-policy {given}",
                f"{load}{group}.L2::cache_hint [dstMem], [tensorMap, {coords}], [mbar],"
                " cache-policy",
                section + ", .L2::cache_hint",
            )
            found[f"tma_load_multicast{suffix}_hinted_{rank}d"] = _row(
                f"dst:dstMem map:tensorMap bar:mbar ctas:ctaMask policy:cache-policy {given}",
                f"{load}.multicast::cluster{group}.L2::cache_hint [dstMem], [tensorMap, {coords}], "
                "[mbar], ctaMask, cache-policy",
                section + ", .multicast::cluster, .L2::cache_hint",
            )
        found[f"tma_store_{rank}d"] = _row(
            f"map:tensorMap src:srcMem {given}",
            f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [tensorMap, "
            f"{coords}], [srcMem]",
            "cp.async.bulk.tensor, .bulk_group",
        )
        for operation in ("add", "min", "max", "and", "or", "xor"):
            found[f"tma_reduce_{operation}_{rank}d"] = _row(
                f"map:tensorMap src:srcMem {given}",
                f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.tile.bulk_group"
                f" [tensorMap, {coords}], [srcMem]",
                "cp.reduce.async.bulk.tensor",
            )
    return found


def _mbarriers() -> dict[str, Signature]:
    own, far = "shared::cta.b64", "shared::cluster.b64"
    arrive, expect = "mbarrier.arrive", "mbarrier.expect_tx operation"
    return {
        "mbarrier_init": _row(
            "bar:mbar count:count", f"mbarrier.init.{own} [mbar], count", "mbarrier.init"
        ),
        "mbarrier_inval": _row("bar:mbar", f"mbarrier.inval.{own} [mbar]", "mbarrier.inval"),
        "arrive": _row("bar:mbar", f"mbarrier.arrive.{own} _, [mbar]", arrive),
        "arrive_n": _row("bar:mbar count:count", f"mbarrier.arrive.{own} _, [mbar], count", arrive),
        "arrive_expect_tx": _row(
            "bar:mbar bytes:txCount", f"mbarrier.arrive.expect_tx.{own} _, [mbar], txCount", arrive
        ),
        "arrive_expect_tx_remote": _row(
            "remote_bar:mbar bytes:txCount",
            f"mbarrier.arrive.expect_tx.release.cluster.{far} _, [mbar], txCount",
            arrive,
        ),
        "arrive_expect_tx_remote_relaxed": _row(
            "remote_bar:mbar bytes:txCount",
            f"mbarrier.arrive.expect_tx.{far} _, [mbar], txCount",
            arrive,
        ),
        "expect_tx": _row(
            "bar:mbar bytes:txCount",
            f"mbarrier.expect_tx.relaxed.cta.{own} [mbar], txCount",
            expect,
        ),
        "expect_tx_remote": _row(
            "remote_bar:mbar bytes:txCount",
            f"mbarrier.expect_tx.relaxed.cluster.{far} [mbar], txCount",
            expect,
        ),
        "complete_tx": _row(
            "bar:mbar bytes:txCount",
            f"mbarrier.complete_tx.relaxed.cta.{own} [mbar], txCount",
            "mbarrier.complete_tx",
        ),
        "complete_tx_remote": _row(
            "remote_bar:mbar bytes:txCount",
            f"mbarrier.complete_tx.relaxed.cluster.{far} [mbar], txCount",
            "mbarrier.complete_tx",
        ),
        "try_wait": _row(
            "bar:mbar parity:phaseParity",
            f"mbarrier.try_wait.parity.{own} waitComplete, [mbar], phaseParity",
            "mbarrier.try_wait",
            "=done:waitComplete",
        ),
        "try_wait_cluster": _row(
            "bar:mbar parity:phaseParity",
            f"mbarrier.try_wait.parity.acquire.cluster.{own} waitComplete, [mbar], phaseParity",
            "mbarrier.try_wait",
            "=done:waitComplete",
        ),
    }


def _remote_arrivals() -> dict[str, Signature]:
    """Arrivals at a barrier of another CTA, which differ in what they publish."""
    found = {}
    for name, semantics in (("arrive_remote", ".release.cluster"), ("arrive_remote_relaxed", "")):
        for suffix, given, operand in (("", "", ""), ("_n", " count:count", ", count")):
            syntax = f"mbarrier.arrive{semantics}.shared::cluster.b64 _, [mbar]{operand}"
            found[name + suffix] = _row(f"remote_bar:mbar{given}", syntax, "mbarrier.arrive")
    return found


def _without_operands() -> dict[str, Signature]:
    """Instructions that order others, or speak of all of a thread's."""
    syntax = {
        "tmem_wait_load": ("tcgen05.wait::ld.sync.aligned", "tcgen05.wait"),
        "tmem_wait_store": ("tcgen05.wait::st.sync.aligned", "tcgen05.wait"),
        "tcgen05_fence_before": ("tcgen05.fence::before_thread_sync", "tcgen05.fence"),
        "tcgen05_fence_after": ("tcgen05.fence::after_thread_sync", "tcgen05.fence"),
        "cluster_arrive": ("barrier.cluster.arrive.release.aligned", "barrier.cluster"),
        "cluster_wait": ("barrier.cluster.wait.acquire.aligned", "barrier.cluster"),
        "fence_mbarrier_init": ("fence.mbarrier_init.release.cluster", "membar / fence"),
        "fence_proxy_async": ("fence.proxy.async.shared::cta", "membar / fence"),
        "fence_proxy_async_cluster": ("fence.proxy.async.shared::cluster", "membar / fence"),
        "fence_proxy_async_global": ("fence.proxy.async.global", "membar / fence"),
        "fence_proxy_async_all": ("fence.proxy.async", "membar / fence"),
        "bulk_commit": ("cp.async.bulk.commit_group", "cp.async.bulk.commit_group"),
        "wgmma_fence": ("wgmma.fence.sync.aligned", "wgmma.fence"),
        "wgmma_commit": ("wgmma.commit_group.sync.aligned", "wgmma.commit_group"),
        "grid_dependency_wait": ("griddepcontrol.wait", "griddepcontrol"),
        "grid_launch_dependents": ("griddepcontrol.launch_dependents", "griddepcontrol"),
        "no_earlier": ("nanosleep.u32 0", "nanosleep"),
    }
    return {name: _row("", text, section) for name, (text, section) in syntax.items()}


def _others() -> dict[str, Signature]:
    registers = "{x, y, z, w}"
    references = "a:ref-x b:ref-y c:ref-z d:ref-w"
    referred = "{ref-x, ref-y, ref-z, ref-w}"
    found = {
        "bulk_wait": _row("", "cp.async.bulk.wait_group N", "cp.async.bulk.wait_group", "N:N"),
        "bulk_wait_read": _row(
            "", "cp.async.bulk.wait_group.read N", "cp.async.bulk.wait_group", "N:N"
        ),
        "wgmma_wait": _row("", "wgmma.wait_group.sync.aligned N", "wgmma.wait_group", "N:N"),
        "setmaxnreg_inc": _row(
            "",
            "setmaxnreg.inc.sync.aligned.u32 imm-reg-count",
            "setmaxnreg",
            "N:imm-reg-count",
            memory=False,
        ),
        "setmaxnreg_dec": _row(
            "",
            "setmaxnreg.dec.sync.aligned.u32 imm-reg-count",
            "setmaxnreg",
            "N:imm-reg-count",
            memory=False,
        ),
        **{
            name: _pure(
                "",
                f"createpolicy.fractional.L2::{name}.b64 cache-policy, 1.0",
                "createpolicy",
                "=policy:cache-policy",
            )
            for name in ("evict_first", "evict_last")
        },
        "prefetch_tensor_map": _row(
            "map:tensorMap", "prefetch.tensormap [tensorMap]", "prefetch, prefetchu"
        ),
        "named_sync": _row(
            "id:barrier threads:threads", "bar.sync barrier, threads", "bar, barrier"
        ),
        "named_arrive": _row(
            "id:barrier threads:threads", "bar.arrive barrier, threads", "bar, barrier"
        ),
        "elect_one": _row(
            "",
            "elect.sync _|predicate, 0xffffffff",
            "elect.sync",
            "=elected:predicate",
            memory=False,
        ),
        "elect_of": _row(
            "lanes:membermask",
            "elect.sync _|predicate, membermask",
            "elect.sync",
            "=elected:predicate",
            memory=False,
        ),
        **_scans(),
        **{
            f"redux_{op}": _row(
                "x:f", f"redux.sync.{op}.f32 out-f, f, 0xffffffff", "redux.sync", "=y:out-f", False
            )
            for op in ("min", "max")
        },
        "lane_id": _pure("", "mov.u32 x, %laneid", "Special Registers: %laneid", "=lane:x"),
        "cluster_cta_rank": _pure(
            "", "mov.u32 x, %cluster_ctarank", "Special Registers: %cluster_ctarank", "=x:x"
        ),
        "cluster_index": _pure(
            "", "mov.u32 x, %clusterid.x", "Special Registers: %clusterid", "=x:x"
        ),
        "cluster_count": _pure(
            "", "mov.u32 x, %nclusterid.x", "Special Registers: %nclusterid", "=x:x"
        ),
        "on_cta": _pure(
            "address:addr cta:cta", "mapa.shared::cluster.u32 x, addr, cta", "mapa", "=remote:x"
        ),
        "ldmatrix_x4": _row(
            f"row:row {references}",
            f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {referred}, [row]",
            "ldmatrix",
        ),
        "ldmatrix_x2": _row(
            "row:row a:ref-x b:ref-y",
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {ref-x, ref-y}, [row]",
            "ldmatrix",
        ),
        "ldmatrix_x4_trans": _row(
            f"row:row {references}",
            f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {referred}, [row]",
            "ldmatrix",
        ),
        "ldmatrix_x2_trans": _row(
            "row:row a:ref-x b:ref-y",
            "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {ref-x, ref-y}, [row]",
            "ldmatrix",
        ),
        "stmatrix_x4": _row(
            "row:row a:x b:y c:z d:w",
            f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [row], {registers}",
            "stmatrix",
        ),
        "stmatrix_x2": _row(
            "row:row a:x b:y", "stmatrix.sync.aligned.m8n8.x2.shared.b16 [row], {x, y}", "stmatrix"
        ),
        "stmatrix_x4_trans": _row(
            "row:row a:x b:y c:z d:w",
            f"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [row], {registers}",
            "stmatrix",
        ),
        "stmatrix_x2_trans": _row(
            "row:row a:x b:y",
            "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [row], {x, y}",
            "stmatrix",
        ),
        "clc_first_cta": _row(
            "response:try-cancel-response",
            (
                "ld.shared.b128 r, [try-cancel-response]",
                "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r",
                "mov.u32 x, 0xffffffff",
                "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 x, r",
            ),
            "clusterlaunchcontrol.query_cancel",
            "=cta:x",
        ),
        "debug_clock": _row(
            "",
            "mov.u64 time, %globaltimer",
            "Special Registers: %globaltimer",
            "=x:time",
            memory=False,
        ),
        "debug_word": _row("bar:mbar", "ld.shared::cta.u64 word, [mbar]", "ld", "=x:word"),
        "debug_meet": _row(
            "add:value warps:threads",
            "atom.acq_rel.cluster.shared::cluster.cas.b32 old, [addr], expected, next",
            "atom",
            "=seen:old word:addr expected:expected next:next",
        ),
        "debug_cluster_wait": _row(
            "site:value",
            "ld.acquire.cluster.shared::cluster.u32 old, [addr]",
            "ld",
            "=seen:old word:addr",
        ),
        "debug_leave_cluster": _row(
            "warps:threads",
            ("barrier.cluster.arrive.release", "barrier.cluster.wait.acquire"),
            "barrier.cluster",
        ),
    }
    cancel = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
    for name, multicast in (
        ("clc_try_cancel", ""),
        ("clc_try_cancel_multicast", ".multicast::cluster::all"),
    ):
        found[name] = _row(
            "response:addr bar:mbar",
            f"{cancel}{multicast}.b128 [addr], [mbar]",
            "clusterlaunchcontrol.try_cancel",
        )
    return found


def _accesses() -> dict[str, Signature]:
    """Ordinary loads and stores of shared memory. A load of a signed number extends its sign."""
    found = {}
    kinds = {
        "i8": ("s8", "u8", "i32"),
        "u8": ("u8", "u8", "u32"),
        "u16": ("u16", "u16", "u16"),
        "i32": ("s32", "u32", "i32"),
        "u32": ("u32", "u32", "u32"),
        "i64": ("s64", "u64", "i64"),
        "u64": ("u64", "u64", "u64"),
        "float": ("f32", "f32", "float"),
        "double": ("f64", "f64", "double"),
    }
    for space, suffix in (("shared::cta", ""), ("shared::cluster", "_remote")):
        for name, (load, store, register) in kinds.items():
            found[f"load_{name}{suffix}"] = _row(
                "address:addr", f"ld.{space}.{load} d, [addr]", "ld", f"=x:d:{register}"
            )
            found[f"store_{name}{suffix}"] = _row(
                f"address:addr x:d:{register}", f"st.{space}.{store} [addr], d", "st"
            )
        found[f"load_float2{suffix}"] = _row(
            "address:addr x:ref-f y:ref-g", f"ld.{space}.v2.f32 {{ref-f, ref-g}}, [addr]", "ld"
        )
        found[f"load_u32x2{suffix}"] = _row(
            "address:addr x:ref-x y:ref-y", f"ld.{space}.v2.u32 {{ref-x, ref-y}}, [addr]", "ld"
        )
        found[f"store_u32x2{suffix}"] = _row(
            "address:addr x:x y:y", f"st.{space}.v2.u32 [addr], {{x, y}}", "st"
        )
        found[f"store_float2{suffix}"] = _row(
            "address:addr x:f y:g", f"st.{space}.v2.f32 [addr], {{f, g}}", "st"
        )
    return found


def _scans() -> dict[str, Signature]:
    """Steps of scans over lanes: y is a register, p the predicate, that the wrapper declares."""
    found = {}
    for c_type, kind, zero in (
        ("float", "f32", "0f00000000"),
        ("i32", "s32", "0"),
        ("u32", "u32", "0"),
    ):
        found[f"scan_step_{c_type}"] = _row(
            f"x:a:{c_type} step:b:u32 bounds:c:u32",
            (
                "shfl.sync.up.b32 y|p, a, b, c, 0xffffffff",
                f"@p add.{kind} y, y, a",
                f"mov.{kind} d, y",
            ),
            "shfl.sync",
            f"=sum:d:{c_type}",
            memory=False,
        )
        found[f"lane_before_{c_type}"] = _row(
            f"x:a:{c_type} bounds:c:u32",
            ("shfl.sync.up.b32 y|p, a, 1, c, 0xffffffff", f"selp.{kind} d, y, {zero}, p"),
            "shfl.sync",
            f"=before:d:{c_type}",
            memory=False,
        )
    return found


def _numbers() -> dict[str, Signature]:
    """Conversions and functions. Of a packed result the first source is the upper half (cvt, "f16x2
    and bf16x2").
    """
    found = {
        "bf16_from": _pure("x:f", "cvt.rn.bf16.f32 h, f", "cvt", "=bits:h"),
        "f16_from": _pure("x:f", "cvt.rn.f16.f32 h, f", "cvt", "=bits:h"),
        "from_f16": _pure("=bits:h", "cvt.f32.f16 out-f, h", "cvt", "=x:out-f"),
        "and_or": _pure("a:x b:y c:z", "lop3.b32 d, x, y, z, 0xea", "lop3", "=bits:d:u32"),
        "fast_exp2": _pure("x:f", "ex2.approx.ftz.f32 out-f, f", "ex2", "=y:out-f"),
        "fast_rcp": _pure("x:f", "rcp.approx.ftz.f32 out-f, f", "rcp", "=y:out-f"),
        "fast_log2": _pure("x:f", "lg2.approx.ftz.f32 out-f, f", "lg2", "=y:out-f"),
    }
    for source, c_type in (("f32", "float"), ("f64", "double")):
        for integer, register in (
            ("i8", "i32"),
            ("u8", "i32"),
            ("i32", "i32"),
            ("u32", "i32"),
            ("i64", "i64"),
            ("u64", "i64"),
        ):
            syntax = f"cvt.rzi.{integer.replace('i', 's')}.{source} d, a"
            found[f"{integer}_from_{source}"] = _pure(
                f"x:a:{c_type}", syntax, "cvt", f"=bits:d:{register}"
            )
    for kind in ("bf16", "f16"):
        for op in ("add", "sub", "mul"):
            found[f"{op}_{kind}x2"] = _pure("a:x b:y", f"{op}.rn.{kind}x2 z, x, y", op, "=pair:z")
        for op in ("max", "min"):
            found[f"{op}_{kind}x2"] = _pure("a:x b:y", f"{op}.{kind}x2 z, x, y", op, "=pair:z")
        found[f"pack_{kind}"] = _pure("lo:f hi:g", f"cvt.rn.{kind}x2.f32 x, g, f", "cvt", "=pair:x")
    for kind in ("e4m3", "e5m2"):
        found[f"{kind}_from"] = _pure(
            "x:f", f"cvt.rn.satfinite.{kind}x2.f32 h, 0.0f, f", "cvt", "=pair:h"
        )
        found[f"from_{kind}"] = _pure(
            "bits:byte", f"cvt.rn.f16x2.{kind}x2 x, byte", "cvt", "=pair:x"
        )
        found[f"pack_{kind}"] = _pure(
            "lo:f hi:g", f"cvt.rn.satfinite.{kind}x2.f32 h, g, f", "cvt", "=pair:h"
        )
    return found


TABLE = {
    **_of_both_groups(),
    **_copies(),
    **_mbarriers(),
    **_remote_arrivals(),
    **_without_operands(),
    **_others(),
    **_accesses(),
    **_numbers(),
}
