// Wrappers of the PTX instructions that reach beyond the cluster, as those of ptx.cuh.

// clusterlaunchcontrol.try_cancel
__device__ __forceinline__ void clc_try_cancel(u32 response, u32 bar) {
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                 ::"r"(response), "r"(bar) : "memory");
}

// clusterlaunchcontrol.try_cancel, the response to every CTA of the cluster
__device__ __forceinline__ void clc_try_cancel_multicast(u32 response, u32 bar) {
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"
                 " [%0], [%1];" ::"r"(response), "r"(bar) : "memory");
}

// clusterlaunchcontrol.query_cancel: the first CTA of the cluster that was cancelled; all ones where none was
__device__ __forceinline__ u32 clc_first_cta(u32 response) {
    u32 cta;
    asm volatile("{ .reg .b128 r; .reg .pred p;"
                 " ld.shared.b128 r, [%1];"
                 " clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;"
                 " mov.u32 %0, 0xffffffff;"
                 " @p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, r; }"
                 : "=r"(cta) : "r"(response) : "memory");
    return cta;
}
