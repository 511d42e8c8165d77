// The epilogue of a grouped GEMM stores by TMA through a tensor map that it points at the next group.
// The store of the group before may still be reading the map: nothing has waited for it.
// Source: NVIDIA/cutlass issue 2162 (sm90_gemm_array_tma_warpspecialized_cooperative).

#include "corpus.cuh"

constexpr int GROUPS = 2, ROWS = 8, COLUMNS = 32;

extern "C" __global__ void __launch_bounds__(32)
    kernel(const __grid_constant__ TensorMap given, TensorMap* map, float* out) {
    __shared__ alignas(128) float tile[GROUPS][ROWS * COLUMNS];
    __shared__ alignas(128) TensorMap next;
    ((u32*)&next)[lane()] = ((const u32*)&given)[lane()];
    for (int g = 0; g < GROUPS; ++g)
        for (int i = lane(); i < ROWS * COLUMNS; i += 32) tile[g][i] = (float)g;
    fence_proxy_async();
    __syncwarp();
    for (int g = 0; g < GROUPS; ++g) {
        if (lane() == 0) {
#if !BUG
            wait_stores<0>();
#endif
            map_points_to(&next, out + g * ROWS * COLUMNS);
        }
        __syncwarp();
        publish_map(map, &next);  // the bug
        acquire_map(map);
        if (lane() == 0) store_box(map, tile[g], 0, 0);
        __syncwarp();
    }
    if (lane() == 0) wait_stores<0>();
}
