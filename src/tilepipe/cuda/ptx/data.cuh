// Swizzled offsets, Python's integer division, conversions, reductions over the lanes of a row, fast functions. Floats of 8
// and 16 bits live in registers as float (exactly representable), or packed two to a register in fragments.

// Tensor Swizzling Modes: the 32-byte mode, on the offset from an aligned tile
__device__ __forceinline__ u32 swizzle_32(u32 offset) {
    return offset ^ ((offset >> 3) & 0x10);
}

// Tensor Swizzling Modes: the 64-byte mode, on the offset from an aligned tile
__device__ __forceinline__ u32 swizzle_64(u32 offset) {
    return offset ^ ((offset >> 3) & 0x30);
}

// Tensor Swizzling Modes: the 128-byte mode, on the offset from an aligned tile
__device__ __forceinline__ u32 swizzle_128(u32 offset) {
    return offset ^ ((offset >> 3) & 0x70);
}

// division that rounds down, as Python's //
template <typename T>
__device__ __forceinline__ constexpr T floor_div(T a, T b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// remainder with the divisor's sign, as Python's %
template <typename T>
__device__ __forceinline__ constexpr T floor_mod(T a, T b) {
    return a % b + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0);
}

// x to the power of n >= 0, by repeated squaring
template <int n, typename T>
__device__ __forceinline__ constexpr T power(T x) {
    if constexpr (n < 2) {
        return n ? x : T(1);
    } else {
        const T half = power<n / 2>(x);
        return n % 2 ? half * half * x : half * half;
    }
}

// a << n, which is 0 where n is negative or the width of T and more, as PTX's shl
template <typename T>
__device__ __forceinline__ constexpr T shift_left(T a, T n) {
    return static_cast<u64>(n) < 8 * sizeof(T) ? a << n : 0;
}

// a >> n, of which only copies of the sign are left where n is negative or the width of T and more, as PTX's shr
template <typename T>
__device__ __forceinline__ constexpr T shift_right(T a, T n) {
    return static_cast<u64>(n) < 8 * sizeof(T) ? a >> n : a >> (8 * sizeof(T) - 1) >> 1;
}

