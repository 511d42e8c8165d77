"""Names of CUDA C++, PTX, Triton, Gluon and CuTe DSL, and what to write instead of each: for the
errors of members that objects of a kernel do not have (`missing_members`).

Keys are lower case, without underscores or a final `_sync`; a text names members as they are
written, and a test holds it to those that there are.
"""

from __future__ import annotations

_THREAD = (
    "`ctx.thread` is the thread's number in its role, `ctx.lane` that in its warp, `ctx.warp` the"
    " warp's in the role"
)
_BLOCK = (
    "a grid has one dimension: `ctx.block_id` is the CTA's number in it, `ctx.cluster_id` its"
    " cluster's, `ctx.cta_rank` its rank in the cluster"
)
_GRID = "`ctx.num_clusters * ctx.cluster_size` is the number of CTAs"
_THREADS = "how many threads a role has is known in Python: 32 times the `warps=` of `ctx.role`"
_SYNC = (
    "`ctx.sync_role()` for the threads of a role, `ctx.sync_warpgroup()` of a warpgroup,"
    " `ctx.syncwarp()` of a warp; between roles, `ctx.named_barrier(threads, name)` or"
    " `tp.SharedMemBarrier`"
)
_CLUSTER_SYNC = "`ctx.cluster_arrive()`, then `ctx.cluster_wait()`"
_SHUFFLE = (
    "`ctx.shuffle(x, lane)`, for example of lane `ctx.lane + 1` (modulo 32), and"
    " `ctx.shuffle_xor(x, mask)`"
)
_VOTE = "`ctx.ballot(cond)`, `ctx.any_lane(cond)`, `ctx.all_lanes(cond)`"
_SUM = (
    "of a fragment, `f.sum()`, `f.max()`, `f.min()`; of the lanes of a warp,"
    ' `ctx.reduce_lanes("add", x)`'
)
_COPY = (
    "by TMA, `ctx.tma_load(tensor, coords, tile, mbar)` and `ctx.tma_store(tensor, coords, tile)`;"
    " by the threads, `ctx.load_global` and `ctx.store_global` of fragments"
)
_GROUPS = "`ctx.tma_store_commit()` and `ctx.tma_store_wait(pending)`, for groups of TMA stores"
_PRODUCT = "`ctx.mma(acc, a, b)`, which is wgmma or tcgen05.mma"
_MBARRIER = (
    "`tp.SharedMemBarrier.allocate(ctx, count, name)` in set-up code; it has `arrive`, `wait`,"
    " `expect_bytes`"
)
_SHARED = "`ctx.smem(shape, dtype, count=, name=)`, in set-up code"
_REGISTERS = "`registers=` of `ctx.role`"
_FUNCTION = '`ctx.math("{0}", x)` of a scalar, `f.apply("{0}")` of a fragment'
_FRAGMENT = (
    "`ctx.fragment(shape=, dtype=)`, or `ctx.accumulator(shape)` for an MMA; `f.fill(0)` and"
    " `f.set(x)` write it"
)
_NUMBERS = (
    "`ctx.col_index(cols)` and `ctx.row_index(rows)` are the numbers of the columns and rows of a"
    " fragment; `ctx.lane` is the lane's own"
)
_LOOP = "`for i in ctx.range(...)` is a traced loop, Python's `range` an unrolled one"
_BRANCH = "`with ctx.when(cond):`, then `with ctx.otherwise():`"
_FENCE = '`ctx.fence("sc")` is `__threadfence()`; `ctx.fence_proxy_async()` is the proxy fence'
_MAP = "`tp.tensor_map(array, box=...)`, on the host, where the kernel is bound"
_STATIC = "keyword-only parameters of a kernel are static; Python's `assert` and `if` act on them"
_TURN = (
    "a fragment is loaded from a tile of one order and stored to one of the other:"
    " docs/how-to/transpose.md"
)
_OPERAND = "`tile.T` is the transpose as an operand of ctx.mma"
_CONVERT = "`{0}.to(dtype)` converts, `{0}.bitcast(dtype)` keeps the bits"


def _each(text: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, text)


