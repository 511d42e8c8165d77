// The epilogue loads an accumulator from tensor memory and hands it back to the warp that issues
// MMAs. tcgen05.ld is asynchronous: without tcgen05.wait::ld the next MMA may overwrite the columns
// while they are being read.
// Source: vllm-project/flash-attention pull request 182; flashinfer-ai/flashinfer issue 5334.

#include "corpus.cuh"

constexpr int TILES = 2;

extern "C" __global__ void __launch_bounds__(160) kernel(const u16* in, u32* out) {
    __shared__ alignas(128) u16 a[128 * 16];
    __shared__ alignas(128) u16 b[16 * 16];
    __shared__ u64 full, empty;
    __shared__ u32 columns;
    if (warp() == 4) {
        tmem_alloc(&columns, 32);
        tmem_relinquish();
    }
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&empty, 128);
        fence_init();
    }
    for (u32 i = threadIdx.x; i < 128 * 16; i += 160) a[i] = in[i];
    if (threadIdx.x < 128) b[threadIdx.x] = b[threadIdx.x + 128] = 0x3f80;
    fence_proxy_async();
    __syncthreads();
    u32 accumulator = columns;
    if (warp() == 4) {
        for (int tile = 0; tile < TILES; ++tile) {
            wait(&empty, tile % 2 ^ 1);
            tmem_fence_after();
            if (elect()) {
                mma(accumulator, descriptor(a, 128, 256), descriptor(b, 128, 256));  // the bug
                mma_commit(&full);
            }
            __syncwarp();
        }
    } else {
        for (int tile = 0; tile < TILES; ++tile) {
            wait(&full, tile % 2);
            tmem_fence_after();
            u32 value = tmem_load(accumulator + (warp() * 32 << 16));
#if !BUG
            tmem_wait_load();
#endif
            tmem_fence_before();
            arrive(&empty);
#if BUG
            tmem_wait_load();
#endif
            out[tile * 128 + threadIdx.x] = value;
        }
    }
    __syncthreads();
    if (warp() == 4) tmem_dealloc(accumulator, 32);
}
