// CTA 1 hands a slot back to CTA 0 at the end of the kernel. CTA 0 waits for nothing any more and
// may have ended: then the arrive hits shared memory of a CTA that is gone.
// Source: sgl-project/sglang pull request 32954 (cluster synchronised only at the kernel's start).

#include "corpus.cuh"

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32)
    kernel(const float* in, float* out) {
    __shared__ u64 empty;
    u32 rank = cluster_rank();
    if (threadIdx.x == 0) {
        init(&empty, 1);
        fence_init();
    }
    cluster_sync();
    out[rank * 32 + threadIdx.x] = in[rank * 32 + threadIdx.x];
    __syncwarp();
    if (rank == 1 && threadIdx.x == 0) arrive_at(&empty, 0);  // the bug
#if !BUG
    cluster_sync();
#endif
}
