// Each CTA of a cluster initialises its barriers and synchronises its own threads. The multicast of
// CTA 0 may complete bytes on a barrier that its peer has not initialised yet.
// Source: triton-lang/triton pull requests 8985 and 9005 (a multicast needs cluster_sync after init).

#include "corpus.cuh"

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32)
    kernel(const float* in, float* out) {
    __shared__ alignas(128) float tile[32];
    __shared__ u64 full;
    u32 rank = cluster_rank();
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        expect(&full, sizeof(tile));
    }
#if BUG
    __syncthreads();
#else
    cluster_sync();
#endif
    if (rank == 0 && threadIdx.x == 0) load_for(tile, in, sizeof(tile), &full, 3);  // the bug
    wait(&full, 0);
    out[rank * 32 + threadIdx.x] = tile[threadIdx.x];
    cluster_sync();
}
