// The functions that a timed build adds to a kernel: each warp notes in global memory when it passes the points that
// `tilepipe.ir.stamps` numbers. `tilepipe.cuda.debug.stamps` reads the memory, and must agree on its layout.

// Before the stamps, one for each warp: the clocks when its role began and ended, in nanoseconds of the GPU and in
// cycles of its SM; how many points it has passed, and the SM.
struct StampHead { u64 began_ns, began, ended_ns, ended; u32 count, sm; };
// `slots`: all stamps; `at`: the next one of this warp; `end`: its first that has no room; `clock`: when it was last read;
// `first`: this is lane 0.
struct Stamps { u8* slots; u32 at, end, clock; bool first; };
// The warp that executes it begins its role. `check_room` of `tilepipe.cuda.debug.stamps` sees to it that no count of
// stamps exceeds 32 bits.
__device__ __forceinline__ Stamps stamps_begin(u8* memory, u32 ctas, u32 room) {
    const u32 warps = blockDim.x / 32, warp = blockIdx.x * warps + threadIdx.x / 32;
    const bool noted = blockIdx.x < ctas;
    Stamps s;
    s.slots = memory + u64(ctas) * warps * sizeof(StampHead);
    s.at = noted ? warp * room : 0;
    s.end = noted ? s.at + room : 0;
    s.clock = 0;
    s.first = lane_id() == 0;
    if (noted && s.first) {
        StampHead& head = reinterpret_cast<StampHead*>(memory)[warp];
        asm volatile("{ .reg .b64 t; mov.u64 t, %%globaltimer; st.global.u64 [%0], t; mov.u64 t, %%clock64; st.global.u64 [%0+8], t; }"
                     ::"l"(&head) : "memory");
    }
    return s;
}

// The warp has come to the end of its role.
__device__ __forceinline__ void stamps_end(const Stamps& s, u8* memory, u32 ctas, u32 room) {
    const u32 warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (blockIdx.x < ctas && s.first) {
        StampHead& head = reinterpret_cast<StampHead*>(memory)[warp];
        asm volatile("{ .reg .b64 t; mov.u64 t, %%globaltimer; st.global.u64 [%0+16], t; mov.u64 t, %%clock64; st.global.u64 [%0+24], t; }"
                     ::"l"(&head) : "memory");
        asm volatile("{ .reg .b32 t; st.global.u32 [%0+32], %1; mov.u32 t, %%smid; st.global.u32 [%0+36], t; }"
                     ::"l"(&head), "r"(s.at - warp * room) : "memory");
    }
}

// %clock
__device__ __forceinline__ void stamps_read(Stamps& s) {
    asm volatile("mov.u32 %0, %%clock;" : "=r"(s.clock)::"memory");
}

// the clock as it was last read and what it is about, where there is room
__device__ __forceinline__ void stamp_here(const Stamps& s, u32 about, bool here) {
    asm volatile("{ .reg .pred p; .reg .pred q;"
                 " setp.ne.u32 q, %4, 0;"
                 " setp.lt.and.u32 p, %1, %2, q;"
                 " @p st.global.cs.v2.u32 [%0], {%5, %3}; }"
                 ::"l"(s.slots + u64(s.at) * 8), "r"(s.at), "r"(s.end), "r"(about), "r"(u32(here)), "r"(s.clock) : "memory");
}

// by a warp whose lanes are all active: lane 0 notes it. Where no time has passed since the last stamp, the clock is not
// read again, which takes some 40 cycles.
__device__ __forceinline__ void stamp_warp_again(Stamps& s, u32 about) {
    stamp_here(s, about, s.first);
    ++s.at;
}

// the same, now
__device__ __forceinline__ void stamp_warp(Stamps& s, u32 about) {
    stamps_read(s);
    stamp_warp_again(s, about);
}

// by a single lane, at the time of the last stamp
__device__ __forceinline__ void stamp_lane_again(Stamps& s, u32 about) {
    stamp_here(s, about, true);
    ++s.at;
}

// by a single lane
__device__ __forceinline__ void stamp_lane(Stamps& s, u32 about) {
    stamps_read(s);
    stamp_lane_again(s, about);
}

// by some of the lanes: the first of them notes it
__device__ __forceinline__ void stamp_lanes(Stamps& s, u32 about) {
    stamps_read(s);
    stamp_here(s, about, __popc(__activemask() & ((1u << lane_id()) - 1)) == 0);
    ++s.at;
}

// mbarrier.test_wait.parity: whether a wait of the warp is going to block, which alone is noted
__device__ __forceinline__ bool stamp_blocks(Stamps& s, u32 bar, u32 parity, u32 about) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    const bool blocks = __any_sync(0xffffffff, done == 0);
    if (blocks) stamp_warp(s, about);
    return blocks;
}

// after a branch that only some lanes took: all lanes know how many stamps there are
__device__ __forceinline__ void stamps_join(Stamps& s) {
    s.at = __reduce_max_sync(0xffffffff, s.at);
}
