/* Loads and launches kernels that `tilepipe export` has written: see tilepipe_launch.h. */
#include "tilepipe_launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16                   /* bytes, of what TMA copies */
#define MAP_ALIGNMENT 128              /* bytes, of a tensor map, since CUDA 13 */
#define WRAP ((uint64_t)1 << 30)       /* takes a ragged map that loads use round all addresses */
#define SIZED_FROM ((uint64_t)128 * 1024)
#define SIZED_SINCE 13020
#define SIZED ((uint64_t)1 << (85 - 64)) /* "128 KiB or more"; older drivers set it for less */

int tilepipe_fail(tilepipe_kernel *kernel, const char *format, ...)
{
  va_list values;
  int used = snprintf(kernel->error, sizeof kernel->error, "%s: ", kernel->image->name);
  va_start(values, format);
  vsnprintf(kernel->error + used, sizeof kernel->error - (size_t)used, format, values);
  va_end(values);
  return 1;
}

static int refused(tilepipe_kernel *kernel, const char *call, CUresult status)
{
  const char *name = NULL, *text = NULL;
  cuGetErrorName(status, &name);
  cuGetErrorString(status, &text);
  return tilepipe_fail(kernel, "%s failed: %s (%s)", call, name ? name : "unknown",
                       text ? text : "unknown");
}

