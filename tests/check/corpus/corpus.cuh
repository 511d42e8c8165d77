// What the kernels of this folder share: each instruction that they are about, as a function.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE __device__ __forceinline__

struct alignas(128) TensorMap {
    u8 bytes[128];
};

INLINE u32 shared(const void* at) { return (u32)__cvta_generic_to_shared(at); }

INLINE u64 global(const void* at) { return (u64)__cvta_generic_to_global(at); }

INLINE u32 lane() { return threadIdx.x % 32; }

INLINE u32 warp() { return threadIdx.x / 32; }

INLINE bool elect() {
    u32 chosen;
    asm volatile(
        "{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
    return chosen != 0;
}

// -- mbarriers -----------------------------------------------------------------------------------

INLINE void init(u64* barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(count)
                 : "memory");
}

INLINE void fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

INLINE void arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(barrier)) : "memory");
}

INLINE void expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)),
                 "r"(bytes)
                 : "memory");
}

INLINE void wait(u64* barrier, u32 parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(shared(barrier)),
        "r"(parity)
        : "memory");
}

INLINE void wait_cluster(u64* barrier, u32 parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(shared(barrier)),
        "r"(parity)
        : "memory");
}

// -- clusters ------------------------------------------------------------------------------------

INLINE u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

INLINE u32 mapped(const void* at, u32 rank) {
    u32 found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(shared(at)), "r"(rank));
    return found;
}

INLINE void arrive_at(u64* barrier, u32 rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     mapped(barrier, rank))
                 : "memory");
}

INLINE void expect_at(u64* barrier, u32 rank, u32 bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
            mapped(barrier, rank)),
        "r"(bytes)
        : "memory");
}

INLINE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// -- barriers of warps ---------------------------------------------------------------------------

INLINE void sync(u32 barrier, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

INLINE void arrive_named(u32 barrier, u32 threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// -- kernels that overlap ------------------------------------------------------------------------

INLINE void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// -- TMA -----------------------------------------------------------------------------------------

INLINE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

INLINE void fence_proxy_async_all() { asm volatile("fence.proxy.async;" ::: "memory"); }

INLINE void load(void* to, const void* from, u32 bytes, u64* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared(to)),
        "l"(global(from)), "r"(bytes), "r"(shared(barrier))
        : "memory");
}

INLINE void load_for(void* to, const void* from, u32 bytes, u64* barrier, u16 ctas) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1], %2, [%3], %4;" ::"r"(shared(to)),
        "l"(global(from)), "r"(bytes), "r"(shared(barrier)), "h"(ctas)
        : "memory");
}

INLINE void load_box(void* to, const TensorMap* map, int column, int row, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared(to)),
        "l"(map), "r"(column), "r"(row), "r"(shared(barrier))
        : "memory");
}

INLINE void store(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global(to)),
                 "r"(shared(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

INLINE void store_box(const TensorMap* map, const void* from, int column, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(column), "r"(row), "r"(shared(from))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <int pending>
INLINE void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

template <int pending>
INLINE void wait_stores() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// -- wgmma: 64 x 8 = 64 x 16 . 16 x 8, bf16 -> f32, operands without swizzle -----------------------

// 8 x 8 elements are 128 bytes that stand together; `leading` bytes from one to the next along K,
// `stride` along M or N.
INLINE u64 descriptor(const void* at, u32 leading, u32 stride) {
    return (u64)(shared(at) >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32;
}

INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int pending>
INLINE void wgmma_wait(float (&d)[4]) {
    asm volatile("wgmma.wait_group.sync.aligned %4;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "n"(pending)
                 : "memory");
}

INLINE void wgmma(float (&d)[4], u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0,"
        " 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b));
}

INLINE void wgmma(float (&d)[4], u32 (&a)[4], u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
        " %8, 1, 1, 1, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// -- copies by threads, and loads and stores of one word ------------------------------------------

INLINE u32 load_word(const u32* from) {
    u32 value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(global(from)) : "memory");
    return value;
}

INLINE u32 load_relaxed(const u32* from) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global(from)) : "memory");
    return value;
}

INLINE u32 load_acquire(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global(from)) : "memory");
    return value;
}

