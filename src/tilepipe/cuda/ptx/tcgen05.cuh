// Wrappers of Blackwell's tensor-core instructions (PTX ISA, "TensorCore 5th Generation Instructions"), for one CTA. A pair of CTAs uses
// the same with .cta_group::2: tcgen05_mma_f16_pair, and so on, which `wrappers.py` derives. Addresses in tensor memory are lane << 16 | column.

// tcgen05.alloc: the address of that many columns goes to shared memory; a whole warp, which waits until there is room
__device__ __forceinline__ void tmem_alloc(u32 dst, u32 columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(dst), "r"(columns) : "memory");
}

// tcgen05.relinquish_alloc_permit: this CTA allocates no more; a whole warp
__device__ __forceinline__ void tmem_relinquish() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

// tcgen05.dealloc, a whole warp
__device__ __forceinline__ void tmem_dealloc(u32 address, u32 columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// tcgen05.wait::ld: the loads of this warp so far are done
__device__ __forceinline__ void tmem_wait_load() {
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// tcgen05.wait::st: the stores of this warp so far are done
__device__ __forceinline__ void tmem_wait_store() {
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

// tcgen05.cp: 128 rows of 16 bytes, row r to lane r; one thread, in order with its MMAs
__device__ __forceinline__ void tmem_copy_128x128b(u32 dst, u64 src) {
    asm volatile("tcgen05.cp.cta_group::1.128x128b [%0], %1;" ::"r"(dst), "l"(src) : "memory");
}

// tcgen05.cp: 32 rows of 16 bytes, to each of the four groups of 32 lanes; one thread, in order with its MMAs
__device__ __forceinline__ void tmem_copy_32x128b_warpx4(u32 dst, u64 src) {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(dst), "l"(src) : "memory");
}

// tcgen05.mma, .f16 or .bf16 (shape says which): d = a · b + (accumulate ? d : 0), d in tensor memory; one thread
__device__ __forceinline__ void tcgen05_mma_f16(u32 d, u64 a, u64 b, u32 shape, u32 accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(accumulate) : "memory");
}

// tcgen05.mma, .f16 or .bf16: the same with a in tensor memory
__device__ __forceinline__ void tcgen05_mma_f16_tmem_a(u32 d, u32 a, u64 b, u32 shape, u32 accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }"
                 ::"r"(d), "r"(a), "l"(b), "r"(shape), "r"(accumulate) : "memory");
}

// tcgen05.mma, .tf32
__device__ __forceinline__ void tcgen05_mma_tf32(u32 d, u64 a, u64 b, u32 shape, u32 accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::tf32 [%0], %1, %2, %3, p; }"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(accumulate) : "memory");
}

// tcgen05.mma, .e4m3 and .e5m2
__device__ __forceinline__ void tcgen05_mma_f8f6f4(u32 d, u64 a, u64 b, u32 shape, u32 accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p; }"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(accumulate) : "memory");
}

// tcgen05.mma .block_scale, Instruction descriptor: scale factor IDs of B and A, the first byte of a column that a step takes
__device__ __forceinline__ u32 scale_ids(u32 byte) {
    return byte << 4 | byte << 29;
}

// tcgen05.mma .block_scale, .e4m3 and .e5m2 with a .ue8m0 for each 32 of K: scale factors in tensor memory, at sfa and sfb
__device__ __forceinline__ void tcgen05_mma_mxf8f6f4(u32 d, u64 a, u64 b, u32 shape, u32 sfa, u32 sfb, u32 accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0;"
                 " tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.block32 [%0], %1, %2, %3, [%4], [%5], p; }"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(sfa), "r"(sfb), "r"(accumulate) : "memory");
}

// tcgen05.mma .block_scale, .e2m1 with a .ue8m0 for each 32 of K
__device__ __forceinline__ void tcgen05_mma_mxf4(u32 d, u64 a, u64 b, u32 shape, u32 sfa, u32 sfb, u32 accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0;"
                 " tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%0], %1, %2, %3, [%4], [%5], p; }"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(sfa), "r"(sfb), "r"(accumulate) : "memory");
}

// tcgen05.mma .block_scale, .e2m1 with a .ue4m3 for each 16 of K
__device__ __forceinline__ void tcgen05_mma_mxf4nvf4(u32 d, u64 a, u64 b, u32 shape, u32 sfa, u32 sfb, u32 accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0;"
                 " tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%0], %1, %2, %3, [%4], [%5], p; }"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(sfa), "r"(sfb), "r"(accumulate) : "memory");
}

// tcgen05.commit: an arrival when all MMAs and copies of this thread so far are done
__device__ __forceinline__ void tcgen05_commit(u32 bar) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar) : "memory");
}

// tcgen05.commit: the same, on this barrier of each CTA of the mask
__device__ __forceinline__ void tcgen05_commit_multicast(u32 bar, u16 ctas) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                 ::"r"(bar), "h"(ctas) : "memory");
}

// tcgen05.fence::before_thread_sync
__device__ __forceinline__ void tcgen05_fence_before() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// tcgen05.fence::after_thread_sync
__device__ __forceinline__ void tcgen05_fence_after() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
