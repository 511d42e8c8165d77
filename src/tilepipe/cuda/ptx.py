"""PTX wrappers of the printed code: one small device function each, with the section of the PTX ISA it comes from.

A printed kernel contains only the wrappers it uses, so it stands alone: it compiles with NVRTC or nvcc, and includes nothing. Shared addresses
are the 32-bit kind of `shared_address`; `bar` is the address of an mbarrier.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """A device function of the printed file.

    Attributes:
        name: the C++ function.
        section: where the PTX ISA (or the CUDA C++ Programming Guide) defines what it wraps.
        code: its definition, without the `__device__ __forceinline__` in front.
        needs: snippets that it calls.
    """

    name: str
    section: str
    code: str
    needs: tuple[str, ...] = ()


SNIPPETS: dict[str, Snippet] = {}


def _add(name: str, section: str, code: str, *needs: str) -> None:
    SNIPPETS[name] = Snippet(name, section, code.strip("\n"), needs)


def _asm(name: str, section: str, signature: str, instruction: str, operands: str = "", memory: bool = True) -> None:
    """A wrapper of one instruction that returns nothing."""
    outputs = f" :: {operands}" if operands else " ::"
    clobber = ' : "memory"' if memory else ""
    if not operands:
        outputs, clobber = ("", "") if not memory else (" ::", ': "memory"')
    _add(name, section, f'void {name}({signature}) {{\n    asm volatile("{instruction};"{outputs}{clobber});\n}}')


# -- who and where ----------------------------------------------------------------------------------------------------

_add("lane_id", "Special Registers: %laneid", """
u32 lane_id() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}""")
_add("elect_one", "elect.sync: true in one lane; the warp is converged here", """
bool elect_one() {
    u32 elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
    return elected;
}""")
_add("elect_active", "elect.sync: true in one of the active lanes", """
bool elect_active() {
    u32 elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(elected) : "r"(__activemask()));
    return elected;
}""")
for _register, _ptx in (
    ("cluster_cta_rank", "cluster_ctarank"), ("cluster_index", "clusterid.x"), ("cluster_count", "nclusterid.x"),
):  # fmt: skip
    _add(_register, f"Special Registers: %{_ptx}", f"""
u32 {_register}() {{
    u32 x;
    asm("mov.u32 %0, %%{_ptx};" : "=r"(x));
    return x;
}}""")
_add("shared_address", "State Spaces: an address of the .shared window", """
u32 shared_address(const void* p) {
    return static_cast<u32>(__cvta_generic_to_shared(p));
}""")
_add("on_cta", "mapa: the same shared address in another CTA of the cluster", """
u32 on_cta(u32 address, u32 cta) {
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(cta));
    return remote;
}""")
_add("setmaxnreg_inc", "setmaxnreg", """
template <int N> void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}""")
_add("setmaxnreg_dec", "setmaxnreg", """
template <int N> void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}""")

# -- mbarriers --------------------------------------------------------------------------------------------------------

_MBAR = "mbarrier"
_asm("mbarrier_init", f"{_MBAR}.init", "u32 bar, u32 count", "mbarrier.init.shared::cta.b64 [%0], %1", '"r"(bar), "r"(count)')
_asm("mbarrier_inval", f"{_MBAR}.inval", "u32 bar", "mbarrier.inval.shared::cta.b64 [%0]", '"r"(bar)')
_asm("arrive", f"{_MBAR}.arrive (release, this CTA)", "u32 bar", "mbarrier.arrive.shared::cta.b64 _, [%0]", '"r"(bar)')
_asm("arrive_n", f"{_MBAR}.arrive (release, this CTA)", "u32 bar, u32 count",
     "mbarrier.arrive.shared::cta.b64 _, [%0], %1", '"r"(bar), "r"(count)')  # fmt: skip
# The plain remote form costs no MEMBAR, unlike .release.cluster: for arrivals that publish nothing but finished wgmma reads.
_asm("arrive_remote_relaxed", f"{_MBAR}.arrive (another CTA's barrier; publishes no ordinary access to that CTA)",
     "u32 remote_bar", "mbarrier.arrive.shared::cluster.b64 _, [%0]", '"r"(remote_bar)')  # fmt: skip
_asm("arrive_remote_relaxed_n", f"{_MBAR}.arrive (another CTA's barrier; publishes no ordinary access to that CTA)",
     "u32 remote_bar, u32 count", "mbarrier.arrive.shared::cluster.b64 _, [%0], %1",
     '"r"(remote_bar), "r"(count)')  # fmt: skip
_asm("arrive_remote", f"{_MBAR}.arrive (another CTA's barrier; release at cluster scope)", "u32 remote_bar",
     "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0]", '"r"(remote_bar)')  # fmt: skip
_asm("arrive_remote_n", f"{_MBAR}.arrive (another CTA's barrier; release at cluster scope)", "u32 remote_bar, u32 count",
     "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1", '"r"(remote_bar), "r"(count)')  # fmt: skip
_asm("arrive_expect_tx", f"{_MBAR}.arrive.expect_tx", "u32 bar, u32 bytes",
     "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1", '"r"(bar), "r"(bytes)')  # fmt: skip
_asm("arrive_expect_tx_remote", f"{_MBAR}.arrive.expect_tx (another CTA's barrier)", "u32 remote_bar, u32 bytes",
     "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1",
     '"r"(remote_bar), "r"(bytes)')  # fmt: skip
for _op in ("expect_tx", "complete_tx"):
    _asm(_op, f"{_MBAR}.{_op}", "u32 bar, u32 bytes", f"mbarrier.{_op}.relaxed.cta.shared::cta.b64 [%0], %1",
         '"r"(bar), "r"(bytes)')  # fmt: skip
    _asm(f"{_op}_remote", f"{_MBAR}.{_op} (another CTA's barrier)", "u32 remote_bar, u32 bytes",
         f"mbarrier.{_op}.relaxed.cluster.shared::cluster.b64 [%0], %1", '"r"(remote_bar), "r"(bytes)')  # fmt: skip
_add("try_wait", f"{_MBAR}.try_wait.parity: whether the phase of that parity is complete", """
bool try_wait(u32 bar, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    return done;
}""")
_add("wait", f"{_MBAR}.try_wait.parity: until the phase of that parity is complete", """
void wait(u32 bar, u32 parity) {
    while (!try_wait(bar, parity)) {
    }
}""", "try_wait")

# -- other barriers and fences ----------------------------------------------------------------------------------------

_asm("named_sync", "barrier.cta (bar.sync)", "u32 id, u32 threads", "bar.sync %0, %1", '"r"(id), "r"(threads)')
_asm("named_arrive", "barrier.cta (bar.arrive)", "u32 id, u32 threads", "bar.arrive %0, %1", '"r"(id), "r"(threads)')
_asm("cluster_arrive", "barrier.cluster", "", "barrier.cluster.arrive.release.aligned")
_asm("cluster_wait", "barrier.cluster", "", "barrier.cluster.wait.acquire.aligned")
_asm("fence_mbarrier_init", "membar / fence", "", "fence.mbarrier_init.release.cluster")
_asm("fence_proxy_async", "membar / fence: ordinary accesses before asynchronous ones", "",
     "fence.proxy.async.shared::cta")  # fmt: skip

# -- TMA --------------------------------------------------------------------------------------------------------------

_add("prefetch_tensor_map", "prefetch.tensormap", """
void prefetch_tensor_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}""")
_asm("bulk_commit", "cp.async.bulk.commit_group", "", "cp.async.bulk.commit_group")
_add("bulk_wait", "cp.async.bulk.wait_group: at most N groups of this thread unfinished", """
template <int N> void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}""")
_add("bulk_wait_read", "cp.async.bulk.wait_group.read: at most N groups of this thread still reading shared memory", """
template <int N> void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}""")


def _tma(rank: int) -> None:
    axes = range(rank)
    coords = ", ".join(f"i32 c{i}" for i in axes)
    inputs = ", ".join(f'"r"(c{i})' for i in axes)
    section = "cp.async.bulk.tensor; c0 is the innermost coordinate"
    load = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    at = "{" + ", ".join(f"%{i + 3}" for i in axes) + "}"
    _add(f"tma_load_{rank}d", section, f"""
