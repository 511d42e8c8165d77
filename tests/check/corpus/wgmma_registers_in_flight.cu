// A of a wgmma comes from registers. The loop loads the next fragment of A before it waits for the
// wgmma that is still reading the last one from the same registers.
// Source: deepseek-ai/DeepGEMM issue 449 and pull request 448 (tf32_hc_prenorm_gemm).

#include "corpus.cuh"

constexpr int STEPS = 3;

extern "C" __global__ void __launch_bounds__(128) kernel(const u32* in, float* out) {
    __shared__ alignas(128) u16 b[8 * 16];
    b[threadIdx.x] = 0x3f80;
    fence_proxy_async();
    __syncthreads();
    float d[4] = {};
    u32 a[4];
#pragma unroll 1
    for (int step = 0; step < STEPS; ++step) {
        for (int i = 0; i < 4; ++i)
            a[i] = load_word(&in[(step * 4 + i) * 128 + threadIdx.x]);  // the bug
#if BUG
        if (step > 0) wgmma_wait<0>(d);
#endif
        wgmma_fence();
        wgmma(d, a, descriptor(b, 128, 256));
        wgmma_commit();
#if !BUG
        wgmma_wait<0>(d);
#endif
    }
    wgmma_wait<0>(d);
    for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = d[i];
}
