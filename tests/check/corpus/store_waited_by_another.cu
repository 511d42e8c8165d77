// Bulk groups belong to the thread that commits them. One lane stores by TMA, and another waits for
// the group: it has none, so the wait passes at once and the tile is written again.
// Source: none; a classic mistake (PTX ISA, cp.async.bulk.wait_group: of the executing thread).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(float* out) {
    __shared__ alignas(128) float tile[32];
    for (int i = 0; i < 2; ++i) {
        tile[lane()] = (float)i;  // the bug
        fence_proxy_async();
        __syncwarp();
        if (lane() == 0) store(out + i * 32, tile, sizeof(tile));
        if (lane() == (BUG ? 1 : 0)) wait_stores_read<0>();
        __syncwarp();
    }
    if (lane() == 0) wait_stores<0>();
}
