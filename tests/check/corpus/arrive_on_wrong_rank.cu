// A consumer hands a slot back by a remote arrive. The rank comes from the index of the CTA in the
// grid, and is right only where a cluster has one CTA or is the first: here each CTA arrives on its
// own barrier, and the producer of the cluster waits for ever.
// Source: flashinfer-ai/flashinfer pull request 2550 (arrive with a CTA id, clusters of more than one).

#include "corpus.cuh"

constexpr int TILES = 2, ELEMENTS = 32;

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64)
    kernel(const float* in, float* out) {
    __shared__ alignas(128) float tile[ELEMENTS];
    __shared__ u64 full, empty;
    u32 rank = cluster_rank();
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&empty, 2);
        fence_init();
    }
    __syncthreads();
    cluster_sync();
    if (warp() == 0) {
        if (rank == 0 && elect()) {
            for (int t = 0; t < TILES; ++t) {
                wait_cluster(&empty, t % 2 ^ 1);  // the bug
                for (u32 r = 0; r < 2; ++r) expect_at(&full, r, sizeof(tile));
                load_for(tile, in + t * ELEMENTS, sizeof(tile), &full, 3);
            }
        }
    } else {
        for (int t = 0; t < TILES; ++t) {
            wait_cluster(&full, t % 2);
            out[(rank * TILES + t) * ELEMENTS + lane()] = tile[lane()];
            __syncwarp();
            if (elect()) arrive_at(&empty, BUG ? blockIdx.x % 2 : 0);
        }
    }
    __syncthreads();
    cluster_sync();
}
