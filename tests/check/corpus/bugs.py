"""Synchronisation bugs of public kernels, each as a small kernel of our own with and without it.

A .cu file says at its head what goes wrong and where that was reported. Compiled with BUG=1 it has
the bug, with BUG=0 its fix; the line that the checker must name ends in `// the bug`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from tilepipe import ptx
from tilepipe.cuda.nvrtc.compiler import nvrtc, options
from tilepipe.machine.rules import Rules

FOLDER = Path(__file__).parent
MARK = "// the bug"


@dataclass(frozen=True)
class Bug:
    """A kernel with a bug.

    Attributes:
        name: that of its file. title: what is wrong, for the page. source: where it was reported;
            empty for a classic mistake.
        arguments: makes those of a launch. kind: the class of the fault. says: what the message
            must match. sms: of the GPU, where it matters. rules: under which it is a fault.
    """

    name: str
    title: str
    source: str
    arguments: Callable[[], Sequence[ptx.Argument]]
    kind: str
    says: str
    arch: str = "sm_90a"
    grid: int = 1
    sms: int = 0
    rules: Rules = "practice"

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.cu"

    @property
    def line(self) -> int:
        """The line that the checker must name."""
        lines = self.file.read_text(encoding="utf-8").splitlines()
        (found,) = [i for i, text in enumerate(lines, 1) if text.endswith(MARK)]
        return found

    @property
    def reported(self) -> list[tuple[str, list[int]]]:
        """The repositories in which it was reported, with the numbers of the threads."""
        found: list[tuple[str, list[int]]] = []
        for part in self.source.split(", ") if self.source else ():
            repository, _, number = part.rpartition(" ")
            if repository:
                found.append((repository, []))
            found[-1][1].append(int(number.removeprefix("#")))
        return found

    def told(self, message: str) -> str:
        """The sentence of a fault's message that names the culprit."""
        where = re.search(self.says, message)
        assert where is not None
        begins = [m.end() for m in re.finditer(r"\n|\. ", message) if m.end() <= where.start()]
        ends = [m.start() for m in re.finditer(r"\n|\. ", message) if m.start() >= where.end()]
        begin, end = max(begins, default=0), min(ends, default=len(message))
        return message[begin:end].strip().rstrip(".:")

    def launch(self, bug: bool) -> ptx.Launch:
        """A launch of the kernel, with the bug or without it."""
        (kernel,) = ptx.load(_compiled(self.file, self.arch, bug)).values()
        chip = replace(kernel.chip, sms=self.sms, clusters=()) if self.sms else kernel.chip
        return kernel.bind(self.arguments(), grid=self.grid, chip=chip)


def bugs_of() -> set[Path]:
    """The kernels of the folder."""
    return set(FOLDER.glob("*.cu"))


@cache
def _compiled(file: Path, arch: str, bug: bool) -> str:
    given = (
        *options(arch, "ptx", lineinfo=True),
        f"--include-path={FOLDER}",
        f"--define-macro=BUG={int(bug)}",
    )
    source = file.read_text(encoding="utf-8")
    return nvrtc(source, str(file), "ptx", given)[1].decode()


def _floats(*sizes: int) -> Callable[[], list[ptx.Argument]]:
    """Arrays of float32 of these sizes."""
    return lambda: [np.arange(n, dtype=np.float32) for n in sizes]


def _words(*sizes: int) -> Callable[[], list[ptx.Argument]]:
    """Arrays of uint32 of these sizes."""
    return lambda: [np.zeros(n, np.uint32) for n in sizes]


def _mixed(*arrays: tuple[int, type]) -> Callable[[], list[ptx.Argument]]:
    """Arrays of zeros, each of a size and a type."""
    return lambda: [np.zeros(n, dtype) for n, dtype in arrays]


def _tensor_maps() -> list[ptx.Argument]:
    tensor = np.arange(2 * 8 * 32, dtype=np.float32)
    given = ptx.TensorMap(tensor.reshape(16, 32), (8, 32), shape=(8, 32), strides=(128,))
    return [given, np.zeros(128, np.uint8), tensor, np.zeros(2 * 8 * 32, np.float32)]


