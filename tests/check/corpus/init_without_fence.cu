// A barrier is initialised by an ordinary write, and TMA completes its bytes there through the async
// proxy. __syncthreads does not make the initialisation visible there; fence.mbarrier_init does.
// Source: MoonshotAI/FlashKDA issue 24 (three barriers outside the pipelines). Compilers ship code
// without the fence, so in practice this is advice; the strict rules refuse it.

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(const float* in, float* out) {
    __shared__ alignas(128) float tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
#if !BUG
        fence_init();
#endif
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&full, sizeof(tile));
        load(tile, in, sizeof(tile), &full);  // the bug
    }
    wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}
