/* A CUDA driver that runs nothing: it writes each call that matters to a text, one a line. */
#include <cuda.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char stub_text[1 << 16];
int stub_major = 9, stub_minor = 0, stub_sms = 132, stub_version = 13020, stub_status = 0;
int stub_no_context = 0;
/* Bytes of each kernel parameter, 128 for a map; ended by 0. */
int stub_sizes[128];

static void say(const char *format, ...)
{
  size_t used = strlen(stub_text);
  va_list values;
  va_start(values, format);
  vsnprintf(stub_text + used, sizeof stub_text - used, format, values);
  va_end(values);
}

CUresult cuInit(unsigned int flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
  (void)device;
  return cuCtxGetCurrent(context);
}
CUresult cuCtxSetCurrent(CUcontext context)
{
  return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuCtxSynchronize(void) { return CUDA_SUCCESS; }
CUresult cuMemAlloc(CUdeviceptr *place, size_t bytes)
{
  *place = ((uintptr_t)malloc(bytes + 256) + 255) / 256 * 256;
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
  memcpy((void *)to, from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
  memcpy(to, (const void *)from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) { *version = stub_version; return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult e, const char **text)
{
  *text = e == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" : "OTHER";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult e, const char **text)
{
  (void)e;
  *text = "too many resources requested for launch";
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *c)
{
  *c = stub_no_context ? NULL : (CUcontext)(uintptr_t)0x10;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *d) { *d = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice d)
{
  (void)d;
  *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? stub_major
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? stub_minor
                                                                   : stub_sms;
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *m, const void *image)
{
  *m = (CUmodule)(uintptr_t)0x20;
  say("load %.4s\n", (const char *)image + 0);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule m) { (void)m; say("unload\n"); return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
  (void)m;
  *f = (CUfunction)(uintptr_t)0x30;
  say("function %s\n", name);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value)
{
  (void)f;
  say("attribute %d %d\n", (int)which, value);
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *dim, const cuuint64_t *strides,
                                const cuuint32_t *box, const cuuint32_t *ones,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
  cuuint32_t i;
  if ((uintptr_t)map % 128) return CUDA_ERROR_INVALID_VALUE;
  say("map %d %llu %d %d %d %d", (int)type, (unsigned long long)(uintptr_t)address, (int)swizzle,
      (int)interleave, (int)promotion, (int)fill);
  for (i = 0; i < rank; i++)
    say(" %llu:%llu:%u:%u", (unsigned long long)dim[i],
        (unsigned long long)(i ? strides[i - 1] : 0), box[i], ones[i]);
  say("\n");
  memset(map, 0, sizeof *map);
  map->opaque[0] = (uintptr_t)address;
  map->opaque[1] = ~(cuuint64_t)0;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra)
{
  int i, j;
  (void)extra;
  if (stub_status) return (CUresult)stub_status;
  say("launch %d %u %u %u %u %u %u %u %llu %u %d %d", f == (CUfunction)(uintptr_t)0x30, c->gridDimX,
      c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
      (unsigned long long)(uintptr_t)c->hStream, c->numAttrs, (int)c->attrs[0].id,
      c->attrs[0].value.cooperative);
  for (i = 0; stub_sizes[i]; i++) {
    say(" ");
    if (stub_sizes[i] == 128 && (uintptr_t)parameters[i] % 64) return CUDA_ERROR_INVALID_VALUE;
    for (j = 0; j < stub_sizes[i]; j++) say("%02x", ((unsigned char *)parameters[i])[j]);
  }
  say("\n");
  return CUDA_SUCCESS;
}