void tma_load_{rank}d(u32 dst, const TensorMap& map, u32 bar, {coords}) {{
    asm volatile("{load} [%0], [%1, {at}], [%2];"
                 ::"r"(dst), "l"(&map), "r"(bar), {inputs} : "memory");
}}""")
    _add(f"tma_load_multicast_{rank}d", section, f"""
void tma_load_multicast_{rank}d(u32 dst, const TensorMap& map, u32 bar, u16 ctas, {coords}) {{
    asm volatile("{load}.multicast::cluster [%0], [%1, {at}], [%2], %{rank + 3};"
                 ::"r"(dst), "l"(&map), "r"(bar), {inputs}, "h"(ctas) : "memory");
}}""")
    at = "{" + ", ".join(f"%{i + 2}" for i in axes) + "}"
    _add(f"tma_store_{rank}d", section, f"""
void tma_store_{rank}d(const TensorMap& map, u32 src, {coords}) {{
    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%1, {at}], [%0];"
                 ::"r"(src), "l"(&map), {inputs} : "memory");
}}""")


for _rank in range(1, 6):
    _tma(_rank)

# -- tensor cores -----------------------------------------------------------------------------------------------------

_asm("wgmma_fence", "wgmma.fence", "", "wgmma.fence.sync.aligned")
_asm("wgmma_commit", "wgmma.commit_group", "", "wgmma.commit_group.sync.aligned")
_add("wgmma_wait", "wgmma.wait_group: at most N groups of this warpgroup unfinished", """
template <int N> void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}""")
_add("matrix_start", "wgmma, Matrix Descriptor Format: matrix-descriptor-encode(address)", """
u32 matrix_start(u32 address) {
    return (address & 0x3ffff) >> 4;
}""")
_add("stmatrix_x4", "stmatrix", """
void stmatrix_x4(u32 row, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}""")
_add("stmatrix_x2", "stmatrix", """
void stmatrix_x2(u32 row, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b) : "memory");
}""")
for _n in (2, 4):
    _plain = SNIPPETS[f"stmatrix_x{_n}"].code
    _add(f"stmatrix_x{_n}_trans", "stmatrix", _plain.replace(f"stmatrix_x{_n}", f"stmatrix_x{_n}_trans").replace(
        f".x{_n}.shared", f".x{_n}.trans.shared"))  # fmt: skip

# -- swizzled addresses -----------------------------------------------------------------------------------------------

for _bytes, _mask in ((32, 0x10), (64, 0x30), (128, 0x70)):
    _add(f"swizzle_{_bytes}", f"Tensor Swizzling Modes: the {_bytes}-byte mode, on the offset from an aligned tile", f"""
u32 swizzle_{_bytes}(u32 offset) {{
    return offset ^ ((offset >> 3) & {_mask:#x});
}}""")

# -- integers ---------------------------------------------------------------------------------------------------------

_add("floor_div", "division that rounds down, as Python's //", """
template <typename T> constexpr T floor_div(T a, T b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}""")
_add("floor_mod", "remainder with the divisor's sign, as Python's %", """
template <typename T> constexpr T floor_mod(T a, T b) {
    return a % b + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0);
}""")
