// Each lane of a warp writes its part of a vector, and lane 0 arrives for all of them. Nothing has
// made the other lanes' writes come before that arrive: lanes of a warp may run apart.
// Source: NVIDIA/cudnn-frontend pull request 426 (a barrier of count 1 for 32 writing lanes).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(64) kernel(const float* in, float* out) {
    __shared__ float weights[32];
    __shared__ u64 loaded;
    if (threadIdx.x == 0) {
        init(&loaded, 1);
        fence_init();
    }
    __syncthreads();
    if (warp() == 0) {
        weights[lane()] = in[lane()];
#if !BUG
        __syncwarp();
#endif
        if (lane() == 0) arrive(&loaded);
    } else {
        wait(&loaded, 0);
        out[lane()] = weights[31 - lane()];  // the bug
    }
}