// st.shared::cta, .v2
__device__ __forceinline__ void store_float2(u32 address, float x, float y) {
    asm volatile("st.shared::cta.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

// st.shared::cluster, .v2
__device__ __forceinline__ void store_float2_remote(u32 address, float x, float y) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

// ld.shared::cta, .v2
__device__ __forceinline__ void load_float2(u32 address, float& x, float& y) {
    asm volatile("ld.shared::cta.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory");
}

// ld.shared::cluster, .v2
__device__ __forceinline__ void load_float2_remote(u32 address, float& x, float& y) {
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory");
}

// st.shared::cta, .v2
__device__ __forceinline__ void store_u32x2(u32 address, u32 x, u32 y) {
    asm volatile("st.shared::cta.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

// st.shared::cluster, .v2
__device__ __forceinline__ void store_u32x2_remote(u32 address, u32 x, u32 y) {
    asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

// ld.shared::cta, .v2
__device__ __forceinline__ void load_u32x2(u32 address, u32& x, u32& y) {
    asm volatile("ld.shared::cta.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(address) : "memory");
}

// ld.shared::cluster, .v2
__device__ __forceinline__ void load_u32x2_remote(u32 address, u32& x, u32& y) {
    asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(address) : "memory");
}

// two neighbouring bytes as 16 bits, lo at the lower address
__device__ __forceinline__ void store_bytes(u32 address, u32 lo, u32 hi) {
    store_u16(address, static_cast<u16>(hi << 8 | (lo & 0xff)));
}

// two neighbouring bytes as 16 bits, lo at the lower address
__device__ __forceinline__ void store_bytes_remote(u32 address, u32 lo, u32 hi) {
    store_u16_remote(address, static_cast<u16>(hi << 8 | (lo & 0xff)));
}

// whether 0 <= i < n
__device__ __forceinline__ bool inside(i32 i, i32 n) {
    return static_cast<u32>(i) < static_cast<u32>(n);
}

// two aligned neighbours in global memory, by one access
__device__ __forceinline__ u32 load_whole_pair_u16(const u16* at) {
    return *reinterpret_cast<const u32*>(at);
}

// two aligned neighbours in global memory, by one access
__device__ __forceinline__ void load_whole_pair_float(const float* at, float& x, float& y) {
    const float2 both = *reinterpret_cast<const float2*>(at);
    x = both.x;
    y = both.y;
}

// two aligned neighbours in global memory, by one access
__device__ __forceinline__ void store_whole_pair_u16(u16* at, u32 pair) {
    *reinterpret_cast<u32*>(at) = pair;
}

// two aligned neighbours in global memory, by one access
__device__ __forceinline__ void store_whole_pair_float(float* at, float x, float y) {
    *reinterpret_cast<float2*>(at) = make_float2(x, y);
}

// columns i (even) and i + 1 of a line of n in global memory; zero where one is outside. One access where both are inside;
// only the last column of an odd n is alone. Two predicated loads, no branch.
__device__ __forceinline__ u32 load_pair_u16(const u16* at, i32 i, i32 n) {
    const u32 both = inside(i + 1, n) ? *reinterpret_cast<const u32*>(at) : 0;
    const u16 last = i == n - 1 ? *at : 0;
    return both | last;
}

// columns i (even) and i + 1 of a line of n in global memory, as load_pair_u16
__device__ __forceinline__ void load_pair_float(const float* at, i32 i, i32 n, float& x, float& y) {
    const float2 both = inside(i + 1, n) ? *reinterpret_cast<const float2*>(at) : make_float2(0.0f, 0.0f);
    const float last = i == n - 1 ? *at : 0.0f;
    x = inside(i + 1, n) ? both.x : last;
    y = both.y;
}

// to columns i (even) and i + 1 of a line of n in global memory, where they are inside, as load_pair_u16
__device__ __forceinline__ void store_pair_u16(u16* at, u32 pair, i32 i, i32 n) {
    if (inside(i + 1, n)) *reinterpret_cast<u32*>(at) = pair;
    if (i == n - 1) *at = static_cast<u16>(pair);
}

// to columns i (even) and i + 1 of a line of n in global memory, where they are inside, as load_pair_u16
__device__ __forceinline__ void store_pair_float(float* at, float x, float y, i32 i, i32 n) {
    if (inside(i + 1, n)) *reinterpret_cast<float2*>(at) = make_float2(x, y);
    if (i == n - 1) *at = x;
}

// whether an address is a multiple of 16 bytes
__device__ __forceinline__ bool aligned(const void* at) {
    return (reinterpret_cast<unsigned long long>(at) & 15) == 0;
}

// eight aligned neighbours in global memory, by one access; two in each register
__device__ __forceinline__ void load_vector_u16(const u16* at, u32& a, u32& b, u32& c, u32& d) {
    const uint4 all = *reinterpret_cast<const uint4*>(at);
    a = all.x;
    b = all.y;
    c = all.z;
    d = all.w;
}

// eight aligned neighbours in global memory, by two accesses
__device__ __forceinline__ void load_vector_float(const float* at, float& a, float& b, float& c, float& d, float& e,
                                                  float& f, float& g, float& h) {
    const float4 low = *reinterpret_cast<const float4*>(at), high = *reinterpret_cast<const float4*>(at + 4);
    a = low.x;
    b = low.y;
    c = low.z;
    d = low.w;
    e = high.x;
    f = high.y;
    g = high.z;
    h = high.w;
}

// eight aligned neighbours in global memory, by one access; two in each register
__device__ __forceinline__ void store_vector_u16(u16* at, u32 a, u32 b, u32 c, u32 d) {
    *reinterpret_cast<uint4*>(at) = make_uint4(a, b, c, d);
}

// eight aligned neighbours in global memory, by two accesses
__device__ __forceinline__ void store_vector_float(float* at, float a, float b, float c, float d, float e, float f,
                                                   float g, float h) {
    *reinterpret_cast<float4*>(at) = make_float4(a, b, c, d);
    *reinterpret_cast<float4*>(at + 4) = make_float4(e, f, g, h);
}

// two elements of 16 bits in one register, lo in bits 0-15
__device__ __forceinline__ u32 join(u16 lo, u16 hi) {
    return static_cast<u32>(hi) << 16 | lo;
}

// cvt.rn.bf16.f32
__device__ __forceinline__ u16 bf16_from(float x) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// a bfloat16 is the upper half of a float
__device__ __forceinline__ float from_bf16(u16 bits) {
    return __uint_as_float(static_cast<u32>(bits) << 16);
}

// cvt.rn.f16.f32
__device__ __forceinline__ u16 f16_from(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// cvt.f32.f16
__device__ __forceinline__ float from_f16(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

// cvt.rn.satfinite.e4m3x2.f32
__device__ __forceinline__ u8 e4m3_from(float x) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return pair & 0xff;
}

// cvt.rn.f16x2.e4m3x2
__device__ __forceinline__ float from_e4m3(u8 bits) {
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(bits)));
    return from_f16(pair & 0xffff);
}

// cvt.rn.satfinite.e5m2x2.f32
__device__ __forceinline__ u8 e5m2_from(float x) {
    u16 pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return pair & 0xff;
}

// cvt.rn.f16x2.e5m2x2
__device__ __forceinline__ float from_e5m2(u8 bits) {
    u32 pair;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(bits)));
    return from_f16(pair & 0xffff);
}

// the nearest value of that type, as a float
__device__ __forceinline__ float round_bf16(float x) {
    return from_bf16(bf16_from(x));
}

// the nearest value of that type, as a float
__device__ __forceinline__ float round_f16(float x) {
    return from_f16(f16_from(x));
}

// the nearest value of that type, as a float
__device__ __forceinline__ float round_e4m3(float x) {
    return from_e4m3(e4m3_from(x));
}

// the nearest value of that type, as a float
__device__ __forceinline__ float round_e5m2(float x) {
    return from_e5m2(e5m2_from(x));
}

// cvt.rn.satfinite.e4m3x2.f32: lo in bits 0-7
__device__ __forceinline__ u16 pack_e4m3(float lo, float hi) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(hi), "f"(lo));
    return pair;
}

