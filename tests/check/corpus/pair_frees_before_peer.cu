// Two CTAs allocate tensor memory as a pair. The leader has nothing to do and frees at once; its
// peer's alloc may not be through yet. Neither instruction waits for the other CTA.
// Source: NVIDIA/cutlass issue 3435 (unspecified launch failure, 100 of 100).

#include "corpus.cuh"

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32) kernel(u32* out) {
    __shared__ u32 columns;
    pair_alloc(&columns, 32);
    pair_relinquish();
#if !BUG
    cluster_sync();
#endif
    __syncwarp();
    out[blockIdx.x * 32 + threadIdx.x] = columns;
    pair_dealloc(columns, 32);  // the bug
}
