// A warp allocates tensor memory for its accumulator, gives the permit to allocate back so that
// another CTA on the SM can, and later allocates again for a second accumulator.
// Source: none; a classic mistake (PTX ISA, tcgen05.relinquish_alloc_permit: no alloc may follow).

#include "corpus.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(u32* out) {
    __shared__ u32 first, second;
    tmem_alloc(&first, 64);
#if BUG
    tmem_relinquish();
    tmem_alloc(&second, 32);  // the bug
#else
    tmem_alloc(&second, 32);
    tmem_relinquish();
#endif
    __syncwarp();
    out[lane()] = first + second;
    tmem_dealloc(second, 32);
    tmem_dealloc(first, 64);
}
