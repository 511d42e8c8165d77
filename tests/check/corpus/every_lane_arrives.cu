// A barrier of count 1 is for one thread's arrive, and the code under the predicate of a whole warp
// arrives 32 times: phases complete that nobody began.
// Source: triton-lang/triton pull request 9498 (review of the barrier before the deallocation).

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
        __syncwarp();
        if (BUG || lane() == 0) arrive(&loaded);  // the bug
    } else {
        wait(&loaded, 0);
        out[lane()] = weights[31 - lane()];
    }
}