def _store_map() -> list[ptx.Argument]:
    tensor = np.zeros((16, 32), np.float32)
    return [ptx.TensorMap(tensor, (8, 32), shape=(8, 32)), np.zeros(128, np.uint8), tensor]


BUGS = [
    Bug(
        "tensor_map_in_flight",
        "a tensor map is changed while loads that read it are in flight",
        "deepseek-ai/DeepGEMM #343, #375, #430",
        _tensor_maps,
        "RaceError",
        r"The copy may read this until the phase of the barrier .* is complete",
    ),
    Bug(
        "wgmma_registers_in_flight",
        "registers of A are loaded again while a wgmma reads them",
        "deepseek-ai/DeepGEMM #448, #449",
        _mixed((3 * 4 * 128, np.uint32), (512, np.float32)),
        "RaceError",
        r"a register of A, is written while a wgmma may still read it",
    ),
    Bug(
        "store_without_proxy_fence",
        "a tile is written by ordinary stores and stored by TMA without a proxy fence",
        "MoonshotAI/FlashKDA #24",
        _floats(128, 128),
        "RaceError",
        r"no fence\.proxy\.async of that memory stands between",
    ),
    Bug(
        "mma_without_proxy_fence",
        "an operand is written by ordinary stores and read by an MMA without a proxy fence",
        "sgl-project/sglang #39124",
        _mixed((128 * 16, np.uint8), (128, np.uint32)),
        "RaceError",
        r"no fence\.proxy\.async of that memory stands between",
        "sm_100a",
    ),
    Bug(
        "init_without_fence",
        "TMA signals a barrier whose initialisation no fence has made visible to it",
        "MoonshotAI/FlashKDA #24",
        _floats(32, 32),
        "BarrierError",
        r"strict rules, mbarrier-init fence",
        rules="strict",
    ),
    Bug(
        "multicast_into_busy_slot",
        "a multicast overwrites a slot that the peer's consumers still read",
        "inclusionAI/humming #56",
        _floats(64, 128),
        "RaceError",
        r"must know that this CTA has freed the tile as well.* on a barrier of CTA 0",
        grid=2,
    ),
    Bug(
        "multicast_before_armed",
        "a multicast comes before the peer has read the slot and armed its barrier",
        "inclusionAI/humming #54",
        _floats(64, 128),
        "RaceError",
        r"must know that this CTA has freed the tile as well.* on a barrier of CTA 0",
        grid=2,
    ),
    Bug(
        "arrive_without_syncwarp",
        "one lane arrives for what all lanes of its warp have written, without __syncwarp",
        "NVIDIA/cudnn-frontend #426",
        _floats(32, 32),
        "RaceError",
        r"speaks only for that lane until its warp has converged",
    ),
    Bug(
        "every_lane_arrives",
        "32 lanes arrive on a barrier of count 1",
        "triton-lang/triton #9498",
        _floats(32, 32),
        "BarrierError",
        r"All 32 threads execute it",
    ),
    Bug(
        "arrive_on_wrong_rank",
        "a remote arrive goes to the CTA that mapa was given by mistake",
        "flashinfer-ai/flashinfer #2550",
        _floats(64, 128),
        "DeadlockError",
        r"got 1 of 2 arrivals: .* arrived on the mbarrier at 'empty' of CTA 1, where no agent",
        grid=2,
    ),
    Bug(
        "epilogue_stage_reused",
        "a stage is overwritten before the pending TMA store has read it",
        "deepseek-ai/DeepEP #657",
        _floats(256, 256),
        "RaceError",
        r"leaves the last group pending, and that is the one of the first access",
    ),
    Bug(
        "store_read_back",
        "what a TMA store wrote is read after wait_group.read alone",
        "triton-lang/triton #10415",
        _floats(32, 32),
        "RaceError",
        r"waits until the store has read shared memory, and not until it has written",
    ),
    Bug(
        "named_barrier_shared",
        "two groups of warps use one named barrier",
        "flashinfer-ai/flashinfer #4533",
        _floats(128, 128),
        "BarrierError",
        r"two groups of warps use barrier 1 at once",
    ),
    Bug(
        "syncthreads_in_branch",
        "__syncthreads in a branch that half of the lanes do not take",
        "tile-ai/tilelang #1026",
        _floats(64, 64),
        "DeadlockError",
        r"the lanes 0x55555555 of warp 1 execute it, and 0xaaaaaaaa do not come to it",
    ),
    Bug(
        "syncthreads_skipped",
        "some warps skip a __syncthreads, and meet the others in the next one",
        "pytorch/FBGEMM #5857",
        lambda: [np.zeros(64, np.float32), np.zeros(64, np.float32), 32],
        "RaceError",
        r"if these are not meant to be one, one of the two has skipped a bar\.sync",
    ),
    Bug(
        "cp_async_without_wait",
        "the wait for cp.async leaves the group pending that is read next",
        "tile-ai/tilelang #2668",
        _floats(192, 64),
        "RaceError",
        r"leaves the last group pending, and that is the one of the first access",
    ),
    Bug(
        "expected_bytes",
        "a barrier expects fewer bytes than the copy brings",
        "mirage-project/mirage #705",
        _floats(512, 512),
        "BarrierError",
        r"1,024 bytes expected, 2,048 delivered",
    ),
    Bug(
        "parity_of_second_tile",
        "parities begin again with each tile, and the barriers' phases go on",
        "tile-ai/tilelang #2674",
        _floats(192, 64),
        "BarrierError",
        r"gives parity 1 again in round 2: flip the parity in each round",
    ),
    Bug(
        "release_before_wgmma",
        "a stage is handed back before the wgmma that reads it has finished",
        "NVIDIA/Fuser #3561",
        _mixed((3 * (64 * 16 + 8 * 16), np.uint16), (512, np.float32)),
        "RaceError",
        r"A wgmma reads its tiles until its group has been waited for",
    ),
    Bug(
        "operand_shared_by_warpgroups",
        "an operand is overwritten while the other warpgroup's wgmma reads it",
        "tile-ai/tilelang #2613",
        _mixed((2 * 4 * 256, np.uint32), (256, np.uint16), (1024, np.float32)),
        "RaceError",
        r"A wgmma reads its tiles until its group has been waited for",
    ),
    Bug(
        "init_without_cluster_sync",
        "a multicast signals a barrier that the peer has not initialised",
        "triton-lang/triton #8985, #9005",
        _floats(32, 64),
        "BarrierError",
        r"before that CTA's initialisation of it has reached the cluster",
        grid=2,
    ),
    Bug(
        "group_straddles_cluster",
        "the CTAs of a cluster do not agree whether there is a multicast",
        "deepseek-ai/DeepGEMM #415, #429",
        lambda: [np.zeros(96, np.float32), np.zeros(6 * 32, np.float32), 3],
        "DeadlockError",
        r"expects 128 bytes in phase 0 and its copies brought 0",
        grid=6,
    ),
    Bug(
        "cluster_peer_exits",
        "a CTA arrives on a barrier of a peer that has ended",
        "sgl-project/sglang #32954",
        _floats(64, 64),
        "ExitError",
        r"exits while warp 0 of CTA 1 can still arrive",
        grid=2,
    ),
    Bug(
        "launch_answer_overwritten",
        "the scheduler's answer is overwritten before all warps have read it",
        "tile-ai/tilelang #2420",
        _words(3 * 32),
        "RaceError",
        r"After the read, warp 1 of CTA 0 must arrive",
        "sm_100a",
        grid=3,
        sms=1,
    ),
    Bug(
        "launch_answer_unarmed",
        "only CTA 0 expects the bytes of an answer that goes to both",
        "facebookexperimental/triton #908",
        _words(4 * 32),
        "DeadlockError",
        r"copies of 16 bytes signal .* but no op calls mbarrier\.arrive\.expect_tx",
        "sm_100a",
        grid=4,
    ),
    Bug(
        "tensor_memory_freed_early",
        "tensor memory is freed while other warps read it",
        "mlc-ai/TIRx-kernels #19",
        _words(128),
        "RaceError",
        r"nothing after that signals warp 0",
        "sm_100a",
    ),
    Bug(
        "tensor_memory_released_early",
        "an accumulator is handed back before tcgen05.ld has finished",
        "vllm-project/flash-attention #182",
        _mixed((128 * 16, np.uint16), (256, np.uint32)),
        "RaceError",
        r"A load from tensor memory is over when its warp has executed tcgen05\.wait::ld",
        "sm_100a",
    ),
    Bug(
        "tensor_memory_address",
        "the address of tensor memory is read before the alloc has written it",
        "NVIDIA/cutlass #2835",
        lambda: [np.zeros(32, np.uint32), 0],
        "PoisonError",
        r"4 of 4 bytes were never written",
        "sm_100a",
    ),
    Bug(
        "pair_frees_before_peer",
        "the leader of a pair frees tensor memory before its peer's alloc is through",
        "NVIDIA/cutlass #3435",
        _words(64),
        "SimFault",
        r"nothing says that the alloc of CTA 1",
        "sm_100a",
        grid=2,
    ),
    Bug(
        "semaphore_without_acquire",
        "a flag is polled by relaxed loads before what it guards is read",
        "NVIDIA/cutlass #3117",
        _mixed((64, np.float32), (32, np.float32), (1, np.uint32)),
        "RaceError",
        r"is read relaxed",
        grid=2,
    ),
    Bug(
        "last_block_without_fence",
        "the last CTA reads partial sums that no __threadfence orders before the count",
        "NVIDIA/Fuser #2391",
        _mixed((64, np.float32), (64, np.float32), (32, np.float32), (1, np.uint32)),
        "RaceError",
        r"must release a flag, and warp 0 of CTA 1 must acquire",
        grid=2,
    ),
    Bug(
        "named_barrier_rearrived",
        "warps arrive at a named barrier again before it has completed",
        "vllm-project/vllm #26026",
        _floats(192, 192),
        "BarrierError",
        r"arrives at named barrier 'barrier 1' again before it was reset",
    ),
    Bug(
        "leader_runs_ahead",
        "the leader warp hands a stage back before the other warps have seen its phase",
        "triton-lang/triton #10035",
        _floats(192, 192),
        "RaceError",
        r"After the read, warp 1 must arrive on a barrier that warp 2 waits on",
    ),
    Bug(
        "copy_without_proxy_fence",
        "data that a flag hands over are loaded by TMA without a proxy fence",
        "deepseek-ai/DeepEP #642, #621",
        _mixed((32, np.float32), (32, np.float32), (1, np.uint32), (32, np.float32)),
        "RaceError",
        r"Every writing thread must execute fence\.proxy\.async\.global",
        grid=2,
    ),
    Bug(
        "write_before_dependency",
        "a kernel writes before griddepcontrol.wait",
        "NVIDIA/cccl #3131",
        _floats(32, 32),
        "RaceError",
        r"no griddepcontrol\.wait is ordered before this write",
    ),
    Bug(
        "store_map_in_flight",
        "a tensor map is changed while a store through it is in flight",
        "NVIDIA/cutlass #2162",
        _store_map,
        "RaceError",
        r"The store is over when the thread that issued it has waited for it",
    ),
    Bug(
        "operand_without_barrier",
        "a warp's wgmma reads what the other warps of its warpgroup write",
        "pengcuo/FlashMLA-ETAP #3",
        _mixed((512, np.uint32), (128, np.uint16), (512, np.float32)),
        "RaceError",
        r"warp 0 must wait, before reading, on a barrier",
    ),
    Bug(
        "cleared_while_read",
        "counts of a round are cleared for the next while others read them",
        "flashinfer-ai/flashinfer #3529",
        _words(64, 64),
        "RaceError",
        r"After the write, warp 0 must arrive on a barrier that warp 1 waits on",
    ),
    Bug(
        "commit_to_wrong_pair",
        "a commit signals the first pair of a cluster, whichever pair it is of",
        "facebookexperimental/triton #783",
        _words(128),
        "DeadlockError",
        r"only warp 0 of CTA 2 arrives .* arrived on the mbarrier at 'done' of CTA 0, where no",
        "sm_100a",
        grid=4,
    ),
    Bug(
        "alloc_after_relinquish",
        "tensor memory is allocated after the permit to allocate was given back",
        "",
        _words(32),
        "SimFault",
        r"after warp 0 gave up the right to",
        "sm_100a",
    ),
    Bug(
        "store_waited_by_another",
        "a thread waits for the TMA store of another",
        "",
        _floats(64),
        "RaceError",
        r"until the thread that issued it has waited for its group",
    ),
]
