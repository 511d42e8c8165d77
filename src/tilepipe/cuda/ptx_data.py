"""Device functions that move and convert data: ordinary shared-memory accesses, rounding, packing, shuffles, fast functions.

Floats of 8 and 16 bits live in registers as `float` (exactly representable), or packed two to a register in fragments; these
functions are where they are rounded.
"""

from __future__ import annotations

from tilepipe.cuda.ptx import SNIPPETS, Snippet


def _add(name: str, section: str, code: str, *needs: str) -> None:
    SNIPPETS[name] = Snippet(name, section, code.strip("\n"), needs)


# -- ordinary accesses to shared memory -------------------------------------------------------------------------------

# C++ type -> (PTX type, asm constraint)
_ACCESS = {
    "i8": ("s8", "r"), "u8": ("u8", "r"), "u16": ("u16", "h"), "i32": ("s32", "r"), "u32": ("u32", "r"),
    "i64": ("s64", "l"), "u64": ("u64", "l"), "float": ("f32", "f"), "double": ("f64", "d"),
}  # fmt: skip
for _type, (_ptx, _constraint) in _ACCESS.items():
    _wide = {"i8": "i32", "u8": "u32"}.get(_type, _type)  # PTX has no 8-bit registers
    for _space, _suffix in (("shared::cta", ""), ("shared::cluster", "_remote")):
        _add(f"load_{_type}{_suffix}", f"ld.{_space}", f"""
{_type} load_{_type}{_suffix}(u32 address) {{
    {_wide} x;
    asm volatile("ld.{_space}.{_ptx} %0, [%1];" : "={_constraint}"(x) : "r"(address) : "memory");
    return x;
}}""")
        _store = _ptx.replace("s", "u") if _ptx[0] == "s" else _ptx
        _add(f"store_{_type}{_suffix}", f"st.{_space}", f"""
void store_{_type}{_suffix}(u32 address, {_wide} x) {{
    asm volatile("st.{_space}.{_store} [%0], %1;" ::"r"(address), "{_constraint}"(x) : "memory");
}}""")
_add("store_float2", "st.shared, .v2", """
void store_float2(u32 address, float x, float y) {
    asm volatile("st.shared::cta.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}""")
_add("load_float2", "ld.shared, .v2", """
void load_float2(u32 address, float& x, float& y) {
    asm volatile("ld.shared::cta.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory");
}""")

# -- conversions ------------------------------------------------------------------------------------------------------

_CVT = "cvt"
_add("bf16_from", f"{_CVT}.rn.bf16.f32", """
u16 bf16_from(float x) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}""")
_add("from_bf16", "a bfloat16 is the upper half of a float", """
float from_bf16(u16 bits) {
    return __uint_as_float(static_cast<u32>(bits) << 16);
}""")
_add("f16_from", f"{_CVT}.rn.f16.f32", """
u16 f16_from(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}""")
_add("from_f16", f"{_CVT}.f32.f16", """
float from_f16(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}""")
for _name in ("e4m3", "e5m2"):
    _add(f"{_name}_from", f"{_CVT}.rn.satfinite.{_name}x2.f32", f"""
u8 {_name}_from(float x) {{
    u16 pair;
    asm("cvt.rn.satfinite.{_name}x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return pair & 0xff;
}}""")
    _add(f"from_{_name}", f"{_CVT}.rn.f16x2.{_name}x2", f"""
float from_{_name}(u8 bits) {{
    u32 pair;
    asm("cvt.rn.f16x2.{_name}x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(bits)));
    return from_f16(pair & 0xffff);
}}""", "from_f16")
for _name in ("bf16", "f16", "e4m3", "e5m2"):
    _add(f"round_{_name}", "the nearest value of that type, as a float", f"""
float round_{_name}(float x) {{
    return from_{_name}({_name}_from(x));
}}""", f"{_name}_from", f"from_{_name}")
for _name in ("bf16", "f16"):
    _add(f"pack_{_name}", f"{_CVT}.rn.{_name}x2.f32: lo in bits 0-15", f"""
u32 pack_{_name}(float lo, float hi) {{
    u32 pair;
    asm("cvt.rn.{_name}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}}""")
    _add(f"unpack_{_name}", "one half of a packed pair", f"""
float unpack_{_name}(u32 pair, int half) {{
    return from_{_name}(half ? pair >> 16 : pair & 0xffff);
}}""", f"from_{_name}")

# -- lanes of a row ---------------------------------------------------------------------------------------------------

_add("row_add", "shfl.sync.bfly: over the four lanes that share a row of a fragment", """
float row_add(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}""")
_add("row_max", "shfl.sync.bfly: over the four lanes that share a row of a fragment", """
float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}""")

# -- approximate functions --------------------------------------------------------------------------------------------

for _name, _ptx in (("fast_exp2", "ex2.approx.ftz.f32"), ("fast_log2", "lg2.approx.ftz.f32")):
    _add(_name, _ptx, f"""
float {_name}(float x) {{
    float y;
    asm("{_ptx} %0, %1;" : "=f"(y) : "f"(x));
    return y;
}}""")
