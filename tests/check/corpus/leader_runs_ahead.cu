// A consumer of several warps: each waits for the stage, and the first hands it back for all. It may
// do so before the others have seen the phase; the producer fills the stage again, and they wait for
// a parity that comes round a second time, or never.
// Source: triton-lang/triton pull request 10035 (no bar.sync before the arrive of the leader warp).

#include "corpus.cuh"

constexpr int TILES = 3;

extern "C" __global__ void __launch_bounds__(96) kernel(const float* in, float* out) {
    __shared__ alignas(128) float stage[64];
    __shared__ u64 full, empty;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&empty, 1);
        fence_init();
    }
    __syncthreads();
    for (int tile = 0; tile < TILES; ++tile) {
        if (warp() == 2) {
            if (elect()) {
                wait(&empty, tile % 2 ^ 1);
                expect(&full, sizeof(stage));
                load(stage, in + tile * 64, sizeof(stage), &full);  // the bug
            }
        } else {
            wait(&full, tile % 2);
            float value = stage[threadIdx.x];
#if BUG
            __syncwarp();
#else
            sync(1, 64);
#endif
            if (threadIdx.x == 0) arrive(&empty);
            out[tile * 64 + threadIdx.x] = value;
        }
    }
}
