/* The native side of xcompile: what generated code, compiled libraries and their callers share.
 *
 * Everything here is plain C with fixed-width fields, so that generated code can address it by offset. A
 * structure that crosses the boundary starts with its own size; fields are only ever added at its end.
 */
#ifndef XCOMPILE_RT_H
#define XCOMPILE_RT_H

#include <stdint.h>

#define XC_ABI 2
#define XC_MAX_THREADS 256 /* parts of one launch, and threads of one pool with its caller */
#define XC_ALIGNMENT 64    /* bytes: arena, scratch, prepared data and weights start at multiples of it */
#define XC_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define XC_EXTERN extern "C"
extern "C" {
#else
#define XC_EXTERN extern
#endif

/* One kernel over the units [begin, end) of its parallel axis. */
typedef void (*xc_task)(void *record, int64_t begin, int64_t end, void *scratch);

/* One part of a launch; `state` belongs to whoever called for_each. */
typedef void (*xc_part)(void *state, int64_t part);

/* A thread pool is whatever calls part(state, i) exactly once for each i in [0, parts), in any order and on
 * any thread, and returns after the last of them. xc_pool_create makes one; a program may pass its own. */
typedef struct xc_pool xc_pool;
struct xc_pool {
  uint64_t size; /* sizeof(xc_pool), or more */
  void (*for_each)(xc_pool *self, int64_t parts, xc_part part, void *state);
};

/* Memory for values whose size depends on data; see xc_heap_create. */
typedef struct xc_heap xc_heap;

/* What a run of a model can reach. Generated code addresses the fields by these offsets. */
typedef struct xc_context xc_context;
typedef void (*xc_launcher)(xc_context *ctx, xc_task task, void *record, int64_t extent, int64_t grain,
                            int64_t scratch_stride);
struct xc_context {
  uint64_t size;        /*  0: sizeof(xc_context) */
  const void *weights;  /*  8: the packed constants, read only */
  void *prepared;       /* 16: what P_init computed from the weights; may be null */
  void *arena;          /* 24: at least table[0] bytes */
  void *scratch;        /* 32: threads * scratch_stride bytes */
  void **buffers;       /* 40: pointers of the inputs, then of the outputs; a run writes those of outputs whose size
                               depends on data, which it hands over on its heap */
  xc_pool *pool;        /* 48: null runs everything in the caller */
  int64_t threads;      /* 56: most parts of a launch, 1 to XC_MAX_THREADS */
  xc_heap *heap;        /* 64: of this run; may be null when no size of the model depends on data */
  xc_launcher launch;   /* 72: what xc_parallel_for calls to do its work; null: it does so itself */
};

/* Splits [0, extent) into at most `threads` contiguous parts of at least `grain` units and runs the task on
 * each. The parts depend on these numbers only, never on the pool or on its load. Part i gets the scratch at
 * ctx->scratch + i * scratch_stride. */
XC_API void xc_parallel_for(xc_context *ctx, xc_task task, void *record, int64_t extent, int64_t grain,
                            int64_t scratch_stride);
/* The same, whatever ctx->launch is. */
void xc_launch(xc_context *ctx, xc_task task, void *record, int64_t extent, int64_t grain, int64_t scratch_stride);

/* A heap keeps its blocks from run to run; it serves one run at a time. With `poisoned` what it hands out is filled
 * with 0xFF. Null when out of memory. */
XC_API xc_heap *xc_heap_create(int32_t poisoned);
XC_API void xc_heap_destroy(xc_heap *heap);
/* Takes back all blocks: what a run begins with. */
XC_API void xc_heap_begin(xc_context *ctx);
/* A block of at least `bytes`, aligned to XC_ALIGNMENT; null when there is none. */
XC_API void *xc_heap_allocate(xc_context *ctx, int64_t bytes);
XC_API void xc_heap_free(xc_context *ctx, void *memory);

/* Gives the whole pages among these bytes back to the system, which reads them from their file again when they are
 * touched. They must belong to a mapped file and never have been written. */
XC_API void xc_release_pages(const void *start, int64_t bytes);

/* A pool of `threads` threads, the caller counted; they start at the first launch. Null when out of memory. */
XC_API xc_pool *xc_pool_create(int64_t threads);
/* Ends the threads of an idle pool made by xc_pool_create and frees it; null is allowed. */
XC_API void xc_pool_destroy(xc_pool *pool);
/* The pool of this copy of the runtime, with xc_default_threads() threads; never destroyed. */
XC_API xc_pool *xc_default_pool(void);

/* min(CPUs this process may run on, CPU quota of its control groups, XCOMPILE_THREADS), at least 1. */
XC_API int64_t xc_default_threads(void);
/* The quota in whole CPUs, rounded up; 0 means none. `memberships` is the text of /proc/self/cgroup and
 * `root` the folder where control groups are mounted. */
XC_API int64_t xc_quota_cpus(const char *memberships, const char *root);
/* 1 when this CPU and system have the feature (LLVM's name for it), 0 when not, -1 for an unknown name. */
XC_API int32_t xc_cpu_has(const char *feature);

/* The C interface of a compiled library.
 *
 * A library of a model with prefix P exports these functions under the names P_create, P_destroy, P_shapes,
 * P_required_bytes, P_run_model, P_release, P_set_pool and P_status_text. Destroy every handle before dlclose. */

typedef struct xc_model xc_model;

/* Element types are DLPack's type code times 256 plus the bits of an element: float32 is 0x220. */
typedef struct xc_tensor {
  uint64_t size;  /* sizeof(xc_tensor) */
  void *data;     /* C-contiguous and aligned for its element. An output whose size depends on data may have a null
                     pointer here: a run then sets it to new memory, which P_release gives back */
  uint64_t bytes; /* length of data */
  int64_t *dims;  /* `rank` sizes; read for an input, written for an output */
  int32_t rank;
  int32_t dtype;
} xc_tensor;

typedef enum xc_status {
  XC_OK = 0,
  XC_NO_MEMORY = 1,
  XC_BAD_ARGUMENT = 2,     /* a null pointer or a structure of unknown size */
  XC_BAD_COUNT = 3,        /* not as many inputs or outputs as the model has */
  XC_BAD_DTYPE = 4,
  XC_BAD_RANK = 5,
  XC_BAD_DIMS = 6,         /* a size the model's signature does not allow */
  XC_BAD_BUFFER = 7,       /* data is null, misaligned, too short or overlaps another output */
  XC_ARENA_TOO_SMALL = 8,  /* or not aligned to XC_ALIGNMENT */
  XC_UNSUPPORTED_CPU = 9,
  XC_BAD_LIBRARY = 10,
  /* Negative: -1 - i says that check i of the manifest failed. */
} xc_status;

/* Makes a handle. threads = 0 takes xc_default_threads(). Null on failure; status may be null. */
XC_API xc_model *xc_model_create(int64_t threads, int32_t *status);
XC_API void xc_model_destroy(xc_model *model);
/* Sizes of all outputs, concatenated, for the sizes of all inputs, concatenated; -1 for one that depends on data. */
XC_API int32_t xc_model_shapes(xc_model *model, const int64_t *input_dims, int64_t *output_dims);
/* Bytes of arena and scratch that a run at these sizes needs, or a negative check number. */
XC_API int64_t xc_model_required_bytes(xc_model *model, const int64_t *input_dims);
/* Runs the model. Any number of threads may use one handle at once. `arena` may be null: the handle then
 * keeps memory of its own, and allocates none from the second call at the same sizes. */
XC_API int32_t xc_model_run(xc_model *model, const xc_tensor *inputs, int64_t input_count,
                            xc_tensor *outputs, int64_t output_count, void *arena, uint64_t arena_bytes);
/* Frees the data of an output that a run made; null is allowed. */
XC_API void xc_model_release(void *data);
/* The pool for every handle of this library from now on; null goes back to the library's own. */
XC_API void xc_model_set_pool(xc_pool *pool);
XC_API const char *xc_model_status_text(int32_t status);

/* Declares what a library of a model with this prefix exports for C, and its manifest, which is JSON. */
#define XC_DECLARE_MODEL(prefix)                                                                        \
  XC_EXTERN const char prefix##_manifest[];                                                             \
  XC_EXTERN xc_model *prefix##_create(int64_t threads, int32_t *status);                                \
  XC_EXTERN void prefix##_destroy(xc_model *model);                                                     \
  XC_EXTERN int32_t prefix##_shapes(xc_model *model, const int64_t *input_dims, int64_t *output_dims);  \
  XC_EXTERN int64_t prefix##_required_bytes(xc_model *model, const int64_t *input_dims);                \
  XC_EXTERN int32_t prefix##_run_model(xc_model *model, const xc_tensor *inputs, int64_t input_count,   \
                                       xc_tensor *outputs, int64_t output_count, void *arena,           \
                                       uint64_t arena_bytes);                                           \
  XC_EXTERN void prefix##_release(void *data);                                                          \
  XC_EXTERN void prefix##_set_pool(xc_pool *pool);                                                      \
  XC_EXTERN const char *prefix##_status_text(int32_t status);

#ifdef __cplusplus
}
#endif

#endif
