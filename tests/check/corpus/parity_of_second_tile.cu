// A persistent kernel runs its K loop for several tiles, and derives the parity of each wait from
// the step within the tile. After a tile whose steps are no multiple of twice the stages, the phases
// of the barriers go on where they were, and the parities begin again.
// Source: tile-ai/tilelang pull request 2674 (warp specialisation in a persistent loop).

#include "corpus.cuh"

constexpr int TILES = 2, STEPS = 3, STAGES = 2, ELEMENTS = 32;

extern "C" __global__ void __launch_bounds__(64) kernel(const float* in, float* out) {
    __shared__ alignas(128) float stage[STAGES][ELEMENTS];
    __shared__ u64 full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            init(&full[s], 1);
            init(&empty[s], 32);
        }
        fence_init();
    }
    __syncthreads();
    for (int tile = 0; tile < TILES; ++tile) {
        float sum = 0;
        for (int step = 0; step < STEPS; ++step) {
            int k = BUG ? step : tile * STEPS + step, s = k % STAGES;
            if (warp() == 0) {
                if (elect()) {
                    wait(&empty[s], k / STAGES % 2 ^ 1);  // the bug
                    expect(&full[s], sizeof(stage[s]));
                    load(stage[s], in + (tile * STEPS + step) * ELEMENTS, sizeof(stage[s]),
                         &full[s]);
                }
            } else {
                wait(&full[s], k / STAGES % 2);
                sum += stage[s][lane()];
                arrive(&empty[s]);
            }
        }
        if (warp() == 1) out[tile * ELEMENTS + lane()] = sum;
    }
}
