"""What the reader does not model, by recorded kernel: a part of its message, in each case.

A kernel that is listed must fail with that message, so that a line goes as soon as the reader has
what it names; a kernel that is not listed must compute right results.
"""

# Tensor maps of fp4 numbers that are expanded to 16 bytes for each 16 (b4x16_p64)
_BYTES = "more bytes arrive than were expected"
EXPANDED = {
    "triton_gemm_mxf8_f4_sm100": _BYTES,
    "triton_gemm_mxf8_f4_scales_by_tma_sm100": _BYTES,
}
MISSING: dict[str, str] = {
    "gluon_added_by_tma_bf16_sm100": "'.reduce'",
    "gluon_added_by_tma_fp16_sm100": "'.reduce'",
    "gluon_added_by_tma_fp32_sm100": "'.reduce'",
    "gluon_added_by_tma_i32_sm100": "'.reduce'",
    "triton_gemm_device_maps_sm100": "the opcode 'tensormap'",
    "triton_gemm_device_maps_sm90": "the opcode 'tensormap'",
    "triton_gemm_device_maps_specialised_sm100": "the opcode 'tensormap'",
    "triton_gemm_device_maps_specialised_sm90": "the opcode 'tensormap'",
}
