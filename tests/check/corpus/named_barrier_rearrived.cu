// Compute warps tell the load warp that a tile is over by bar.arrive and go on. Where tiles have no
// work nothing holds them up, and they arrive again before the load warp has come: the barrier has
// been armed twice for one phase.
// Source: vllm-project/vllm pull request 26026 (CUTLASS MLA, early return with arrive).

#include "corpus.cuh"

constexpr int TILES = 3;

extern "C" __global__ void __launch_bounds__(96) kernel(const float* in, float* out) {
    __shared__ float stage[64];
    for (int tile = 0; tile < TILES; ++tile) {
        if (warp() < 2) {
            out[tile * 64 + threadIdx.x] = in[tile * 64 + threadIdx.x];
#if BUG
            arrive_named(1, 96);  // the bug
#else
            sync(1, 96);
#endif
        } else {
            sync(1, 96);
            stage[lane()] = (float)tile;
        }
    }
}
