// CTA 0 asks for the next cluster, and the answer goes to both CTAs with 16 bytes on the barrier of
// each. Only CTA 0 has armed its barrier: the phase of its peer's never completes as it should.
// Source: facebookexperimental/triton pull request 908 (barrier_expect_bytes by CTA 0 only).

#include "corpus.cuh"

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32) kernel(u32* out) {
    __shared__ alignas(16) u64 answer[2];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        if (!BUG || cluster_rank() == 0) expect(&full, sizeof(answer));
    }
    cluster_sync();
    if (cluster_rank() == 0 && threadIdx.x == 0) try_cancel_for_all(answer, &full);
    wait(&full, 0);  // the bug
    u32 block = blockIdx.x;
    bool more = next_block(answer, &block);
    out[(more ? block + cluster_rank() : blockIdx.x) * 32 + threadIdx.x] = 1;
    out[blockIdx.x * 32 + threadIdx.x] = 1;
    cluster_sync();
}
