// The leader of a pair of CTAs signals both by a tcgen05.commit with a mask of CTAs. The mask is that
// of CTAs 0 and 1; in a cluster of two pairs, CTA 2 signals those as well, and its own pair waits.
// Source: facebookexperimental/triton pull request 783 (clusters of more than two CTAs).

#include "corpus.cuh"

extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(32) kernel(u32* out) {
    __shared__ u64 done;
    u32 rank = cluster_rank();
    if (threadIdx.x == 0) {
        init(&done, 1);
        fence_init();
    }
    cluster_sync();
    if (rank % 2 == 0 && elect()) {
        pair_commit(&done, BUG ? 3 : 3 << rank);  // the bug
    }
    wait(&done, 0);
    out[blockIdx.x * 32 + threadIdx.x] = 1;
    cluster_sync();
}