// cvt.rn.satfinite.e5m2x2.f32: lo in bits 0-7
__device__ __forceinline__ u16 pack_e5m2(float lo, float hi) {
    u16 pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(hi), "f"(lo));
    return pair;
}

// cvt.rn.bf16x2.f32: lo in bits 0-15
__device__ __forceinline__ u32 pack_bf16(float lo, float hi) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

// one half of a packed pair
__device__ __forceinline__ float unpack_bf16(u32 pair, int half) {
    return from_bf16(half ? pair >> 16 : pair & 0xffff);
}

// The same bits, of which the compiler does not know that, since a number of CTAs that is negative would change
// them: it unpacks them again where they are read.
__device__ __forceinline__ void unpack_again(u32& pair) {
    asm volatile("{ .reg .u32 z; mov.u32 z, %%nctaid.x; shr.u32 z, z, 31; xor.b32 %0, %0, z; }" : "+r"(pair));
}

// cvt.rn.f16x2.f32: lo in bits 0-15
__device__ __forceinline__ u32 pack_f16(float lo, float hi) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

// one half of a packed pair
__device__ __forceinline__ float unpack_f16(u32 pair, int half) {
    return from_f16(half ? pair >> 16 : pair & 0xffff);
}

// lop3.b32, a & b | c: with two constants ptxas makes two instructions of the operators
__device__ __forceinline__ u32 and_or(u32 a, u32 b, u32 c) {
    u32 bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(bits) : "r"(a), "r"(b), "r"(c));
    return bits;
}

