"""What the reader does not model, by recorded kernel: a part of its message, in each case.

A kernel that is listed must fail with that message, so that a line goes as soon as the reader has
what it names; a kernel that is not listed must compute right results.
"""

MISSING: dict[str, str] = {
    "triton_attention_specialised_sm100": "the opcode 'ldmatrix' is not modelled",
    "triton_gemm_bf16_sm90": "cp.async.cg.shared.global: '.cg' (expected .bulk)",
    "triton_gemm_bf16_sm100": "cp.async.cg.shared.global: '.cg' (expected .bulk)",
    "triton_gemm_fp32_sm90": "cp.async.cg.shared.global: '.cg' (expected .bulk)",
    "triton_gemm_fp32_sm100": "cp.async.cg.shared.global: '.cg' (expected .bulk)",
    "triton_gemm_device_maps_sm90": "the opcode 'tensormap' is not modelled",
    "triton_gemm_device_maps_sm100": "the opcode 'tensormap' is not modelled",
    "triton_gemm_device_maps_specialised_sm90": "the opcode 'tensormap' is not modelled",
    "triton_gemm_device_maps_specialised_sm100": "the opcode 'tensormap' is not modelled",
    "triton_gemm_mxf8_sm100": "cp.async.ca.shared.global: '.ca' (expected .bulk)",
    "triton_gemm_mxf8_e5m2_sm100": "cp.async.ca.shared.global: '.ca' (expected .bulk)",
    "triton_gemm_mxf8_f4_sm100": "cp.async.ca.shared.global: '.ca' (expected .bulk)",
    "triton_gemm_mxf4_sm100": "cp.async.ca.shared.global: '.ca' (expected .bulk)",
    "triton_gemm_nvf4_sm100": "cp.async.cg.shared.global: '.cg' (expected .bulk)",
    "triton_gemm_tma_64_rows_sm100": "'.16x32bx2'",
    "triton_histogram_sm90": "the opcode 'atom' is not modelled",
    "triton_histogram_sm100": "the opcode 'atom' is not modelled",
    "triton_transpose_sm90": "the opcode 'ldmatrix' is not modelled",
    "triton_transpose_sm100": "the opcode 'ldmatrix' is not modelled",
}
