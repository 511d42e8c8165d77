// One CTA writes a message by ordinary stores and sets a flag. The other polls the flag, and loads the
// message by TMA: the acquire orders its ordinary loads, not a copy through the async proxy.
// Source: deepseek-ai/DeepEP pull request 642 and issue 621 (a flag is polled, and TMA sees old data).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(32)
    kernel(const float* in, float* message, u32* flag, float* out) {
    __shared__ alignas(128) float tile[32];
    __shared__ u64 full;
    if (blockIdx.x == 0) {
        message[threadIdx.x] = 2 * in[threadIdx.x];
#if !BUG
        fence_proxy_async_all();
#endif
        __syncthreads();
        if (threadIdx.x == 0) store_release(flag, 1);
        return;
    }
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        while (load_acquire(flag) != 1) {}
#if !BUG
        fence_proxy_async_all();
#endif
        expect(&full, sizeof(tile));
        load(tile, message, sizeof(tile), &full);  // the bug
    }
    __syncthreads();
    wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}
