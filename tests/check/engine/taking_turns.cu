// Two groups of warps take turns by two named barriers, as warpgroups of attention kernels do. A
// group waits at its own barrier, and hands the turn on by arriving at the other's. Nobody hands
// the first turn to group 0, so it arrives at its own barrier itself, and is counted twice there. A
// third group loads tiles, for which the others wait in three attempts before they go into a loop.

#include "corpus.cuh"

#ifndef OPENED
#define OPENED (tile == 0)
#endif

constexpr int TILES = 5, STAGES = 2;

INLINE void wait_in_attempts(u64* barrier, u32 parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 1000;\n"
        "@done bra over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 1000;\n"
        "@done bra over;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "over: }" ::"r"(shared(barrier)),
        "r"(parity)
        : "memory");
}

extern "C" __global__ void __launch_bounds__(160) kernel(const float* in, float* out) {
    __shared__ alignas(128) float tiles[STAGES][64];
    __shared__ float sum[64];
    __shared__ u64 full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            init(&full[s], 1);
            init(&empty[s], 128);
        }
        fence_init();
    }
    __syncthreads();
    const int group = warp() / 2, at = threadIdx.x % 64;
    for (int tile = 0; tile < TILES; ++tile) {
        const int s = tile % STAGES, parity = tile / STAGES % 2;
        if (group == 2) {
            wait_in_attempts(&empty[s], parity ^ 1);
            if (lane() == 0) {
                expect(&full[s], sizeof tiles[s]);
                load(tiles[s], in + 64 * tile, sizeof tiles[s], &full[s]);
            }
        } else {
            wait_in_attempts(&full[s], parity);
            if (group == 0 && OPENED)
                arrive_named(1, 128);
            sync(1 + group, 128);
            const float before = tile == 0 && group == 0 ? 0.0f : sum[at];
            sum[at] = before + (1 + group) * tiles[s][at];
            arrive_named(1 + (1 - group), 128);
            arrive(&empty[s]);
        }
    }
    if (group == 1)
        out[at] = sum[at];
}