CONTEXT = {
    **_each(_THREAD, "threadidx", "tid", "threadid", "laneid", "laneidx", "warpid", "warpidx"),
    **_each("`ctx.warpgroup_rank`", "warpgroupid", "warpgroupidx", "warpgroup"),
    **_each(_BLOCK, "blockidx", "blockid", "ctaid", "programid", "clusteridx", "blockrank"),
    **_each("`ctx.cta_rank`", "clusterctarank", "blockinclusteridx", "rank", "blockidxincluster"),
    **_each(_GRID, "griddim", "numprograms", "numblocks", "numctas", "gridsize"),
    **_each(_THREADS, "blockdim", "numthreads", "numwarps", "warpsize"),
    **_each("`ctx.cluster_size`", "clusterdim", "clustershape"),
    **_each(_SYNC, "syncthreads", "sync", "barrier", "debugbarrier", "barsync", "threadbarrier"),
    **_each(_CLUSTER_SYNC, "clustersync", "clusterbarrier"),
    **_each(_SHUFFLE, "shfl", "shflup", "shfldown", "shuffledown", "shuffleup", "shflidx"),
    **_each("`ctx.shuffle_xor(x, mask)`", "shflxor", "shufflebfly", "shflbfly"),
    **_each(_VOTE, "any", "all", "vote", "voteany", "voteall", "voteballot", "activemask"),
    **_each(_SUM, "reduce", "sum", "reduceadd", "redux", "warpreduce", "reducemax", "blockreduce"),
    **_each("`f.cumsum()` of a fragment", "cumsum", "associativescan", "scan"),
    **_each("`f.argmax()` and `f.argmin()` of a fragment", "argmax", "argmin"),
    **_each("`ctx.atomic_exchange(tensor[i], x)`", "atomicexch", "atomicxchg"),
    **_each("`ctx.atomic_add(tensor[i], x)`", "atomicsub", "atomicinc", "atomicdec", "red"),
    **_each(_COPY, "cpasync", "memcpyasync", "asynccopy", "copy", "tmacopy", "cpasyncbulk"),
    **_each(_COPY, "asyncload", "asyncstore", "loadtensordescriptor", "prefetch"),
    **_each(_GROUPS, "cpasyncwait", "cpasynccommit", "commitgroup", "waitgroup", "storewait"),
    **_each(_PRODUCT, "wgmma", "dot", "tldot", "gemm", "matmul", "mmasync", "mmaasync", "tcgen05"),
    **_each(_PRODUCT, "warpgroupmma", "tcgen05mma", "umma", "dotscaled", "maketiledmma"),
    **_each("`ctx.wgmma_commit()`", "warpgroupcommitbatch", "wgmmacommitgroup", "commit"),
    **_each("`ctx.wgmma_wait(pending)`", "warpgroupwait", "wgmmawaitgroup", "warpgroupmmawait"),
    **_each("it is printed by itself before `ctx.mma`", "wgmmafence", "warpgrouparrive"),
    **_each("`ctx.mma_commit(mbar)`", "tcgen05commit", "ummacommit"),
    **_each(_MBARRIER, "mbarrier", "mbarrierinit", "initbarrier", "allocbarrier", "mbar"),
    **_each(_MBARRIER, "mbarrierwait", "mbarrierarrive", "expect", "arrive", "wait", "expecttx"),
    **_each("`f.load(tile)` of a fragment", "ldmatrix", "ldsm", "localload"),
    **_each("`ctx.store(tile, f)` of a fragment", "stmatrix", "stsm", "localstore"),
    **_each("`ctx.load(tensor[i, j])`", "ldg", "ldglobal", "ld", "get"),
    **_each("`ctx.store(tensor[i, j], x)`", "stg", "stglobal", "st", "put"),
    **_each(_SHARED, "shared", "sharedmemory", "allocateshared", "allocatesharedmemory", "alloc"),
    **_each(_SHARED, "allocshared", "smemalloc", "allocatesmem", "smemtile", "tile"),
    **_each("`tp.TmemAllocation(ctx, columns)`", "tmem", "allocatetensormemory", "tmemalloc"),
    **_each(_REGISTERS, "setmaxnreg", "setmaxregister", "warpgroupregalloc", "warpgroupregdealloc"),
    **_each("`ctx.print(format, *args)`", "printf", "deviceprint"),
    **_each("`ctx.assert_(cond, message)`", "assert", "deviceassert", "trap"),
    **_each(_STATIC, "constexpr", "staticassert", "staticprint", "const"),
    **_each("`ctx.select(cond, x, y)`", "where", "selp", "cond"),
    **_each("`ctx.max(x, y)`, `f.maximum(g)` of fragments", "maximum", "fmax", "fmaxf"),
    **_each("`ctx.min(x, y)`, `f.minimum(g)` of fragments", "minimum", "fmin", "fminf"),
    **_each("`ctx.ceil_div(x, y)`", "cdiv", "ceildiv", "divup"),
    **_each("write `x * y + z`, which the compiler may fuse", "fma", "fmaf", "mad"),
    **_each("write `x / y`", "div", "fdividef", "fdiv", "truediv"),
    **_each("write `x ** y`", "pow", "powf"),
    **_each(_LOOP, "for", "forrange", "staticrange", "rangeconstexpr", "unroll", "rangedynamic"),
    **_each("`for _ in ctx.loop_while(more)`", "while", "whileloop"),
    **_each(_BRANCH, "if", "else", "ifthen", "orelse", "branch", "unless"),
    **_each("`with ctx.elect_one():`", "elect", "electsync", "leader", "elected", "singlethread"),
    **_each("`@ctx.role(name, warps=)`", "warpspecialize", "warprole", "warps", "warpgroups"),
    **_each(_NUMBERS, "arange", "iota", "index"),
    **_each(_FRAGMENT, "zeros", "full", "zeroslike", "fulllike", "empty", "makefragment", "ones"),
    **_each(_FRAGMENT, "makermemtensor", "maketensor", "register", "registers", "local"),
    **_each("a fragment broadcasts as in NumPy", "expanddims", "broadcast", "broadcastto"),
    **_each(_TURN, "trans", "transpose", "permute"),
    **_each(_MAP, "maketensordescriptor", "makeblockptr", "tensormap", "descriptor"),
    **_each(_CONVERT.format("x"), "cast", "convert", "astype", "bitcast", "reinterpretcast"),
    **_each(_FENCE, "threadfence", "threadfenceblock", "threadfencesystem", "memfence", "membar"),
    **_each("`ctx.fence_proxy_async()`", "fenceasyncshared", "fenceviewasyncshared", "proxyfence"),
    **_each("`ctx.fence_barrier_init()`", "fencembarrierinit", "mbarrierinitfence"),
    **_each("`ctx.launch_dependents()`", "griddepcontrollaunchdependents", "pdllaunch"),
    **_each("`ctx.grid_dependency_wait()`", "griddepcontrolwait", "pdlwait", "griddepcontrol"),
    **_each("`ctx.grid_dependency_wait()`", "cudagriddependencysynchronize"),
    **_each("`tilepipe timeline` shows when each op begins and ends", "clock", "clock64"),
    **{
        name: _FUNCTION.format(function)
        for function in (
            *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "tanh", "sin", "cos", "erf"),
            *("sigmoid", "floor", "ceil", "round", "abs", "neg"),
        )
        for name in (function, f"{function}f", f"f{function}")
    },
}

