// Two groups of warps reduce at the same time, each over its own named barrier. Both get the same
// id, so that warps of one group complete the barrier of the other.
// Source: flashinfer-ai/flashinfer pull request 4533 (ids of the correction warpgroup collide).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(128) kernel(const float* in, float* out) {
    __shared__ float values[2][64];
    u32 group = threadIdx.x / 64, i = threadIdx.x % 64;
    u32 id = BUG ? 1 : 1 + group;
    values[group][i] = in[threadIdx.x];
    sync(id, 64);  // the bug
    out[threadIdx.x] = values[group][63 - i];
}
