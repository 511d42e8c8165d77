// Wrappers of PTX instructions: one small device function each, after a line that says where the PTX ISA defines what it wraps.
// A printed kernel contains the ones it uses, as they stand here. Shared addresses are the 32-bit kind; `bar` is the address
// of an mbarrier, `remote_bar` one that on_cta() gave.

// Special Registers: %laneid
__device__ __forceinline__ u32 lane_id() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// elect.sync: true in one lane; the warp is converged here
__device__ __forceinline__ bool elect_one() {
    u32 elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
    return elected;
}

// elect.sync: true in one of these lanes, all of which are here
__device__ __forceinline__ bool elect_of(u32 lanes) {
    u32 elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(elected) : "r"(lanes));
    return elected;
}

// Special Registers: %cluster_ctarank
__device__ __forceinline__ u32 cluster_cta_rank() {
    u32 x;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
    return x;
}

// Special Registers: %clusterid.x
__device__ __forceinline__ u32 cluster_index() {
    u32 x;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(x));
    return x;
}

// Special Registers: %nclusterid.x
__device__ __forceinline__ u32 cluster_count() {
    u32 x;
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(x));
    return x;
}

// State Spaces: an address of the .shared window
__device__ __forceinline__ u32 shared_address(const void* p) {
    return static_cast<u32>(__cvta_generic_to_shared(p));
}

// mapa: the same shared address in another CTA of the cluster
__device__ __forceinline__ u32 on_cta(u32 address, u32 cta) {
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(cta));
    return remote;
}

// griddepcontrol.wait: until the grids that this one depends on have ended and their memory is visible
__device__ __forceinline__ void grid_dependency_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// griddepcontrol.launch_dependents: the next grid may start where there is room
__device__ __forceinline__ void grid_launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// setmaxnreg
template <int N>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// setmaxnreg
template <int N>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// mbarrier.init
__device__ __forceinline__ void mbarrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

// mbarrier.inval
__device__ __forceinline__ void mbarrier_inval(u32 bar) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
}

// mbarrier.arrive (release, this CTA)
__device__ __forceinline__ void arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

// mbarrier.arrive (release, this CTA)
__device__ __forceinline__ void arrive_n(u32 bar, u32 count) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

// The plain form releases at the scope of the CTA and costs no MEMBAR, unlike .release.cluster: for arrivals that publish finished reads.
// mbarrier.arrive (another CTA's barrier; publishes no ordinary access to that CTA)
__device__ __forceinline__ void arrive_remote_relaxed(u32 remote_bar) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(remote_bar) : "memory");
}

// mbarrier.arrive (another CTA's barrier; publishes no ordinary access to that CTA)
__device__ __forceinline__ void arrive_remote_relaxed_n(u32 remote_bar, u32 count) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0], %1;" :: "r"(remote_bar), "r"(count) : "memory");
}

// mbarrier.arrive (another CTA's barrier; release at cluster scope)
__device__ __forceinline__ void arrive_remote(u32 remote_bar) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(remote_bar) : "memory");
}

// mbarrier.arrive (another CTA's barrier; release at cluster scope)
__device__ __forceinline__ void arrive_remote_n(u32 remote_bar, u32 count) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;" :: "r"(remote_bar), "r"(count) : "memory");
}

