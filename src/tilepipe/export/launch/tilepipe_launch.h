/* Loads and launches kernels that `tilepipe export` has written. C99; needs the CUDA driver alone.
 *
 * Each exported kernel has a header of its own, with its arguments and its two functions. All
 * functions return 0, or 1 and leave a sentence in `kernel->error`.
 *
 * A tilepipe_kernel is for one thread at a time and one CUDA context. Another thread takes a copy
 * of the struct, which shares the loaded code.
 */
#ifndef TILEPIPE_LAUNCH_H
#define TILEPIPE_LAUNCH_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TILEPIPE_FORMAT 2      /* of manifests and of the tables below */
#define TILEPIPE_RANK 5        /* dimensions of a tensor, at most */
#define TILEPIPE_PARAMETERS 24 /* of a kernel, at most */
#define TILEPIPE_ARGUMENTS 96  /* of its machine code, at most */
#define TILEPIPE_MAPS 16       /* tensor maps of a kernel, at most */
#define TILEPIPE_KEPT 16       /* encoded maps that are kept for each tensor */

/* A tensor in GPU memory. Strides are in elements; all 0: the tensor has no gaps, with its
 * dimensions in memory in the order that NAME.h says. What lies beyond its rank does not count. Of
 * 4-bit elements, shapes and strides count elements, too. */
typedef struct {
  void *data;
  int64_t shape[TILEPIPE_RANK];
  int64_t stride[TILEPIPE_RANK];
} tilepipe_tensor;

/* What a kernel asks of a tensor, and how its tensor map is encoded. `extent`: fixed extents, -1
 * where one is free; `symbol`: which of the kernel's free extents each is, -1 where it is fixed.
 * `inner`: the contiguous dimension. `memory`: the dimensions as they lie in memory without gaps,
 * innermost first. `box`: of the map, innermost first, in units of the map. */
typedef struct {
  const char *name;
  int rank, bits, inner, aligned;
  int64_t extent[TILEPIPE_RANK];
  int symbol[TILEPIPE_RANK];
  int memory[TILEPIPE_RANK];
  int map, type, swizzle, ragged, loaded;
  uint32_t box[TILEPIPE_RANK];
} tilepipe_parameter;

enum { TILEPIPE_MAP, TILEPIPE_DATA, TILEPIPE_STRIDE, TILEPIPE_SHAPE, TILEPIPE_SCALAR };

/* An argument of the machine code. `from`: which tensor, or which scalar, it is made of. */
typedef struct {
  int kind, from, axis;
} tilepipe_argument;

/* An exported kernel. `family`: it runs on later minor versions of the compute capability, too.
 * `sms`: multiprocessors that its grid counts on, 0 where it does not. */
typedef struct {
  const char *name, *entry, *file, *sha256;
  int major, minor, family, sms;
  int threads, cluster, smem_bytes, cooperative;
  int tensors, arguments, symbols;
  const tilepipe_parameter *tensor;
  const tilepipe_argument *argument;
  const char *const *symbol;
} tilepipe_image;

typedef struct {
  tilepipe_tensor of;
  unsigned char map[sizeof(CUtensorMap)];
} tilepipe_encoded;

/* A loaded kernel. `error`: what went wrong last. */
typedef struct {
  const tilepipe_image *image;
  CUmodule module;
  CUfunction function;
  int driver;
  char error[640];
  /* The shapes and strides of the last match, which need no second look, and what follows. */
  int matches;
  tilepipe_tensor matched[TILEPIPE_PARAMETERS];
  int64_t stride[TILEPIPE_PARAMETERS][TILEPIPE_RANK];
  int64_t symbol[TILEPIPE_PARAMETERS * TILEPIPE_RANK];
  tilepipe_encoded kept[TILEPIPE_MAPS][TILEPIPE_KEPT];
} tilepipe_kernel;

/* Loads DIRECTORY/NAME.cubin, or a cubin from memory, into the context that is current. Refuses
 * another GPU than the kernel was compiled for, and a cubin that is not the exported one. */
int tilepipe_load(tilepipe_kernel *kernel, const tilepipe_image *image, const char *directory);
int tilepipe_load_data(tilepipe_kernel *kernel, const tilepipe_image *image, const void *cubin,
                       size_t bytes);
void tilepipe_unload(tilepipe_kernel *kernel);

/* What the generated functions call: check shapes and find the free extents; launch the tensors
 * that were just checked; fail. */
int tilepipe_match(tilepipe_kernel *kernel, const tilepipe_tensor *const *tensors,
                   int64_t *symbols);
int tilepipe_launch(tilepipe_kernel *kernel, const tilepipe_tensor *const *tensors,
                    const void *const *scalars, int64_t grid, CUstream stream);
int tilepipe_fail(tilepipe_kernel *kernel, const char *format, ...);
int64_t tilepipe_floordiv(int64_t a, int64_t b); /* as Python's //; 0 where b is 0 */
int64_t tilepipe_mod(int64_t a, int64_t b);      /* as Python's % */

#ifdef __cplusplus
}
#endif
#endif
