/* 'one', exported by tilepipe for compute capability 9.0.
 * tilepipe_launch.h says what the functions return. */
#ifndef ONE_TILEPIPE_H
#define ONE_TILEPIPE_H

#include "tilepipe_launch.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  tilepipe_tensor out; /* int32 (2), written */
  int32_t n; /* 3 as exported */
} one_arguments;

/* The shapes and numbers of the exported program. Copy it, and set addresses and what differs. */
extern const one_arguments one_as_exported;

/* Loads NAME.cubin from a directory, or a cubin from memory. */
int one_load(tilepipe_kernel *kernel, const char *directory);
int one_load_data(tilepipe_kernel *kernel, const void *cubin, size_t bytes);

/* Queues the kernel on a stream. */
int one_launch(tilepipe_kernel *kernel, const one_arguments *arguments, CUstream stream);

#ifdef __cplusplus
}
#endif
#endif
