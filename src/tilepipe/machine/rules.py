"""The two rule sets of a run or a check, and the findings that only the strict one refuses.

"practice" allows what shipped compilers rely on (CUTLASS and CuTe DSL, Triton, DeepGEMM); "strict"
follows the PTX ISA to the letter: what it does not promise is not relied on. A finding of the
strict rules alone is a fault under them, and advice, or not looked for, in practice.
docs/reference/rules.md has this table with the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilepipe.errors import BindError

Rules = Literal["practice", "strict"]
RULE_SETS: tuple[Rules, ...] = ("practice", "strict")


@dataclass(frozen=True, slots=True)
class Rule:
    """A requirement of the strict rules that practice does not have.

    Attributes:
        name: what messages and docs/reference/rules.md call it.
        asks: what strict asks for, in one line.
        source: where the PTX ISA says so, or what it leaves unsaid.
        practice: "advice", or "silent" where it is not looked for.
    """

    name: str
    asks: str
    source: str
    practice: Literal["advice", "silent"] = "advice"


READER_FENCE = Rule(
    "reader-side fence",
    "fence.proxy.async is executed by every thread that made the ordinary access, before it hands"
    " over",
    "PTX ISA, Causality order: proxy-preserved base causality order has no clause for"
    " fence.proxy.async",
)
READ_REFILL = Rule(
    "read before refill",
    "fence.proxy.async between an ordinary read and the asynchronous write that refills what was"
    " read",
    "PTX ISA, Async Proxy: accesses through several proxies need a cross-proxy fence; its example"
    " of clusterlaunchcontrol.try_cancel fences a read",
    "silent",
)
COPIES_OF_CTAS = Rule(
    "copies of two CTAs",
    "fence.proxy.async between accesses to the same global memory by copies (TMA, bulk) of two CTAs"
    " that flags or barriers order",
    "PTX ISA, Causality order: accesses through one proxy other than the generic one are ordered"
    " where the same CTA makes both; both copies reach global memory through L2, which is one for"
    " all CTAs",
    "silent",
)
ALLOCATION_REFILL = Rule(
    "allocation refill",
    "fence.proxy.async between the write of the address by tcgen05.alloc and an asynchronous write"
    " over it",
    "PTX ISA, tcgen05.alloc: it does not say in which proxy it writes the address; Triton's kernels"
    " copy operands over it after bar.sync alone",
    "silent",
)
ONE_VALUE = Rule(
    "one value",
    "order between ordinary stores of several warps to shared memory, even where one store"
    " instruction writes the same value for all",
    "PTX ISA, Memory Consistency Model: conflicting stores that nothing orders are a data race,"
    " whatever they write; Triton's warp-specialised kernels store the state of their warps so",
)
INIT_FENCE = Rule(
    "mbarrier-init fence",
    "fence.mbarrier_init or fence.proxy.async by the initialising thread between the first"
    " mbarrier.init in a role and a copy that signals it",
    "CUDA C++ Programming Guide, Tensor Memory Access: a proxy fence follows the initialisation;"
    " Triton has bar.sync alone",
)
COMMIT_RELEASE = Rule(
    "commit as a release",
    "an arrive or a barrier of its own by the thread that made an ordinary access, besides its"
    " tcgen05.commit",
    "PTX ISA, tcgen05.commit: its signal tracks the thread's tcgen05 operations; of other accesses,"
    " and of release, it says nothing",
)
TENSOR_FENCES = Rule(
    "tcgen05 fences",
    "tcgen05.fence::before_thread_sync before the arrive, and ::after_thread_sync after the wait,"
    " between accesses of tensor memory",
    "PTX ISA, tcgen05 memory consistency model: the canonical patterns have both, around relaxed"
    " mbarrier operations; that mbarriers which release and acquire do without, it leaves at 'the"
    " standard synchronization mechanisms also apply'",
)
TENSOR_ORDER = Rule(
    "tensor-core order",
    "a wait for a commit between ops of one thread that form no pipeline: an MMA or a copy, then a"
    " copy; an MMA, then one of another accumulator or shape",
    "PTX ISA, tcgen05 memory consistency model: the pipelined pairs are an MMA after one of the"
    " same accumulator and shape, and an MMA after a copy",
    "silent",
)
LOADED_REGISTERS = Rule(
    "loaded registers",
    "tcgen05.wait::ld before the first use of a register that tcgen05.ld writes",
    "PTX ISA, tcgen05.wait: until it returns, a tcgen05.ld may not be over; Triton's epilogues use"
    " the registers before, and leave the wait to the hardware's scoreboard",
)
COPIES_BEFORE_WGMMA = Rule(
    "copies before wgmma",
    "wgmma.fence between a mov of a register of a wgmma, also of a constant, and that wgmma",
    "PTX ISA, wgmma.fence: it stands between any access to a register and a wgmma that names it;"
    " NVRTC sets an accumulator to 0 between the fence and the wgmma",
    "silent",
)
FENCE_OF_WRITER = Rule(
    "fence of the writer",
    "the fence before the relaxed write of a flag is executed by the thread that writes the flag,"
    " and the fence after a relaxed read by the thread that reads",
    "PTX ISA, Release and Acquire Patterns: a fence, then a write in program order; kernels have"
    " __threadfence() by every thread, __syncthreads(), and an atomic operation by one of them",
    "silent",
)
STORE_AT_EXIT = Rule(
    "store at exit",
    "cp.async.bulk.wait_group in the thread that issued a bulk store, before its CTA exits",
    "CUDA C++ Programming Guide, Tensor Memory Access: the thread that initiated the transfer waits"
    " until shared memory has been read; DeepGEMM's kernels for sm_90 exit without",
)
LOAD_AT_EXIT = Rule(
    "load at exit",
    "a wait for each copy that a CTA issues into its own shared memory, before the CTA exits",
    "PTX ISA, cp.async.bulk: its completion is observed by a wait for the mbarrier; Gluon's"
    " tutorial of persistent kernels issues a load that nothing awaits, and an H200 keeps the"
    " memory of a CTA until its loads have landed",
)
COMMIT_AT_EXIT = Rule(
    "commit at exit",
    "a wait for each tcgen05.commit on an mbarrier of its own CTA, before the CTA exits",
    "PTX ISA, mbarrier: it is an object in shared memory, which lives as long as its CTA; CUTLASS's"
    " FMHA for sm_100 exits without waiting for its last commits",
)
ELECTED_LANE = Rule(
    "elected lane",
    "the same outcome whichever lane elect.sync elects, also where its number decides what is done,"
    " or where lanes are named by their number",
    "PTX ISA, elect.sync: which lane it elects is not specified; DeepGEMM's FP8 GEMM for sm_90"
    " takes the address of a bulk store from the number of the elected lane",
)
OWN_LANES = Rule(
    "lanes of a warp",
    "the address of a tcgen05.ld or tcgen05.st names lanes that the warp reaches",
    "PTX ISA, tcgen05.ld: a warp of a warpgroup reaches its quarter of the lanes; the kernels of"
    " DeepGEMM for sm_100 give lane 0 in all four warps, and each gets its own lanes",
)
LOCKSTEP = Rule(
    "lockstep",
    "bar.warp.sync between volatile accesses of different lanes of a warp to the same bytes of"
    " shared memory",
    "PTX ISA, A Set of SIMT Multiprocessors; CUDA C++ Programming Guide, Independent Thread"
    " Scheduling: lanes do not execute in lockstep, and code that relies on it must use"
    " __syncwarp()",
)
READ_ONLY = Rule(
    "read-only loads",
    "no write by the launch to bytes that it loads by ld.global.nc",
    "PTX ISA, ld.global.nc: it loads through a non-coherent cache, and memory is read-only while"
    " the kernel runs; in CUDA, __ldg() and const __restrict__ are promises of that",
)
PARITY = Rule(
    "parity",
    "0 or 1 as the parity that mbarrier.test_wait and try_wait give",
    "PTX ISA, mbarrier.test_wait: the parity of a phase is 0 or 1; of other operands it says"
    " nothing",
)
EXITED_WARPS = Rule(
    "exited warps",
    "every warp of the CTA comes to each bar.sync that gives no number of threads",
    "PTX ISA, bar: without a number, all threads of the CTA take part; the CUDA documentation"
    " (Volta Tuning Guide) counts those alone that have not exited",
)
EXITED_LANES = Rule(
    "exited lanes",
    "every thread of the warp comes to a bar.sync, or to another barrier that is .aligned",
    "PTX ISA, bar, barrier.cluster: .aligned instructions are executed by all threads of the warp;"
    " the CUDA documentation (Volta Tuning Guide) counts those threads alone that have not exited",
)
RELAXED_HAND_BACK = Rule(
    "relaxed hand-back",
    "an arrive that releases at the scope of the cluster, between an arrival on another CTA's"
    " barrier, or the alloc of a pair, and the end of that CTA, or its free",
    "PTX ISA, mbarrier.arrive: without a scope it releases at that of the CTA; CUTLASS and CuTe"
    " DSL arrive by that form before the leader of a pair frees and ends",
    "silent",
)
SCOPE_OF_WAIT = Rule(
    "scope of a wait",
    "a wait that acquires at the scope of the cluster, where what threads of another CTA released"
    " by an arrive on the mbarrier is to be known after it",
    "PTX ISA, mbarrier.test_wait, mbarrier.try_wait: without a scope they acquire at that of the"
    " CTA; CUTLASS waits by that form for arrives of all CTAs of a cluster",
    "silent",
)
ALL_RULES = (
    READER_FENCE, READ_REFILL, COPIES_OF_CTAS, ALLOCATION_REFILL, ONE_VALUE, INIT_FENCE,
    COMMIT_RELEASE, TENSOR_FENCES, TENSOR_ORDER, LOADED_REGISTERS, COPIES_BEFORE_WGMMA,
    FENCE_OF_WRITER, STORE_AT_EXIT, LOAD_AT_EXIT, COMMIT_AT_EXIT, ELECTED_LANE, OWN_LANES, LOCKSTEP,
    READ_ONLY, PARITY, EXITED_WARPS, EXITED_LANES, RELAXED_HAND_BACK, SCOPE_OF_WAIT,
)  # fmt: skip


def asks(rules: Rules, rule: Rule) -> bool:
    """True under the strict rules: they ask for what `rule` asks for, and practice does not. Code
    in which the sets differ names the rule by which they do, here or in `World.finding`.
    """
    return rules == "strict" and rule in ALL_RULES


def require_rules(given: object) -> Rules:
    """The rule set that an argument names.

    Raises:
        BindError: it names none.
    """
    for name in RULE_SETS:
        if isinstance(given, str) and given == name:
            return name
    raise BindError(
        'rules= is "practice" (what shipped compilers rely on) or "strict" (the PTX ISA to the'
        f" letter); got {given!r}. See docs/reference/rules.md."
    )
