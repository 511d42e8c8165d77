// Each round of a radix top-k counts into shared memory, reads the counts and begins the next round
// by clearing them. Threads that are through clear counts that others are about to read.
// Source: flashinfer-ai/flashinfer pull request 3529 (FilteredTopK, overflow refinement).

#include "corpus.cuh"

constexpr int ROUNDS = 2;

extern "C" __global__ void __launch_bounds__(64) kernel(const u32* in, u32* out) {
    __shared__ u32 counts[64];
    u32 left = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        counts[threadIdx.x] = 0;  // the bug
        __syncthreads();
        atomicAdd(&counts[in[threadIdx.x] >> (4 * round) & 15], 1);
        __syncthreads();
        left += counts[63 - threadIdx.x];
#if !BUG
        __syncthreads();
#endif
    }
    out[threadIdx.x] = left;
}
