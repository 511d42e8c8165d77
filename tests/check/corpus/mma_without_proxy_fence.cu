// Four warps widen an operand into shared memory by ordinary stores; after __syncthreads one thread
// issues the MMA that reads it. The MMA reads through the async proxy: without a fence by each
// writer it may read what stood there before.
// Source: sgl-project/sglang pull request 39124 (KDA prefill on Blackwell).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(128) kernel(const u8* in, u32* out) {
    __shared__ alignas(128) u16 a[128 * 16];
    __shared__ alignas(128) u16 b[16 * 16];
    __shared__ u64 done;
    __shared__ u32 columns;
    if (warp() == 0) tmem_alloc(&columns, 32);
    if (threadIdx.x == 0) {
        init(&done, 1);
        fence_init();
    }
    for (u32 i = threadIdx.x; i < 128 * 16; i += 128) a[i] = (u16)(in[i] << 8);
    b[threadIdx.x] = b[threadIdx.x + 128] = 0x3f80;
#if !BUG
    fence_proxy_async();
#endif
    __syncthreads();
    u32 accumulator = columns;
    if (warp() == 0 && elect()) {
        mma(accumulator, descriptor(a, 128, 256), descriptor(b, 128, 256));  // the bug
        mma_commit(&done);
    }
    wait(&done, 0);
    tmem_fence_after();
    u32 value = tmem_load(accumulator + (warp() * 32 << 16));
    tmem_wait_load();
    out[threadIdx.x] = value;
    __syncthreads();
    if (warp() == 0) {
        tmem_relinquish();
        tmem_dealloc(accumulator, 32);
    }
}