FRAGMENT = {
    **_each(_TURN, "t", "transpose", "trans", "mt", "permute"),
    **_each(_CONVERT.format("f"), "astype", "cast", "float", "half", "view", "bfloat16"),
    **_each("`f.sum() / n`, where n is the number of columns", "mean"),
    **_each("`f.cols(start, count)` are some of its columns", "slice", "narrow", "split", "rows"),
    **_each("`ctx.store(tile, f)` and `ctx.store_global(tensor, coords, f)`", "store", "tofile"),
    **_each("`f.load(tile)` reads a tile; `f.set(x)` takes an expression", "copy", "clone"),
    **_each("`f.any()`, under `ctx.per_warp()`; `~(~cond).any()` is all", "all"),
    **{
        name: f'`f.apply("{name}")`'
        for name in (
            *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "tanh", "sin", "cos", "erf"),
            *("sigmoid", "floor", "ceil", "round", "abs", "neg"),
        )
    },
}

TILE = {
    **_each(_OPERAND, "mt"),
    **_each(_TURN + "; " + _OPERAND, "t", "transpose", "trans", "permute"),
    **_each("`f.load(tile)` of a fragment; `ctx.load(tile[r, c])` of one element", "load", "get"),
    **_each("`ctx.store(tile, f)`; `ctx.store(tile[r, c], x)` of one element", "store", "set"),
    **_each("`tile.rows(start, n)`, `tile.cols(start, n)`, `tile.part(...)`", "slice", "narrow"),
    **_each("`tiles.view(shape)` of the array of tiles", "view", "reshape"),
    **_each("`tile.nbytes`", "size", "bytes", "numbytes", "tilebytes"),
}

TENSOR = {
    **_each("bind the kernel to `array.T`, or to `tp.tensor_map(array.T, box=...)`", "t"),
    **_each("bind the kernel to `array.T`", "transpose", "trans", "permute"),
    **_each("`ctx.load(a[i, j])`, `ctx.load_global(a, coords, shape)`, `ctx.tma_load`", "load"),
    **_each("`ctx.store(a[i, j], x)`, `ctx.store_global(a, coords, f)`, `ctx.tma_store`", "store"),
    **_each("bind the kernel to an array of that shape", "view", "reshape", "flatten"),
    **_each("`a.rank`", "ndim", "dim"),
    **_each("`a.shape`", "size", "numel"),
}

VALUE = {
    **_each(_CONVERT.format("x"), "astype", "cast", "float", "int", "half", "view"),
    **_each("a traced value has no number before the kernel runs; `ctx.print` shows it", "item"),
    **_each("a variable, `v = ctx.var(x)`, has `v.set` and `v.get`", "set", "get"),
}
