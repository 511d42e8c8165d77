// A grouped GEMM has one tensor map in global memory and points it at the next group when the
// scheduler gets there. The loads of the group before may still be reading the map: the thread has
// issued them, and nothing has waited for them.
// Source: deepseek-ai/DeepGEMM pull requests 343, 375 and issue 430 (k-grouped GEMM).

#include "corpus.cuh"

constexpr int GROUPS = 2, ROWS = 8, COLUMNS = 32;

extern "C" __global__ void __launch_bounds__(64)
    kernel(const __grid_constant__ TensorMap given, TensorMap* map, const float* in, float* out) {
    __shared__ alignas(128) float tile[GROUPS][ROWS * COLUMNS];
    __shared__ alignas(128) TensorMap next;
    __shared__ u64 full[GROUPS];
    if (threadIdx.x == 0) {
        for (int g = 0; g < GROUPS; ++g) init(&full[g], 1);
        fence_init();
    }
    if (threadIdx.x < 32) ((u32*)&next)[threadIdx.x] = ((const u32*)&given)[threadIdx.x];
    __syncthreads();
    if (warp() == 0) {
        for (int g = 0; g < GROUPS; ++g) {
#if !BUG
            if (g > 0) wait(&full[g - 1], 0);
#endif
            if (lane() == 0) map_points_to(&next, in + g * ROWS * COLUMNS);
            __syncwarp();
            publish_map(map, &next);  // the bug
            acquire_map(map);
            if (lane() == 0) {
                expect(&full[g], sizeof(tile[g]));
                load_box(tile[g], map, 0, 0, &full[g]);
            }
            __syncwarp();
        }
    } else {
        for (int g = 0; g < GROUPS; ++g) {
            wait(&full[g], 0);
            for (int i = lane(); i < ROWS * COLUMNS; i += 32)
                out[g * ROWS * COLUMNS + i] = tile[g][i];
        }
    }
}
