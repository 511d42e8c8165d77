// A warpgroup writes an operand of its next wgmma into shared memory and issues the wgmma at once.
// wgmma.fence orders registers. Each warp reads all of B, which the other three warps write: there
// must be a barrier of the four, and a proxy fence before it.
// Source: pengcuo/FlashMLA-ETAP pull request 3 (P is handed to wgmma without fence and barrier).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(128) kernel(const u32* a, const u16* in, float* out) {
    __shared__ alignas(128) u16 p[8 * 16];
    u32 fragment[4];
    for (int i = 0; i < 4; ++i) fragment[i] = a[i * 128 + threadIdx.x];
    float d[4] = {};
    p[threadIdx.x] = in[threadIdx.x];
    fence_proxy_async();
#if !BUG
    sync(1, 128);
#endif
    wgmma_fence();
    wgmma(d, fragment, descriptor(p, 128, 256));  // the bug
    wgmma_commit();
    wgmma_wait<0>(d);
    for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = d[i];
}
