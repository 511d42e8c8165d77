// Groups of a grouped GEMM have an odd number of tiles, and clusters are pairs of consecutive tiles:
// one pair has a tile of each group. CTA 0 of it decides that its group wants no multicast and loads
// for itself; CTA 1 expects the multicast, which never comes.
// Source: deepseek-ai/DeepGEMM pull requests 415 and 429 (k-grouped GEMM on Hopper).

#include "corpus.cuh"

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32)
    kernel(const float* in, float* out, int tiles_of_group) {
    __shared__ alignas(128) float tile[32];
    __shared__ u64 full;
    u32 rank = cluster_rank(), block = blockIdx.x;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
    }
    cluster_sync();
    u32 group = block / tiles_of_group;
    bool alone = block % tiles_of_group == tiles_of_group - 1;
    bool multicast = !alone;
#if !BUG
    multicast = (block & ~1) / tiles_of_group == (block | 1) / tiles_of_group;
#endif
    if (threadIdx.x == 0) expect(&full, sizeof(tile));
    cluster_sync();
    if (threadIdx.x == 0) {
        if (!multicast) load(tile, in + group * 32, sizeof(tile), &full);
        if (multicast && rank == 0) load_for(tile, in + group * 32, sizeof(tile), &full, 3);
    }
    wait(&full, 0);  // the bug
    out[block * 32 + threadIdx.x] = tile[threadIdx.x];
    cluster_sync();
}
