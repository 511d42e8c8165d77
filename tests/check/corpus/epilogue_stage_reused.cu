// An epilogue has two stages. Before it writes one again it lets one TMA store be pending; but the
// store of this stage is the one before the last only if the wait stands after the next commit.
// Here it stands before, so the pending store is the one that still reads the stage.
// Source: deepseek-ai/DeepEP issue 657 (tma_copy waits for kNumStages - 1 stores).

#include "corpus.cuh"

constexpr int TILES = 4, STAGES = 2, ELEMENTS = 64;

extern "C" __global__ void __launch_bounds__(32) kernel(const float* in, float* out) {
    __shared__ alignas(128) float stage[STAGES][ELEMENTS];
    __shared__ u64 full[STAGES];
    if (threadIdx.x != 0) return;
    for (int s = 0; s < STAGES; ++s) init(&full[s], 1);
    fence_init();
    for (int s = 0; s < STAGES; ++s) {
        expect(&full[s], sizeof(stage[s]));
        load(stage[s], in + s * ELEMENTS, sizeof(stage[s]), &full[s]);
    }
    for (int tile = 0; tile < TILES; ++tile) {
        int s = tile % STAGES;
        wait(&full[s], tile / STAGES % 2);
        store(out + tile * ELEMENTS, stage[s], sizeof(stage[s]));
        if (tile + STAGES < TILES) {
#if BUG
            wait_stores_read<STAGES - 1>();
#else
            wait_stores_read<0>();
#endif
            expect(&full[s], sizeof(stage[s]));
            load(stage[s], in + (tile + STAGES) * ELEMENTS, sizeof(stage[s]), &full[s]);  // the bug
        }
    }
    wait_stores<0>();
}
