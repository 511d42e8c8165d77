// One warp allocates tensor memory, which writes the address to shared memory. Another reads it
// there, relying on barriers between the two that a tile without work skips.
// Source: NVIDIA/cutlass pull request 2835 (example 77, no KV tile).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(64) kernel(u32* out, int tiles) {
    __shared__ u32 columns;
    __shared__ u64 ready;
    if (threadIdx.x == 0) {
        init(&ready, 32);
        fence_init();
    }
    __syncthreads();
    if (warp() == 0) {
        tmem_alloc(&columns, 32);
        tmem_relinquish();
        if (!BUG || tiles > 0) arrive(&ready);
    } else {
        if (!BUG || tiles > 0) wait(&ready, 0);
        u32 address = columns;  // the bug
        out[lane()] = address;
        tmem_dealloc(address, 32);
    }
}
