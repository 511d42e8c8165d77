// The kernel expects the bytes of a tile that was made smaller for small batches; the copy still
// brings the whole box. The phase completes before the last bytes are there, or never.
// Source: mirage-project/mirage pull request 705 (split-K linear: expect 1,024 bytes, copy 2,048).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(64) kernel(const float* in, float* out) {
    __shared__ alignas(128) float tile[512];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
    }
    __syncthreads();
    if (warp() == 0) {
        if (elect()) {
            expect(&full, BUG ? sizeof(tile) / 2 : sizeof(tile));
            load(tile, in, sizeof(tile), &full);  // the bug
        }
    } else {
        wait(&full, 0);
        for (int i = lane(); i < 512; i += 32) out[i] = tile[i];
    }
}
