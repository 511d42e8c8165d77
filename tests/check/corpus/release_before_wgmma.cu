// The consumer of a ring of stages hands a stage back as soon as it has issued the wgmma that reads
// it. The producer then loads the next tile while the tensor core is still reading this one.
// Source: NVIDIA/Fuser issue 3561 (no commit and wait before the arrive on the empty barrier).

#include "corpus.cuh"

constexpr int TILES = 3, STAGES = 2, A = 64 * 16, B = 8 * 16;

struct alignas(128) Stage {
    u16 a[A];
    u16 b[B];
};

extern "C" __global__ void __launch_bounds__(160) kernel(const u16* in, float* out) {
    __shared__ Stage stages[STAGES];
    __shared__ u64 full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            init(&full[s], 1);
            init(&empty[s], 1);
        }
        fence_init();
    }
    __syncthreads();
    if (warp() == 4) {
        if (elect()) {
            for (int tile = 0; tile < TILES; ++tile) {
                int s = tile % STAGES;
                wait(&empty[s], tile / STAGES % 2 ^ 1);
                expect(&full[s], sizeof(Stage));
                load(&stages[s], in + tile * (A + B), sizeof(Stage), &full[s]);  // the bug
            }
        }
        return;
    }
    float d[4] = {};
    for (int tile = 0; tile < TILES; ++tile) {
        int s = tile % STAGES;
        wait(&full[s], tile / STAGES % 2);
        wgmma_fence();
        wgmma(d, descriptor(stages[s].a, 128, 256), descriptor(stages[s].b, 128, 256));
        wgmma_commit();
#if !BUG
        wgmma_wait<0>(d);
#endif
        sync(1, 128);
        if (threadIdx.x == 0) arrive(&empty[s]);
    }
    wgmma_wait<0>(d);
    for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = d[i];
}