INLINE void store_release(u32* to, u32 value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(global(to)), "r"(value) : "memory");
}

INLINE void copy_async(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared(to)), "l"(global(from))
                 : "memory");
}

INLINE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int pending>
INLINE void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// -- tensor maps ---------------------------------------------------------------------------------

// One thread changes the address in a map in shared memory.
INLINE void map_points_to(TensorMap* map, const void* data) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(
                     shared(map)),
                 "l"(global(data))
                 : "memory");
}

// A warp copies the map to global memory.
INLINE void publish_map(TensorMap* to, const TensorMap* from) {
    asm volatile(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
        " [%0], [%1], 128;" ::"l"(global(to)),
        "r"(shared(from))
        : "memory");
}

INLINE void acquire_map(const TensorMap* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(global(map))
                 : "memory");
}

#if __CUDA_ARCH__ >= 1000

// -- tcgen05: 128 x 16 = 128 x 16 . 16 x 16, bf16 -> f32, operands without swizzle -------------------

INLINE void tmem_alloc(u32* address, u32 columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared(address)),
                 "r"(columns)
                 : "memory");
}

INLINE void tmem_relinquish() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

INLINE void tmem_dealloc(u32 address, u32 columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address),
                 "r"(columns)
                 : "memory");
}

INLINE void pair_alloc(u32* address, u32 columns) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared(address)),
                 "r"(columns)
                 : "memory");
}

INLINE void pair_relinquish() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
}

INLINE void pair_dealloc(u32 address, u32 columns) {
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address),
                 "r"(columns)
                 : "memory");
}

// Bit 46 says that the descriptor is one for tcgen05. The instruction descriptor: D is f32, A and B
// are bf16, N = 16 and M = 128.
INLINE void mma(u32 d, u64 a, u64 b) {
    asm volatile(
        "{ .reg .pred p; setp.eq.u32 p, 0, 1;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d),
        "l"(a | 1ull << 46), "l"(b | 1ull << 46),
        "r"(1u << 4 | 1u << 7 | 1u << 10 | 16u / 8 << 17 | 128u / 16 << 24)
        : "memory");
}

INLINE void mma_commit(u64* barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            shared(barrier))
        : "memory");
}

INLINE void pair_commit(u64* barrier, u16 ctas) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
        " [%0], %1;" ::"r"(shared(barrier)),
        "h"(ctas)
        : "memory");
}

INLINE u32 tmem_load(u32 address) {
    u32 value;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];"
                 : "=r"(value)
                 : "r"(address)
                 : "memory");
    return value;
}

INLINE void tmem_store(u32 address, u32 value) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(address), "r"(value)
                 : "memory");
}

INLINE void tmem_wait_load() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

INLINE void tmem_wait_store() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

INLINE void tmem_fence_before() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

INLINE void tmem_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// -- cluster launch control ----------------------------------------------------------------------

INLINE void try_cancel(u64* answer, u64* barrier) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0],"
        " [%1];" ::"r"(shared(answer)),
        "r"(shared(barrier))
        : "memory");
}

INLINE void try_cancel_for_all(u64* answer, u64* barrier) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
        ".multicast::cluster::all.b128 [%0], [%1];" ::"r"(shared(answer)),
        "r"(shared(barrier))
        : "memory");
}

// The first CTA of the cluster that was taken; false where none was left.
INLINE bool next_block(const u64* answer, u32* block) {
    u32 taken, first = 0;
    asm volatile(
        "{ .reg .b128 a; .reg .pred p;\n"
        "ld.shared.b128 a, [%2];\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, a;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "mov.u32 %1, 0;\n"
        "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, a; }"
        : "=r"(taken), "=r"(first)
        : "r"(shared(answer))
        : "memory");
    *block = first;
    return taken != 0;
}

#endif
