// CTA 0 loads a tile for both CTAs of the cluster. Before the second tile it waits for its own
// consumers, and not for those of its peer, which may still read the slot.
// Source: inclusionAI/humming pull request 56 (the leader waited for its own epilogue only).

#include "corpus.cuh"

constexpr int TILES = 2, ELEMENTS = 32;

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64)
    kernel(const float* in, float* out) {
    __shared__ alignas(128) float tile[ELEMENTS];
    __shared__ u64 full, empty;
    u32 rank = cluster_rank();
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&empty, BUG ? 1 : 2);
        fence_init();
    }
    __syncthreads();
    cluster_sync();
    if (warp() == 0) {
        if (elect()) {
            for (int t = 0; t < TILES; ++t) {
#if BUG
                wait_cluster(&empty, t % 2 ^ 1);
                expect(&full, sizeof(tile));
#else
                if (rank == 0) wait_cluster(&empty, t % 2 ^ 1);
                if (rank == 0)
                    for (u32 r = 0; r < 2; ++r) expect_at(&full, r, sizeof(tile));
#endif
                if (rank == 0)
                    load_for(tile, in + t * ELEMENTS, sizeof(tile), &full, 3);  // the bug
            }
        }
    } else {
        for (int t = 0; t < TILES; ++t) {
            wait_cluster(&full, t % 2);
            out[(rank * TILES + t) * ELEMENTS + lane()] = tile[lane()];
            __syncwarp();
            if (elect()) arrive_at(&empty, BUG ? rank : 0);
        }
    }
    __syncthreads();
    cluster_sync();
}
