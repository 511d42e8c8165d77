// The compiler of a tile language put a __syncthreads between a read and a write under a condition
// on the thread: half of each warp's lanes never come to it.
// Source: tile-ai/tilelang issue 1026.

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(64) kernel(const float* in, float* out) {
    __shared__ float values[64];
    values[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    float a = values[threadIdx.x];
#if !BUG
    __syncthreads();
#endif
    if (threadIdx.x % 2 == 0) {
#if BUG
        __syncthreads();  // the bug
#endif
        values[threadIdx.x ^ 1] = a;
    }
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x];
}
