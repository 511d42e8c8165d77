"""What the reader does not model, by recorded kernel: a part of its message, in each case.

A kernel that is listed must fail with that message, so that a line goes as soon as the reader has
what it names; a kernel that is not listed must compute right results.
"""

# Tensor maps of fp4 numbers that are expanded to 16 bytes for each 16 (b4x16_p64)
EXPANDED = {"triton_gemm_mxf8_f4_sm100": "more bytes arrive than were expected"}
MISSING: dict[str, str] = {
    "triton_gemm_device_maps_sm100": "the opcode 'tensormap'",
    "triton_gemm_device_maps_sm90": "the opcode 'tensormap'",
    "triton_gemm_device_maps_specialised_sm100": "the opcode 'tensormap'",
    "triton_gemm_device_maps_specialised_sm90": "the opcode 'tensormap'",
}
