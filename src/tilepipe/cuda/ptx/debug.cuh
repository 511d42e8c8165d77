// The functions that a debug or perturbed build adds to a kernel. `tilepipe.cuda.debug.hang` reads
// the record, and must agree on its layout.
// A wait that blocks for longer than the limit fills the record and sets its flag. Then every wait is
// given up: each role runs on to its end, but no longer arrives, copies or stores.

// A wait that was given up while it blocked; `state` is the word of the barrier at that moment.
struct DebugWait { u32 site, block, warp, index, parity, unused; u64 state; };
// The record, in global memory. `cluster`: 1 + the cluster whose wait expired first; `waits`: the
// number of other waits of that cluster that were given up.
struct DebugRecord { u32 abort, cluster, waits, unused; u64 limit_ns, unused_too; DebugWait first, others[62]; };
// After the kernel's own shared memory. `aborted`: this CTA has given up a wait; `meeting`: the cluster
// barrier (the one of CTA 0 counts); `named`: named barriers by id; `generation`, `delays`: by warp, the
// generation of its last arrival at `meeting` and the number of its delays.
struct DebugState { DebugRecord* record; u64 limit_ns; u32 aborted, seed, meeting, unused, named[16], generation[32], delays[32]; };
// The clock at the start of a wait, and when the wait last read the flag of the record.
struct DebugWatch { u64 since = 0, polled = 0; };
static_assert(sizeof(DebugRecord) == 2048 && sizeof(DebugState) == debug_bytes, "");
__device__ __forceinline__ volatile DebugState& debug_state() {
    return *reinterpret_cast<volatile DebugState*>(smem + debug_offset);
}

// Special Registers: %globaltimer, nanoseconds
__device__ __forceinline__ u64 debug_clock() {
    u64 x;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x));
    return x;
}

// executed before everything else, by all threads of the CTA
__device__ __forceinline__ void debug_begin(DebugRecord* record, u32 seed) {
    volatile DebugState& s = debug_state();
    for (u32 i = threadIdx.x; i < sizeof(DebugState) / 4; i += blockDim.x) reinterpret_cast<volatile u32*>(&s)[i] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        s.record = record;
        s.seed = seed;
        s.limit_ns = record != nullptr && record->limit_ns != 0 ? record->limit_ns : 2000000000ull;
    }
    __syncthreads();
}

// whether this CTA has given up a wait: its shared memory may then hold undefined data
__device__ __forceinline__ bool debug_aborted() {
    return debug_state().aborted != 0;
}

// Enters a blocked wait in the record; true if it is the first one of the launch.
__device__ __forceinline__ bool debug_enter(u32 site, u32 index, u32 parity, u64 state) {
    DebugRecord* record = debug_state().record;
    const u32 cluster = blockIdx.x / debug_cluster + 1;
    const u32 claimed = atomicCAS(&record->cluster, 0u, cluster);
    if (claimed != 0 && claimed != cluster) return false;
    const u32 slot = claimed == 0 ? 0 : atomicAdd(&record->waits, 1u);
    if (slot >= 62) return false;
    DebugWait* entry = claimed == 0 ? &record->first : &record->others[slot];
    entry->site = site;
    entry->block = blockIdx.x;
    entry->warp = threadIdx.x / 32;
    entry->index = index;
    entry->parity = parity;
    entry->state = state;
    return claimed == 0;
}

// Whether a wait that still blocks is to be given up. One of the active lanes decides for all.
__device__ __forceinline__ bool debug_gives_up(DebugWatch& watch, u32 site, u32 index, u32 parity, u64 state) {
    volatile DebugState& s = debug_state();
    const u64 now = debug_clock();
    const bool blocked = watch.since != 0;
    if (!blocked) watch.since = now;
    bool over = s.aborted != 0;
    if (!over && now - watch.polled > 2000) {
        watch.polled = now;
        over = static_cast<volatile DebugRecord*>(s.record)->abort != 0;
    }
    const bool expired = now - watch.since > s.limit_ns;
    if (!over && !expired) return false;
    const u32 here = __activemask();
    if (blocked && __popc(here & ((1u << lane_id()) - 1)) == 0 && debug_enter(site, index, parity, state)) {
        __threadfence_system();
        static_cast<volatile DebugRecord*>(s.record)->abort = 1;
    }
    s.aborted = 1;
    return true;
}

// mbarrier: its 64 bits, which PTX leaves opaque
__device__ __forceinline__ u64 debug_word(u32 bar) {
    u64 x;
    asm volatile("ld.shared::cta.u64 %0, [%1];" : "=l"(x) : "r"(bar) : "memory");
    return x;
}

// mbarrier.try_wait.parity: until the phase of that parity is complete, or the launch is given up
__device__ __forceinline__ void debug_wait(u32 bar, u32 parity, u32 site, u32 index) {
    DebugWatch watch;
    while (!debug_aborted() && !try_wait(bar, parity)) {
        if (debug_gives_up(watch, site, index, parity, debug_word(bar))) return;
    }
}

