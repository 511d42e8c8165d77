// A kernel stores a tile by TMA and loads it back. wait_group.read says that the store has read
// shared memory, not that it has written global memory: the load may come first.
// Source: triton-lang/triton pull request 10415 (TMAStoreWaitOp waited for the reads only).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(float* data, float* out) {
    __shared__ alignas(128) float tile[32], again[32];
    __shared__ u64 full;
    tile[threadIdx.x] = (float)threadIdx.x;
    fence_proxy_async();
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        store(data, tile, sizeof(tile));
#if BUG
        wait_stores_read<0>();
#else
        wait_stores<0>();
#endif
        expect(&full, sizeof(again));
        load(again, data, sizeof(again), &full);  // the bug
    }
    wait(&full, 0);
    out[threadIdx.x] = again[threadIdx.x];
}
