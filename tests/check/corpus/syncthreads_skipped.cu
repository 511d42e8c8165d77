// Threads without work return early, and the others come to a __syncthreads that they never reach:
// here the second warp goes on to the next __syncthreads, which meets the first warp's other one.
// Source: pytorch/FBGEMM pull request 5857 (early return before the block's barriers).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(64) kernel(const float* in, float* out, int elements) {
    __shared__ float values[64];
    values[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    float a = values[threadIdx.x];
    bool active = (int)threadIdx.x < elements;
#if BUG
    if (active) {
        __syncthreads();  // the bug
        values[threadIdx.x + 32] = a;
    }
#else
    __syncthreads();
    if (active) values[threadIdx.x + 32] = a;
#endif
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x];
}
