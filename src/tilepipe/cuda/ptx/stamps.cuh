// The functions that a timed build adds to a kernel: each warp notes in global memory when it passes the points that
// `tilepipe.ir.stamps` numbers. `tilepipe.cuda.debug.stamps` reads the memory, and must agree on its layout.

// Before the stamps, one for each warp: the clocks when its role began and ended, in nanoseconds of the GPU and in
// cycles of its SM; how many points it has passed, and the SM.
struct StampHead { u64 began_ns, began, ended_ns, ended; u32 count, sm; };
// A warp keeps its stamps in its lanes, up to 32, and stores them together: beside wgmma a store takes many times as long
// as reading the clock. `slots`: those of this warp, `room` of them, 0 where it is not noted; `at`: how many stamps it has
// made; `due`: it is time to store them when it has made so many; `clock`: when it was last read; `kept_clock`,
// `kept_about`: the stamp in this lane, `STAMP_NONE` where there is none.
struct Stamps { u8* slots; u32 at, due, room, lane, clock, kept_clock, kept_about; };
// `STAMPS_KEPT` of them are stored as soon as a stamp looks; between two that look are at most as many.
constexpr u32 STAMP_NONE = 0xffffffff, STAMPS_KEPT = 16;
// The warp that executes it begins its role.
__device__ __forceinline__ Stamps stamps_begin(u8* memory, u32 ctas, u32 room) {
    const u32 warps = blockDim.x / 32, warp = blockIdx.x * warps + threadIdx.x / 32;
    Stamps s;
    s.slots = memory + u64(ctas) * warps * sizeof(StampHead) + u64(warp) * room * 8;
    s.at = 0;
    s.due = STAMPS_KEPT;
    s.room = blockIdx.x < ctas ? room : 0;
    s.lane = lane_id();
    s.clock = s.kept_clock = 0;
    s.kept_about = STAMP_NONE;
    asm volatile("" : "+l"(s.slots), "+r"(s.lane));  // in registers, and not made again for each stamp
    if (s.room != 0 && s.lane == 0) {
        StampHead& head = reinterpret_cast<StampHead*>(memory)[warp];
        asm volatile("{ .reg .b64 t; mov.u64 t, %%globaltimer; st.global.u64 [%0], t; mov.u64 t, %%clock64; st.global.u64 [%0+8], t; }"
                     ::"l"(&head) : "memory");
    }
    return s;
}

// stores a stamp in a slot
__device__ __forceinline__ void stamp_store(const Stamps& s, u32 slot, u32 clock, u32 about) {
    asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, %2; @p st.global.cs.v2.u32 [%0], {%4, %3}; }"
                 ::"l"(s.slots + u64(slot) * 8), "r"(slot), "r"(s.room), "r"(about), "r"(clock) : "memory");
}

// stores those that the lanes keep, of the last 32 before stamp `at`
__device__ __forceinline__ void stamps_flush(Stamps& s, u32 at) {
    if (s.kept_about != STAMP_NONE) stamp_store(s, at - 1 - ((at - 1 - s.lane) & 31), s.kept_clock, s.kept_about);
    s.kept_about = STAMP_NONE;
    s.due = s.at + STAMPS_KEPT;
}

// The warp has come to the end of its role.
__device__ __forceinline__ void stamps_end(Stamps& s, u8* memory, u32 ctas, u32 room) {
    stamps_flush(s, s.at);
    if (s.room != 0 && s.lane == 0) {
        StampHead& head = reinterpret_cast<StampHead*>(memory)[blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32];
        asm volatile("{ .reg .b64 t; mov.u64 t, %%globaltimer; st.global.u64 [%0+16], t; mov.u64 t, %%clock64; st.global.u64 [%0+24], t; }"
                     ::"l"(&head) : "memory");
        asm volatile("{ .reg .b32 t; st.global.u32 [%0+32], %1; mov.u32 t, %%smid; st.global.u32 [%0+36], t; }"
                     ::"l"(&head), "r"(s.at) : "memory");
    }
}

// %clock
__device__ __forceinline__ void stamps_read(Stamps& s) {
    asm volatile("mov.u32 %0, %%clock;" : "=r"(s.clock)::"memory");
}

// by a warp whose lanes are all active, where no time has passed since the clock was read last
__device__ __forceinline__ void stamp_warp_again(Stamps& s, u32 about) {
    const bool mine = ((s.at ^ s.lane) & 31) == 0;
    s.kept_clock = mine ? s.clock : s.kept_clock;
    s.kept_about = mine ? about : s.kept_about;
    ++s.at;
}

// the same, now
__device__ __forceinline__ void stamp_warp(Stamps& s, u32 about) {
    stamps_read(s);
    stamp_warp_again(s, about);
}

// after a stamp of a warp: whether it is time to store those that it keeps
__device__ __forceinline__ void stamps_look(Stamps& s) {
    if (s.at >= s.due) stamps_flush(s, s.at);
}

// by a single lane, at the time of the last stamp: it stores the stamp at once, since other lanes keep none here
__device__ __forceinline__ void stamp_lane_again(Stamps& s, u32 about) {
    stamp_store(s, s.at, s.clock, about);
    ++s.at;
}

// by a single lane
__device__ __forceinline__ void stamp_lane(Stamps& s, u32 about) {
    stamps_read(s);
    stamp_lane_again(s, about);
}

// by some of the lanes: the first of them stores it
__device__ __forceinline__ void stamp_lanes(Stamps& s, u32 about) {
    stamps_read(s);
    if (__popc(__activemask() & ((1u << s.lane) - 1)) == 0) stamp_store(s, s.at, s.clock, about);
    ++s.at;
}

// by a warp whose lanes are all active: whether a test of one of them failed, which alone is noted
__device__ __forceinline__ bool stamp_unless(Stamps& s, u32 done, u32 about) {
    const bool blocks = __any_sync(0xffffffff, done == 0);
    if (blocks) {
        stamp_warp(s, about);
        stamps_look(s);
    }
    return blocks;
}

// mbarrier.test_wait.parity: whether a wait of the warp is going to block, which alone is noted; if not, it has acquired
__device__ __forceinline__ bool stamp_blocks(Stamps& s, u32 bar, u32 parity, u32 about) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    return stamp_unless(s, done, about);
}

// mbarrier.test_wait.parity: the same, acquiring what other CTAs of the cluster released
__device__ __forceinline__ bool stamp_blocks_cluster(Stamps& s, u32 bar, u32 parity, u32 about) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    return stamp_unless(s, done, about);
}

// after a branch in which one lane has made stamps: all lanes count `made` more than `before` it
__device__ __forceinline__ void stamps_skip(Stamps& s, u32 before, u32 made) {
    s.at = before + made;
    if (s.at >= s.due) stamps_flush(s, before);
}

// after a branch that only some lanes took: the same, of lanes that do not know how many
__device__ __forceinline__ void stamps_join(Stamps& s, u32 before) {
    stamps_skip(s, before, __reduce_max_sync(0xffffffff, s.at) - before);
}
