// Two warpgroups multiply by the same B in shared memory. Each waits for its own wgmma before the
// next B is written, but nobody waits for the other warpgroup's.
// Source: tile-ai/tilelang issue 2613 (no barrier at the end of the loop's body).

#include "corpus.cuh"

constexpr int STEPS = 2;

extern "C" __global__ void __launch_bounds__(256) kernel(const u32* a, const u16* b, float* out) {
    __shared__ alignas(128) u16 tile[8 * 16];
    float d[4] = {};
    for (int step = 0; step < STEPS; ++step) {
#if !BUG
        __syncthreads();
#endif
        if (threadIdx.x < 128) tile[threadIdx.x] = b[step * 128 + threadIdx.x];  // the bug
        fence_proxy_async();
        __syncthreads();
        u32 fragment[4];
        for (int i = 0; i < 4; ++i) fragment[i] = a[(step * 4 + i) * 256 + threadIdx.x];
        wgmma_fence();
        wgmma(d, fragment, descriptor(tile, 128, 256));
        wgmma_commit();
        wgmma_wait<0>(d);
    }
    for (int i = 0; i < 4; ++i) out[i * 256 + threadIdx.x] = d[i];
}