// mbarrier.arrive.expect_tx
__device__ __forceinline__ void arrive_expect_tx(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

// mbarrier.arrive.expect_tx (another CTA's barrier; release at cluster scope)
__device__ __forceinline__ void arrive_expect_tx_remote(u32 remote_bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" :: "r"(remote_bar), "r"(bytes) : "memory");
}

// mbarrier.arrive.expect_tx (another CTA's barrier; publishes no ordinary access to that CTA)
__device__ __forceinline__ void arrive_expect_tx_remote_relaxed(u32 remote_bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" :: "r"(remote_bar), "r"(bytes) : "memory");
}

// mbarrier.expect_tx
__device__ __forceinline__ void expect_tx(u32 bar, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

// mbarrier.expect_tx (another CTA's barrier)
__device__ __forceinline__ void expect_tx_remote(u32 remote_bar, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" :: "r"(remote_bar), "r"(bytes) : "memory");
}

// mbarrier.complete_tx
__device__ __forceinline__ void complete_tx(u32 bar, u32 bytes) {
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

// mbarrier.complete_tx (another CTA's barrier)
__device__ __forceinline__ void complete_tx_remote(u32 remote_bar, u32 bytes) {
    asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" :: "r"(remote_bar), "r"(bytes) : "memory");
}

// mbarrier.try_wait.parity: whether the phase of that parity is complete
__device__ __forceinline__ bool try_wait(u32 bar, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    return done;
}

// mbarrier.try_wait.parity: until the phase of that parity is complete
__device__ __forceinline__ void wait(u32 bar, u32 parity) {
    while (!try_wait(bar, parity)) {
    }
}

// mbarrier.try_wait.parity: the same, acquiring what other CTAs of the cluster released
__device__ __forceinline__ bool try_wait_cluster(u32 bar, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    return done;
}

// mbarrier.try_wait.parity: the same, acquiring what other CTAs of the cluster released
__device__ __forceinline__ void wait_cluster(u32 bar, u32 parity) {
    while (!try_wait_cluster(bar, parity)) {
    }
}

// barrier.cta (bar.sync)
__device__ __forceinline__ void named_sync(u32 id, u32 threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// barrier.cta (bar.arrive)
__device__ __forceinline__ void named_arrive(u32 id, u32 threads) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// barrier.cluster
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// barrier.cluster
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// membar / fence
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// membar / fence: ordinary accesses to this CTA's shared memory before asynchronous ones
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// membar / fence: ordinary accesses to the shared memory of any CTA of the cluster before asynchronous ones
__device__ __forceinline__ void fence_proxy_async_cluster() {
    asm volatile("fence.proxy.async.shared::cluster;" ::: "memory");
}

// membar / fence: ordinary accesses to global memory before asynchronous ones
__device__ __forceinline__ void fence_proxy_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// membar / fence: ordinary accesses to any memory before asynchronous ones; ptxas 13 leaves out the fence of global memory, so
// fence_proxy_async_global() follows
__device__ __forceinline__ void fence_proxy_async_all() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

// createpolicy.fractional; ptxas makes a constant of it
__device__ __forceinline__ u64 evict_first() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// createpolicy.fractional; ptxas makes a constant of it
__device__ __forceinline__ u64 evict_last() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// prefetch.tensormap
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// cp.async.bulk.commit_group
__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// cp.async.bulk.wait_group: at most N groups of this thread unfinished
template <int N>
__device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// cp.async.bulk.wait_group.read: at most N groups of this thread still reading shared memory
template <int N>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// wgmma.fence
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// wgmma.commit_group
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// wgmma.wait_group: at most N groups of this warpgroup unfinished
template <int N>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Never taken, since there is a CTA; ptxas moves a wgmma.wait_group up, above computation that was to run beside the MMAs
// that it waits for, but not above a branch.
__device__ __forceinline__ void no_earlier() {
    if (gridDim.x == 0) {
        asm volatile("nanosleep.u32 0;" ::: "memory");
    }
}

// Operands of an empty asm
__device__ __forceinline__ void keep_register(float& x) {
    asm volatile("" : "+f"(x)::"memory");
}
__device__ __forceinline__ void keep_register(u32& x) {
    asm volatile("" : "+r"(x)::"memory");
}

// No instruction: the compiler moves no use of these registers across it. wgmma and tcgen05.ld use them while other code runs.
template <typename T, int M, int N>
__device__ __forceinline__ void keep(T (&x)[M][N]) {
    #pragma unroll
    for (int i = 0; i < M; ++i) {
        #pragma unroll
        for (int r = 0; r < N; ++r) keep_register(x[i][r]);
    }
}

// wgmma, Matrix Descriptor Format: matrix-descriptor-encode(address)
__device__ __forceinline__ u32 matrix_start(u32 address) {
    return (address & 0x3ffff) >> 4;
}

// ldmatrix
__device__ __forceinline__ void ldmatrix_x4(u32 row, u32& a, u32& b, u32& c, u32& d) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row) : "memory");
}

// ldmatrix
__device__ __forceinline__ void ldmatrix_x2(u32 row, u32& a, u32& b) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(row) : "memory");
}

// ldmatrix
__device__ __forceinline__ void ldmatrix_x2_trans(u32 row, u32& a, u32& b) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(row) : "memory");
}

// ldmatrix
__device__ __forceinline__ void ldmatrix_x4_trans(u32 row, u32& a, u32& b, u32& c, u32& d) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row) : "memory");
}

// stmatrix
__device__ __forceinline__ void stmatrix_x4(u32 row, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// stmatrix
__device__ __forceinline__ void stmatrix_x2(u32 row, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b) : "memory");
}

// stmatrix
__device__ __forceinline__ void stmatrix_x2_trans(u32 row, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b) : "memory");
}

// stmatrix
__device__ __forceinline__ void stmatrix_x4_trans(u32 row, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
