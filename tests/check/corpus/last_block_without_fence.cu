// Each CTA writes a partial sum and counts itself; the last one adds all of them. Without a
// __threadfence between the write and the count, the count may be seen before the partial sum.
// Source: NVIDIA/Fuser pull request 2391; flashinfer-ai/flashinfer pull request 4742 (review).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(32)
    kernel(const float* in, float* partial, float* out, u32* count) {
    __shared__ u32 last;
    partial[blockIdx.x * 32 + threadIdx.x] = 2 * in[blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
#if !BUG
        __threadfence();
#endif
        last = atomicAdd(count, 1) == gridDim.x - 1;
#if !BUG
        __threadfence();
#endif
    }
    __syncthreads();
    if (last) {
        float sum = 0;
        for (u32 i = 0; i < gridDim.x; ++i) sum += partial[i * 32 + threadIdx.x];  // the bug
        out[threadIdx.x] = sum;
    }
}
