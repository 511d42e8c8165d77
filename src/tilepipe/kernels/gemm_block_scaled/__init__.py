"""The GEMM of MXFP8, MXFP4 and NVFP4 operands: `sm100`."""
