"""What messages of the machine call the instructions of this project's own language."""

from __future__ import annotations

from tilepipe.machine.wording import Wording

TRACER = Wording(
    {
        "a branch that one whole warp takes": "a role of one warp",
        "a fence at a scope": 'ctx.fence(scope="{}")',
        "a multicast mask": "mask=",
        "a predicate": "ctx.when(...)",
        "a predicate on %cluster_ctarank": "ctx.when(ctx.cta_rank % 2 == 0)",
        "an order at a scope": 'order="{}" and scope="{}"',
        "an atom.add of 0": "ctx.atomic_add(..., 0)",
        "bar.sync": ".sync()",
        "bar.sync of a warpgroup": "ctx.sync_warpgroup()",
        "bar.warp.sync": "ctx.syncwarp()",
        "before every use": "in set-up code, which every role starts after",
        "cp.async.bulk.commit_group": "ctx.tma_store_commit()",
        "cp.async.bulk.wait_group 0": "ctx.tma_store_wait(0)",
        "cp.async.bulk.wait_group of a number": "ctx.tma_store_wait({})",
        "cp.async.bulk.wait_group.read": "ctx.tma_store_wait(..., read=True)",
        "cp.async.bulk.wait_group.read of a number": "ctx.tma_store_wait({}, read=True)",
        "elect.sync": "ctx.elect_one()",
        "elect.sync in a warp": 'ctx.elect_one("role")',
        "fence.mbarrier_init": "ctx.fence_barrier_init()",
        "fence.proxy.async.global": 'ctx.fence_proxy_async("global")',
        "fence.proxy.async.shared::cluster": 'ctx.fence_proxy_async("cluster")',
        "fence.proxy.async.shared::cta": "ctx.fence_proxy_async()",
        "griddepcontrol.wait": "ctx.grid_dependency_wait()",
        "mask": "mask=",
        "mbarrier.arrive on a peer": "arrive_cluster(rank)",
        "mbarrier.arrive.expect_tx": "expect_bytes",
        "mbarrier.expect_tx": "expect_bytes_only",
        "mov of 0": ".fill(0)",
        "parity 1": "parity 1, as a pipeline's producer cursor starts with",
        "redux.sync or shfl.sync": "ctx.reduce_lanes or ctx.shuffle_xor",
        "scale-d false": "accumulate=False, or a condition such as `k > 0`",
        "smaller copies": "smaller tiles or a smaller k_group_size",
        "tcgen05.commit": "ctx.mma_commit",
        "tcgen05.commit.multicast::cluster": "ctx.mma_commit(stage.mbar(), mask=...)",
        "tcgen05.cp.warpx4": "ctx.tmem_copy to scale factors",
        "tcgen05.fence::after_thread_sync": "ctx.tcgen05_fence_after()",
        "tcgen05.fence::before_thread_sync": "ctx.tcgen05_fence_before()",
        "tcgen05.wait::ld": "ctx.tmem_wait_load()",
        "tcgen05.wait::st": "ctx.tmem_wait_store()",
        "wgmma.commit_group": "ctx.wgmma_commit(), or ctx.mma_commit(mbar)",
        "wgmma.wait_group": "ctx.wgmma_wait, or the commit bound to the stage",
        "wgmma.wait_group 0": "ctx.wgmma_wait(0)",
        "wgmma.wait_group of a number": "ctx.wgmma_wait({})",
        "warp": "role",
        # sentences about the library
        "smem=": "",
        "a relaxed arrive": "",
        "a cooperative launch": " Other work on the GPU may leave room for fewer of them, unless"
        " the launch is cooperative: @tp.kernel(..., cooperative=True).",
        "draining a ring": "Call producer.drain() at the end of the role that waits on this"
        " barrier: it waits until every stage has been released.",
        "draining a ring at a commit": ": producer.drain() waits until every stage has been"
        " released",
        "freeing after reads": " tp.TmemDeallocBarrier does that: signal_complete() after the"
        " reads, complete_dealloc(tmem) in place of deallocate().",
        "initialising early or putting": "Initialise in set-up code, or put",
        "registers before the first wgmma": " ctx.mma puts one before the first MMA: use the"
        " registers before that.",
        "or by a flag": ', or hand them over by a flag: ctx.store(flag[i], 1, order="release"),'
        " and ctx.wait_until(flag[i], ...)",
        "the first wgmma.fence": " ctx.mma puts one there.",
        "the narrow fence": "The form without an argument (.shared::cta)",
        "the shared fence": "The form without an argument",
    }
)