// add.rn.bf16x2
__device__ __forceinline__ u32 add_bf16x2(u32 a, u32 b) {
    u32 pair;
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// max.bf16x2: of each half, a number rather than a NaN
__device__ __forceinline__ u32 max_bf16x2(u32 a, u32 b) {
    u32 pair;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// min.bf16x2: of each half, a number rather than a NaN
__device__ __forceinline__ u32 min_bf16x2(u32 a, u32 b) {
    u32 pair;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// max.f16x2: of each half, a number rather than a NaN
__device__ __forceinline__ u32 max_f16x2(u32 a, u32 b) {
    u32 pair;
    asm("max.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// min.f16x2: of each half, a number rather than a NaN
__device__ __forceinline__ u32 min_f16x2(u32 a, u32 b) {
    u32 pair;
    asm("min.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// sub.rn.bf16x2
__device__ __forceinline__ u32 sub_bf16x2(u32 a, u32 b) {
    u32 pair;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// mul.rn.bf16x2
__device__ __forceinline__ u32 mul_bf16x2(u32 a, u32 b) {
    u32 pair;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// add.rn.f16x2
__device__ __forceinline__ u32 add_f16x2(u32 a, u32 b) {
    u32 pair;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// sub.rn.f16x2
__device__ __forceinline__ u32 sub_f16x2(u32 a, u32 b) {
    u32 pair;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// mul.rn.f16x2
__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
    u32 pair;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

// shfl.sync.bfly: add_lanes(x, 1, 4), over the four lanes that share a row of an accumulator. ptxas orders the instructions of
// a loop otherwise; the kernels were measured with these.
template <typename T>
__device__ __forceinline__ T row_add(T x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// shfl.sync.bfly: max_lanes(x, 1, 4), over the four lanes that share a row of an accumulator. ptxas orders the instructions of
// a loop otherwise; the kernels were measured with these.
template <typename T>
__device__ __forceinline__ T row_max(T x) {
    x = max(x, __shfl_xor_sync(0xffffffff, x, 1));
    return max(x, __shfl_xor_sync(0xffffffff, x, 2));
}

// shfl.sync.bfly: min_lanes(x, 1, 4), over the four lanes that share a row of an accumulator. ptxas orders the instructions of
// a loop otherwise; the kernels were measured with these.
template <typename T>
__device__ __forceinline__ T row_min(T x) {
    x = min(x, __shfl_xor_sync(0xffffffff, x, 1));
    return min(x, __shfl_xor_sync(0xffffffff, x, 2));
}

// shfl.sync.bfly: of the lanes whose numbers differ in the bits `first` up to `end`, powers of two
template <typename T>
__device__ __forceinline__ T add_lanes(T x, int first, int end) {
#pragma unroll
    for (int i = first; i < end; i *= 2) x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

// shfl.sync.bfly: of the lanes whose numbers differ in the bits `first` up to `end`, powers of two
template <typename T>
__device__ __forceinline__ T max_lanes(T x, int first, int end) {
#pragma unroll
    for (int i = first; i < end; i *= 2) x = max(x, __shfl_xor_sync(0xffffffff, x, i));
    return x;
}

// shfl.sync.bfly: of the lanes whose numbers differ in the bits `first` up to `end`, powers of two
template <typename T>
__device__ __forceinline__ T min_lanes(T x, int first, int end) {
#pragma unroll
    for (int i = first; i < end; i *= 2) x = min(x, __shfl_xor_sync(0xffffffff, x, i));
    return x;
}

// redux.sync, .f32; the warp is converged here
__device__ __forceinline__ float redux_min(float x) {
    float y;
    asm volatile("redux.sync.min.f32 %0, %1, 0xffffffff;" : "=f"(y) : "f"(x));
    return y;
}

// redux.sync, .f32; the warp is converged here
__device__ __forceinline__ float redux_max(float x) {
    float y;
    asm volatile("redux.sync.max.f32 %0, %1, 0xffffffff;" : "=f"(y) : "f"(x));
    return y;
}

// selp.b32: a where the condition is not 0, else b. Of `?:` on the number of the lane, NVRTC 13.5 makes branches, and copies shuffles
// that follow into both of them, where the lanes of the other one never come.
template <typename T>
__device__ __forceinline__ T pick(u32 condition, T a, T b) {
    static_assert(sizeof(T) == 4);
    u32 x;
    asm("{ .reg .pred p; setp.ne.u32 p, %3, 0; selp.b32 %0, %1, %2, p; }"
        : "=r"(x) : "r"(reinterpret_cast<const u32&>(a)), "r"(reinterpret_cast<const u32&>(b)), "r"(condition));
    return reinterpret_cast<const T&>(x);
}

// shfl.sync.bfly: of two values, what this lane and that which differs from it in `bit` have of one: of `high` in the lane
// whose bit is set, of `low` in the other
template <typename T>
__device__ __forceinline__ T add_halves(T low, T high, int lane, int bit) {
    const u32 upper = lane & bit;
    return pick(upper, high, low) + __shfl_xor_sync(0xffffffff, pick(upper, low, high), bit);
}

// shfl.sync.bfly: of two values, what this lane and that which differs from it in `bit` have of one: of `high` in the lane
// whose bit is set, of `low` in the other
template <typename T>
__device__ __forceinline__ T max_halves(T low, T high, int lane, int bit) {
    const u32 upper = lane & bit;
    return max(pick(upper, high, low), __shfl_xor_sync(0xffffffff, pick(upper, low, high), bit));
}

// shfl.sync.bfly: of two values, what this lane and that which differs from it in `bit` have of one: of `high` in the lane
// whose bit is set, of `low` in the other
template <typename T>
__device__ __forceinline__ T min_halves(T low, T high, int lane, int bit) {
    const u32 upper = lane & bit;
    return min(pick(upper, high, low), __shfl_xor_sync(0xffffffff, pick(upper, low, high), bit));
}

// ex2.approx.ftz.f32
__device__ __forceinline__ float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// lg2.approx.ftz.f32
__device__ __forceinline__ float fast_log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// rcp.approx.ftz.f32
__device__ __forceinline__ float fast_rcp(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