// mbarrier.try_wait.parity: the same, acquiring what other CTAs of the cluster released
__device__ __forceinline__ void debug_wait_cluster(u32 bar, u32 parity, u32 site, u32 index) {
    DebugWatch watch;
    while (!debug_aborted() && !try_wait_cluster(bar, parity)) {
        if (debug_gives_up(watch, site, index, parity, debug_word(bar))) return;
    }
}

// A named barrier in shared memory, since bar.sync cannot be given up: bits 0-15 are the warps that have arrived, 16-31 the generation.
__device__ __forceinline__ u32 debug_named_arrive(u32 id, u32 threads) {
    u32* word = const_cast<u32*>(&debug_state().named[id]);
    u32 seen = 0;
    __syncwarp();
    if (lane_id() == 0) {
        __threadfence_block();
        seen = *static_cast<volatile u32*>(word);
        for (u32 expected = ~seen; expected != seen;) {
            expected = seen;
            const bool last = (expected & 0xffff) + 1 == threads / 32;
            seen = atomicCAS(word, expected, last ? ((expected >> 16) + 1) << 16 : expected + 1);
        }
    }
    return __shfl_sync(0xffffffff, seen >> 16, 0);
}

// the same, and until all threads have arrived or the launch is given up
__device__ __forceinline__ void debug_named_sync(u32 id, u32 threads, u32 site, u32 index) {
    if (__any_sync(0xffffffff, debug_aborted())) return;
    const u32 generation = debug_named_arrive(id, threads);
    DebugWatch watch;
    for (u32 word = debug_state().named[id]; word >> 16 == generation; word = debug_state().named[id]) {
        if (debug_gives_up(watch, site, index, 0, word)) return;
    }
    __threadfence_block();
}

// barrier.cluster cannot be given up either. In CTA 0 of the cluster: bits 0-9 are the warps that have arrived, 10-19 those that
// have left the kernel, 20-31 the generation. Adds a warp to one of the two; returns the word it found.
__device__ __forceinline__ u32 debug_meet(u32 add, u32 warps) {
    const u32 word = on_cta(shared_address(const_cast<u32*>(&debug_state().meeting)), 0);
    u32 seen = 0, expected = ~0u;
    __threadfence();
    while (expected != seen) {
        expected = seen;
        u32 next = expected + add;
        const u32 arrived = next & 0x3ff, left = next >> 10 & 0x3ff;
        if (arrived != 0 && arrived + left == warps) next = (next & ~0x3ffu) + (1u << 20);
        asm volatile("atom.acq_rel.cluster.shared::cluster.cas.b32 %0, [%1], %2, %3;"
                     : "=r"(seen) : "r"(word), "r"(expected), "r"(next) : "memory");
    }
    return seen;
}

// barrier.cluster.arrive
__device__ __forceinline__ void debug_cluster_arrive(u32 warps) {
    __syncwarp();
    if (lane_id() == 0) debug_state().generation[threadIdx.x / 32] = debug_meet(1, warps) >> 20;
    __syncwarp();
}

// barrier.cluster.wait, or until the launch is given up
__device__ __forceinline__ void debug_cluster_wait(u32 site) {
    const u32 word = on_cta(shared_address(const_cast<u32*>(&debug_state().meeting)), 0);
    const u32 generation = debug_state().generation[threadIdx.x / 32];
    DebugWatch watch;
    while (!debug_aborted()) {
        u32 seen;
        asm volatile("ld.acquire.cluster.shared::cluster.u32 %0, [%1];" : "=r"(seen) : "r"(word) : "memory");
        if (seen >> 20 != generation || debug_gives_up(watch, site, 0, generation & 1, seen)) break;
    }
    __threadfence();
}

// The end of a role: copies in flight land before the CTA that they write to exits.
__device__ __forceinline__ void debug_leave() {
    const u64 start = debug_clock();
    while (debug_aborted() && debug_clock() - start < 100000) {
    }
}

// barrier.cluster: the same in a cluster, whose CTAs leave together
__device__ __forceinline__ void debug_leave_cluster(u32 warps) {
    debug_leave();
    __syncwarp();
    if (lane_id() == 0) debug_meet(1u << 10, warps);
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// a hash of 32 bits
__device__ __forceinline__ u32 debug_hash(u32 x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// nanosleep, which takes up to twice the given time: the same for all lanes. A quarter of the warps
// are slow, and every warp is slow once in sixteen times.
__device__ __forceinline__ void debug_delay() {
    volatile DebugState& s = debug_state();
    const u32 warp = threadIdx.x / 32, n = s.delays[warp];
    s.delays[warp] = n + 1;
    const u32 who = debug_hash(s.seed ^ debug_hash(blockIdx.x * 32 + warp)), x = debug_hash(who + n);
    __nanosleep(x % ((who & 3) == 0 || x >> 28 == 0 ? 1024 : 64));
}
