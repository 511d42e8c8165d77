// Each warp of a persistent kernel reads the scheduler's answer. It hands the slot back first and
// reads afterwards: the next answer may already be there, and warps go different ways.
// Source: tile-ai/tilelang pull request 2420 (schedule_finished is arrived on before the read).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(64) kernel(u32* out) {
    __shared__ alignas(16) u64 answer[2];
    __shared__ u64 full, empty;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&empty, 64);
        fence_init();
    }
    __syncthreads();
    u32 block = blockIdx.x, step = 0;
    bool more = true;
    while (more) {
        if (warp() == 0) {
            if (elect()) {
                wait(&empty, step % 2 ^ 1);
                expect(&full, sizeof(answer));
                try_cancel(answer, &full);  // the bug
            }
            __syncwarp();
        } else {
            out[block * 32 + lane()] = block + 1;
        }
        wait(&full, step % 2);
#if BUG
        arrive(&empty);
        more = next_block(answer, &block);
        fence_proxy_async();
#else
        more = next_block(answer, &block);
        fence_proxy_async();
        arrive(&empty);
#endif
        ++step;
    }
}
