// A loop with two stages copies by cp.async and reads after __syncthreads. The wait before it lets
// one group be pending, and the group of this stage is that one: the copies of the next stage have
// not been committed yet.
// Source: tile-ai/tilelang issue 2668 (the completion of a reordered copy is not awaited).

#include "corpus.cuh"

constexpr int STEPS = 3;

extern "C" __global__ void __launch_bounds__(64) kernel(const float* in, float* out) {
    __shared__ alignas(16) float stage[2][64];
    float sum = 0;
    copy_async(&stage[0][threadIdx.x], &in[threadIdx.x]);
    commit_copies();
    for (int step = 0; step < STEPS; ++step) {
        int s = step % 2;
#if BUG
        wait_copies<1>();
        __syncthreads();
#else
        wait_copies<0>();
        __syncthreads();
#endif
        if (step + 1 < STEPS) copy_async(&stage[s ^ 1][threadIdx.x], &in[(step + 1) * 64 + threadIdx.x]);
        commit_copies();
        sum += stage[s][63 - threadIdx.x];  // the bug
    }
    out[threadIdx.x] = sum;
}
