// A tile is written by ordinary stores, and after __syncthreads one thread stores it by TMA.
// __syncthreads orders the threads, but TMA reads through the async proxy, and ordinary writes are
// visible there only after a fence.proxy.async by each thread that wrote.
// Source: MoonshotAI/FlashKDA issue 24 (the FP32 state of the forward kernel).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(128) kernel(const float* in, float* out) {
    __shared__ alignas(128) float tile[128];
    tile[threadIdx.x] = 2 * in[threadIdx.x];
#if !BUG
    fence_proxy_async();
#endif
    __syncthreads();
    if (threadIdx.x == 0) {
        store(out, tile, sizeof(tile));  // the bug
        wait_stores<0>();
    }
}
