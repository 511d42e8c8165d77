// A kernel starts while the one before it still runs (programmatic dependent launch), and writes
// memory before griddepcontrol.wait: the kernel before may still read what stands there.
// Source: NVIDIA/cccl issue 3131 (merge sort: which accesses the wait must come before).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(const float* in, float* out) {
#if BUG
    out[threadIdx.x] = 0;  // the bug
    wait_for_kernel_before();
#else
    wait_for_kernel_before();
    out[threadIdx.x] = 0;
#endif
    if (threadIdx.x < 16) out[threadIdx.x] = in[threadIdx.x];
}
