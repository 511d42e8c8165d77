// CTA 0 loads a tile for both CTAs as soon as its own slot is free. The peer says that its slot is
// free by an arrive on its own barrier, where CTA 0 does not look: the second tile may land before
// the peer has read the first and armed its barrier again.
// Source: inclusionAI/humming pull request 54 (receivers of a multicast were not synchronised).

#include "corpus.cuh"

constexpr int TILES = 2, ELEMENTS = 32;

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32)
    kernel(const float* in, float* out) {
    __shared__ alignas(128) float tile[ELEMENTS];
    __shared__ u64 full;
    u32 rank = cluster_rank();
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
    }
    cluster_sync();
    for (int t = 0; t < TILES; ++t) {
        if (threadIdx.x == 0) expect(&full, sizeof(tile));
#if !BUG
        cluster_sync();
#endif
        if (rank == 0 && threadIdx.x == 0)
            load_for(tile, in + t * ELEMENTS, sizeof(tile), &full, 3);  // the bug
        wait(&full, t % 2);
        out[(rank * TILES + t) * ELEMENTS + threadIdx.x] = tile[threadIdx.x];
        __syncwarp();
    }
    cluster_sync();
}
