// Four warps read the accumulator from tensor memory, and the first frees the columns when its own
// reads are over. The other warps may still be reading.
// Source: mlc-ai/TIRx-kernels pull request 19 (no barrier of the four warps before the dealloc).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(128) kernel(u32* out) {
    __shared__ u32 columns;
    if (warp() == 0) {
        tmem_alloc(&columns, 32);
        tmem_relinquish();
    }
    __syncthreads();
    u32 mine = columns + (warp() * 32 << 16);
    tmem_store(mine, threadIdx.x);
    tmem_wait_store();
    u32 value = tmem_load(mine);
    tmem_wait_load();
    out[threadIdx.x] = value;
#if !BUG
    __syncthreads();
#endif
    if (warp() == 0) tmem_dealloc(columns, 32);  // the bug
}
