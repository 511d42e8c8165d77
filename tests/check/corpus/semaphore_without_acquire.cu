// Two CTAs add to one tile in turn. The second spins until a flag says that the first is through,
// by relaxed loads: what the first has written is not ordered before what the second reads.
// Source: NVIDIA/cutlass issue 3117 (distributed GEMM spins on a relaxed load); Fuser pull request
// 2391 has the release side of the same mistake in split-K.

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(const float* in, float* out, u32* turn) {
    float mine = in[blockIdx.x * 32 + threadIdx.x];
    if (blockIdx.x > 0) {
        if (threadIdx.x == 0) {
#if BUG
            while (load_relaxed(turn) != blockIdx.x) {}
#else
            while (load_acquire(turn) != blockIdx.x) {}
#endif
        }
        __syncthreads();
        mine += out[threadIdx.x];  // the bug
    }
    out[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) store_release(turn, blockIdx.x + 1);
}