#define CALL(kernel, call, arguments)                                                          \
  do {                                                                                         \
    CUresult status_ = call arguments;                                                         \
    if (status_ != CUDA_SUCCESS) return refused(kernel, #call, status_);                       \
  } while (0)

int64_t tilepipe_floordiv(int64_t a, int64_t b)
{
  if (b == 0) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t tilepipe_mod(int64_t a, int64_t b)
{
  return a - tilepipe_floordiv(a, b) * b;
}

/* -- SHA-256 (FIPS 180-4) ------------------------------------------------------------------- */

static uint32_t turned(uint32_t x, int by)
{
  return x >> by | x << (32 - by);
}

/* Fractional parts of cube roots of primes (4.2.2) and of square roots (5.3.3) */
static const uint32_t rounds[64] = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
static const uint32_t first[8] = {
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static void digest_block(uint32_t *state, const unsigned char *block)
{
  uint32_t w[64], s[8], a, b;
  int i;
  for (i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
           (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
  for (; i < 64; i++) {
    a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
    b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  memcpy(s, state, sizeof s);
  for (i = 0; i < 64; i++) {
    a = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) +
        ((s[4] & s[5]) ^ (~s[4] & s[6])) + rounds[i] + w[i];
    b = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) +
        ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += a;
    s[0] = a + b;
  }
  for (i = 0; i < 8; i++) state[i] += s[i];
}

static void sha256(const unsigned char *data, size_t bytes, char *hex)
{
  uint32_t state[8];
  unsigned char last[128] = {0};
  size_t whole = bytes / 64 * 64, rest = bytes - whole, at;
  size_t size = rest < 56 ? 64 : 128;
  int i;
  memcpy(state, first, sizeof state);
  for (at = 0; at < whole; at += 64) digest_block(state, data + at);
  if (rest) memcpy(last, data + whole, rest);
  last[rest] = 0x80;
  for (i = 0; i < 8; i++) last[size - 1 - (size_t)i] = (unsigned char)((uint64_t)bytes * 8 >> 8 * i);
  for (at = 0; at < size; at += 64) digest_block(state, last + at);
  for (i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08lx", (unsigned long)state[i]);
}

/* -- loading -------------------------------------------------------------------------------- */

static int check_device(tilepipe_kernel *kernel)
{
  const tilepipe_image *image = kernel->image;
  CUdevice device;
  int major, minor, sms;
  CALL(kernel, cuCtxGetDevice, (&device));
  CALL(kernel, cuDeviceGetAttribute,
       (&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  CALL(kernel, cuDeviceGetAttribute,
       (&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  CALL(kernel, cuDeviceGetAttribute, (&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  if (major != image->major || (image->family ? minor < image->minor : minor != image->minor))
    return tilepipe_fail(kernel,
                         "compiled for compute capability %d.%d; this GPU has %d.%d. Export it"
                         " for this GPU.", image->major, image->minor, major, minor);
  if (sms < image->sms)
    return tilepipe_fail(kernel,
                         "its grid counts on %d multiprocessors; this GPU has %d. Export it with a"
                         " program that is bound for this GPU.", image->sms, sms);
  return 0;
}

int tilepipe_load_data(tilepipe_kernel *kernel, const tilepipe_image *image, const void *cubin,
                       size_t bytes)
{
  char found[65];
  char *padded;
  CUcontext context = NULL;
  CUresult status;
  memset(kernel, 0, sizeof *kernel);
  kernel->image = image;
  CALL(kernel, cuCtxGetCurrent, (&context));
  if (context == NULL)
    return tilepipe_fail(kernel, "no CUDA context is current in this thread: call cuCtxSetCurrent,"
                                 " or cudaSetDevice and cudaFree(0), first");
  if (check_device(kernel)) return 1;
  sha256((const unsigned char *)cubin, bytes, found);
  if (strcmp(found, image->sha256) != 0)
    return tilepipe_fail(kernel,
                         "%s is not what was exported: its SHA-256 is %.16s..., expected %.16s...."
                         " Export again, all files together.", image->file, found, image->sha256);
  CALL(kernel, cuDriverGetVersion, (&kernel->driver));
  padded = (char *)malloc(bytes + 1); /* the driver wants a text to end with 0, and may look */
  if (padded == NULL) return tilepipe_fail(kernel, "no memory for %s", image->file);
  memcpy(padded, cubin, bytes);
  padded[bytes] = 0;
  status = cuModuleLoadData(&kernel->module, padded);
  free(padded);
  if (status != CUDA_SUCCESS) return refused(kernel, "cuModuleLoadData", status);
  CALL(kernel, cuModuleGetFunction, (&kernel->function, kernel->module, image->entry));
  CALL(kernel, cuFuncSetAttribute,
       (kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, image->smem_bytes));
  if (image->cluster > 8)
    CALL(kernel, cuFuncSetAttribute,
         (kernel->function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  return 0;
}

int tilepipe_load(tilepipe_kernel *kernel, const tilepipe_image *image, const char *directory)
{
  char path[4096];
  unsigned char *data = NULL;
  long bytes = -1;
  int failed = 1;
  FILE *file;
  memset(kernel, 0, sizeof *kernel);
  kernel->image = image;
  snprintf(path, sizeof path, "%s/%s", directory, image->file);
  file = fopen(path, "rb");
  if (file == NULL) return tilepipe_fail(kernel, "cannot open %s", path);
  if (fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) >= 0) rewind(file);
  if (bytes >= 0) data = (unsigned char *)malloc((size_t)bytes + 1);
  if (data == NULL || fread(data, 1, (size_t)bytes, file) != (size_t)bytes)
    tilepipe_fail(kernel, "cannot read %s", path);
  else
    failed = tilepipe_load_data(kernel, image, data, (size_t)bytes);
  free(data);
  fclose(file);
  return failed;
}

void tilepipe_unload(tilepipe_kernel *kernel)
{
  if (kernel->module != NULL) cuModuleUnload(kernel->module);
  kernel->module = NULL;
  kernel->function = NULL;
}

/* -- shapes --------------------------------------------------------------------------------- */

/* The strides of a tensor, in elements. */
static int strides_of(tilepipe_kernel *kernel, const tilepipe_parameter *p,
                      const tilepipe_tensor *t, int64_t *stride)
{
  const int *order = p->memory;
  int axis, given = 0;
  for (axis = 0; axis < p->rank; axis++) {
    stride[axis] = t->stride[axis];
    given |= stride[axis] != 0;
  }
  if (!given) {
    stride[order[0]] = 1;
    for (axis = 1; axis < p->rank; axis++)
      stride[order[axis]] = stride[order[axis - 1]] * t->shape[order[axis - 1]];
  }
  if (stride[p->inner] != 1 && t->shape[p->inner] > 1)
    return tilepipe_fail(kernel, "%s.stride[%d] is %lld; this dimension was exported contiguous",
                         p->name, p->inner, (long long)stride[p->inner]);
  return 0;
}

/* Whether two tensors have the same shape and strides. What lies beyond their rank may be anything:
 * a caller need not have set it. */
static int alike(const tilepipe_parameter *p, const tilepipe_tensor *a, const tilepipe_tensor *b)
{
  size_t bytes = (size_t)p->rank * sizeof *a->shape;
  return !memcmp(a->shape, b->shape, bytes) && !memcmp(a->stride, b->stride, bytes);
}

/* The shapes of all tensors as the kernel takes them, and what follows from them. */
static int match_shapes(tilepipe_kernel *kernel, const tilepipe_tensor *const *tensors)
{
  const tilepipe_image *image = kernel->image;
  int64_t *symbols = kernel->symbol;
  int i, axis;
  for (i = 0; i < image->symbols; i++) symbols[i] = -1;
  for (i = 0; i < image->tensors; i++) {
    const tilepipe_parameter *p = &image->tensor[i];
    for (axis = 0; axis < p->rank; axis++) {
      int64_t found = tensors[i]->shape[axis];
      int of = p->symbol[axis];
      if (found < 1 || found > INT32_MAX)
        return tilepipe_fail(kernel, "%s.shape[%d] is %lld; an extent is 1 to 2147483647", p->name,
                             axis, (long long)found);
      if (of < 0 && found != p->extent[axis])
        return tilepipe_fail(kernel, "%s.shape[%d] is %lld; it was exported for %lld", p->name,
                             axis, (long long)found, (long long)p->extent[axis]);
      if (of >= 0 && symbols[of] >= 0 && symbols[of] != found)
        return tilepipe_fail(kernel, "%s.shape[%d] is %lld, but %s is %lld elsewhere", p->name,
                             axis, (long long)found, image->symbol[of], (long long)symbols[of]);
      if (of >= 0) symbols[of] = found;
    }
    if (strides_of(kernel, p, tensors[i], kernel->stride[i])) return 1;
    kernel->matched[i] = *tensors[i];
  }
  return 0;
}

int tilepipe_match(tilepipe_kernel *kernel, const tilepipe_tensor *const *tensors,
                   int64_t *symbols)
{
  const tilepipe_image *image = kernel->image;
  int i, known = kernel->matches;
  if (kernel->function == NULL) return kernel->image == NULL ? 1 :
    tilepipe_fail(kernel, "not loaded");
  for (i = 0; i < image->tensors; i++) {
    const tilepipe_parameter *p = &image->tensor[i];
    const tilepipe_tensor *t = tensors[i], *last = &kernel->matched[i];
    if (t->data == NULL) return tilepipe_fail(kernel, "%s.data is NULL", p->name);
    if ((uintptr_t)t->data & (uintptr_t)(p->aligned - 1)) /* a power of two */
      return tilepipe_fail(kernel, "%s starts at %p; it has to be a multiple of %d bytes", p->name,
                           t->data, p->aligned);
    known = known && alike(p, last, t);
  }
  if (!known) {
    kernel->matches = 0;
    if (match_shapes(kernel, tensors)) return 1;
    kernel->matches = 1;
  }
  memcpy(symbols, kernel->symbol, (size_t)image->symbols * sizeof *symbols);
  return 0;
}

/* -- tensor maps ---------------------------------------------------------------------------- */

static void *aligned(unsigned char *block)
{
  return block + (MAP_ALIGNMENT - (uintptr_t)block % MAP_ALIGNMENT) % MAP_ALIGNMENT;
}

/* The dimensions of a tensor as its map has them, innermost first. */
static void ordered(const tilepipe_parameter *p, int *order)
{
  int axis, n = 0;
  order[n++] = p->inner;
  for (axis = p->rank - 1; axis >= 0; axis--)
    if (axis != p->inner) order[n++] = axis;
}

static int encode(tilepipe_kernel *kernel, const tilepipe_parameter *p, const tilepipe_tensor *t,
                  const int64_t *stride, unsigned char *result)
{
  unsigned char block[sizeof(CUtensorMap) + MAP_ALIGNMENT];
  CUtensorMap *map = (CUtensorMap *)aligned(block);
  uint64_t before = 0, reach;
  cuuint64_t dim[TILEPIPE_RANK + 2], step[TILEPIPE_RANK + 2];
  cuuint32_t box[TILEPIPE_RANK + 2], ones[TILEPIPE_RANK + 2];
  int order[TILEPIPE_RANK], i, n = 0, share = p->bits < 8 ? 8 / p->bits : 1;
  uint64_t bytes = p->bits < 8 ? 1 : (uint64_t)p->bits / 8;
  uint64_t row = (uint64_t)(t->shape[p->inner] / share) * bytes;
  row = (row + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  ordered(p, order);
  for (i = 0; i < p->rank; i++) {
    int axis = order[i];
    int64_t wide = stride[axis] * p->bits / 8;
    uint64_t extent = (uint64_t)(axis == p->inner ? t->shape[axis] / share : t->shape[axis]);
    if (axis == p->inner) wide = (int64_t)bytes;
    else if (extent > 1 && (wide <= 0 || wide % ALIGNMENT || wide >> 40))
      return tilepipe_fail(kernel,
                           "%s: TMA needs strides that are positive multiples of 16 bytes below"
                           " 2^40; dimension %d has a stride of %lld bytes", p->name, axis,
                           (long long)wide);
    /* TMA never uses the stride of a dimension of extent 1, but checks it */
    if (extent == 1) wide = (int64_t)row;
    if (i == 1 && p->ragged && p->loaded) {
      dim[n] = WRAP, step[n] = (uint64_t)wide, box[n++] = p->box[i];
      dim[n] = extent + 1, step[n] = (uint64_t)wide, box[n++] = 1;
      dim[n] = WRAP + 1, step[n] = ((uint64_t)1 << 34) - (uint64_t)wide, box[n++] = 1;
    } else if (i == 1 && p->ragged) {
      dim[n] = p->box[i], step[n] = (uint64_t)wide, box[n++] = p->box[i];
      dim[n] = extent + 1, step[n] = (uint64_t)wide, box[n++] = 1;
      before = p->box[i] * (uint64_t)wide;
    } else {
      dim[n] = extent, step[n] = (uint64_t)wide, box[n++] = p->box[i];
    }
  }
  reach = bytes + (dim[0] - 1) * bytes;
  for (i = 0; i < n; i++) {
    ones[i] = 1;
    if (i) reach += (dim[i] - 1) * step[i];
  }
  if (n == 1) step[1] = ALIGNMENT; /* not used, but read */
  CALL(kernel, cuTensorMapEncodeTiled,
       (map, (CUtensorMapDataType)p->type, (cuuint32_t)n, (char *)t->data - before, dim, step + 1,
        box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)p->swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  memcpy(result, map, sizeof *map);
  if (kernel->driver < SIZED_SINCE && reach < SIZED_FROM) {
    uint64_t word;
    memcpy(&word, result + 8, sizeof word);
    word &= ~SIZED;
    memcpy(result + 8, &word, sizeof word);
  }
  return 0;
}

/* The map of a tensor, encoded anew where none is kept for this address, shape and strides. */
static int map_of(tilepipe_kernel *kernel, const tilepipe_parameter *p, const tilepipe_tensor *t,
                  const int64_t *stride, void *result)
{
  tilepipe_encoded *kept = kernel->kept[p->map];
  uint64_t hash = (uintptr_t)t->data >> 4;
  int axis;
  for (axis = 0; axis < p->rank; axis++)
    hash = (hash ^ (uint64_t)t->shape[axis]) * 0x9e3779b97f4a7c15u;
  kept += (hash >> 32) % TILEPIPE_KEPT;
  if (kept->of.data != t->data || !alike(p, &kept->of, t)) {
    kept->of.data = NULL;
    if (encode(kernel, p, t, stride, kept->map)) return 1;
    kept->of = *t;
  }
  memcpy(result, kept->map, sizeof kept->map);
  return 0;
}

/* -- launching ------------------------------------------------------------------------------ */

int tilepipe_launch(tilepipe_kernel *kernel, const tilepipe_tensor *const *tensors,
                    const void *const *scalars, int64_t grid, CUstream stream)
{
  const tilepipe_image *image = kernel->image;
  unsigned char block[(TILEPIPE_MAPS + 1) * MAP_ALIGNMENT];
  unsigned char *maps = (unsigned char *)aligned(block);
  int64_t (*stride)[TILEPIPE_RANK] = kernel->stride; /* as tilepipe_match has left them */
  union { void *data; int64_t stride; int32_t shape; } value[TILEPIPE_ARGUMENTS];
  void *pointers[TILEPIPE_ARGUMENTS];
  CUlaunchAttribute attribute;
  CUlaunchConfig config;
  int i;
  if (grid < 1 || grid > INT32_MAX || grid % image->cluster)
    return tilepipe_fail(kernel,
                         "its grid comes to %lld CTAs; it has to be 1 to 2147483647, in clusters of"
                         " %d", (long long)grid, image->cluster);
  for (i = 0; i < image->arguments; i++) {
    const tilepipe_argument *a = &image->argument[i];
    pointers[i] = &value[i];
    switch (a->kind) {
    case TILEPIPE_MAP: {
      const tilepipe_parameter *p = &image->tensor[a->from];
      pointers[i] = maps + p->map * MAP_ALIGNMENT;
      if (map_of(kernel, p, tensors[a->from], stride[a->from], pointers[i])) return 1;
      break;
    }
    case TILEPIPE_DATA: value[i].data = tensors[a->from]->data; break;
    case TILEPIPE_STRIDE: value[i].stride = stride[a->from][a->axis]; break;
    case TILEPIPE_SHAPE: value[i].shape = (int32_t)tensors[a->from]->shape[a->axis]; break;
    default: memcpy(&pointers[i], &scalars[a->from], sizeof pointers[i]); /* only read */
    }
  }
  memset(&config, 0, sizeof config);
  memset(&attribute, 0, sizeof attribute);
  if (image->cooperative) {
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  } else { /* starts while the kernel before it ends, and waits for it before it touches memory */
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  config.gridDimX = (unsigned)grid;
  config.blockDimX = (unsigned)image->threads;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = (unsigned)image->smem_bytes;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CALL(kernel, cuLaunchKernelEx, (&config, kernel->function, pointers, NULL));
  return 0;
}
