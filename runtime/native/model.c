/* The C interface of a compiled library: handles, checked arguments, memory that is used again.
 *
 * The linker binds the names of the one model of the library to the names below and exports each
 * xc_model_NAME as P_NAME (compiler/codegen/link.py). In the runtime's own shared library, which serves
 * Python, no model is there and these names are null.
 */
#define _GNU_SOURCE
#include "xcompile_rt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define OF_MODEL __attribute__((weak, visibility("hidden")))

extern OF_MODEL const char xc_model_weights[];
/* int64: SIGNATURE_* below, then dtype, rank and sizes (-1: any) of each input and output. */
extern OF_MODEL const int64_t xc_model_signature[];
extern OF_MODEL int64_t xc_model_prepare(const int64_t *input_dims, int64_t *table);
extern OF_MODEL int32_t xc_model_run_program(xc_context *ctx, const int64_t *table);
extern OF_MODEL int32_t xc_model_init(xc_context *ctx);

enum {
  SIGNATURE_ABI,
  SIGNATURE_INPUTS,
  SIGNATURE_OUTPUTS,
  SIGNATURE_TABLE_SLOTS,
  SIGNATURE_WEIGHTS_BYTES,
  SIGNATURE_PREPARED_BYTES,
  SIGNATURE_SCRATCH_STRIDE,
  SIGNATURE_FEATURES, /* offset in bytes of NUL-terminated CPU feature names; an empty one ends them */
  SIGNATURE_TENSORS
};

/* What one run needs for itself. Idle frames of a handle form a list. */
typedef struct frame {
  struct frame *next;
  void **buffers;
  int64_t *table;
  int64_t *input_dims; /* those the table was made for */
  int64_t prepared;    /* whether it was made */
  void *arena;
  int64_t arena_bytes;
  xc_heap *heap;
} frame;

struct xc_model {
  pthread_mutex_t lock;
  frame *idle;
  void *prepared;
  int64_t threads, input_sizes, output_sizes; /* the last two: sizes of all inputs, of all outputs */
};

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t handles;
static xc_pool *own_pool;
static _Atomic(xc_pool *) given_pool;

static const char *const STATUS_TEXTS[] = {
    "success", "out of memory", "a null pointer or a structure of unknown size",
    "wrong number of inputs or outputs", "wrong element type", "wrong rank",
    "a size that the model's signature does not allow",
    "a data pointer that is null, misaligned, too short or overlaps another output",
    "the arena is too small or not aligned to 64 bytes", "this CPU lacks a feature the library was compiled for",
    "the library was made for another version of the runtime",
};

const char *xc_model_status_text(int32_t status) {
  if (status < 0) return "a check of the model failed; the manifest has its text";
  if (status >= (int32_t)(sizeof STATUS_TEXTS / sizeof *STATUS_TEXTS)) return "unknown status";
  return STATUS_TEXTS[status];
}

void xc_model_set_pool(xc_pool *pool) { atomic_store(&given_pool, pool); }

static void *aligned(int64_t bytes) {
  void *memory;
  return posix_memalign(&memory, XC_ALIGNMENT, bytes > 0 ? (size_t)bytes : 1) ? NULL : memory;
}

static int64_t round_up(int64_t bytes) { return (bytes + XC_ALIGNMENT - 1) & -(int64_t)XC_ALIGNMENT; }

static int64_t scratch_bytes(const xc_model *model) {
  return model->threads * round_up(xc_model_signature[SIGNATURE_SCRATCH_STRIDE]);
}

static const int64_t *next_tensor(const int64_t *tensor) { return tensor + 2 + tensor[1]; }

static int64_t count_sizes(const int64_t **tensor, int64_t tensors) {
  int64_t sizes = 0;
  for (int64_t i = 0; i < tensors; i++, *tensor = next_tensor(*tensor)) sizes += (*tensor)[1];
  return sizes;
}

static int32_t check_library(void) {
  if (!xc_model_prepare || xc_model_signature[SIGNATURE_ABI] != XC_ABI) return XC_BAD_LIBRARY;
  const char *feature = (const char *)xc_model_signature + xc_model_signature[SIGNATURE_FEATURES];
  for (; *feature; feature += strlen(feature) + 1)
    if (xc_cpu_has(feature) != 1) return XC_UNSUPPORTED_CPU;
  return XC_OK;
}

/* The library's own pool lives as long as there are handles, so that dlclose finds no threads. */
static int32_t hold_pool(void) {
  pthread_mutex_lock(&library_lock);
  if (!own_pool) own_pool = xc_pool_create(xc_default_threads());
  int32_t status = own_pool ? XC_OK : XC_NO_MEMORY;
  handles += own_pool != NULL;
  pthread_mutex_unlock(&library_lock);
  return status;
}

static void release_pool(void) {
  pthread_mutex_lock(&library_lock);
  if (--handles == 0) {
    xc_pool_destroy(own_pool);
    own_pool = NULL;
  }
  pthread_mutex_unlock(&library_lock);
}

static xc_context context_of(const xc_model *model, void *arena, void *scratch, void **buffers, xc_heap *heap) {
  xc_pool *given = atomic_load(&given_pool);
  xc_context ctx = {sizeof ctx, xc_model_weights, model->prepared, arena, scratch, buffers,
                    given ? given : own_pool, model->threads, heap, NULL};
  return ctx;
}

static int32_t prepare_weights(xc_model *model) {
  int64_t bytes = xc_model_signature[SIGNATURE_PREPARED_BYTES];
  void *scratch = aligned(scratch_bytes(model));
  model->prepared = bytes ? aligned(bytes) : NULL;
  int32_t status = scratch && (model->prepared || !bytes) ? XC_OK : XC_NO_MEMORY;
  if (status == XC_OK) {
    xc_context ctx = context_of(model, NULL, scratch, NULL, NULL);
    status = xc_model_init(&ctx);
    if (bytes) xc_release_pages(xc_model_weights, xc_model_signature[SIGNATURE_WEIGHTS_BYTES]);
  }
  free(scratch);
  return status;
}

static xc_model *create(int64_t threads, int32_t *status) {
  if ((*status = check_library()) != XC_OK) return NULL;
  xc_model *model = calloc(1, sizeof *model);
  if (!model) {
    *status = XC_NO_MEMORY;
    return NULL;
  }
  if ((*status = hold_pool()) != XC_OK) {
    free(model);
    return NULL;
  }
  const int64_t *tensor = xc_model_signature + SIGNATURE_TENSORS;
  model->input_sizes = count_sizes(&tensor, xc_model_signature[SIGNATURE_INPUTS]);
  model->output_sizes = count_sizes(&tensor, xc_model_signature[SIGNATURE_OUTPUTS]);
  model->threads = threads > 0 ? threads : xc_default_threads();
  if (model->threads > XC_MAX_THREADS) model->threads = XC_MAX_THREADS;
  pthread_mutex_init(&model->lock, NULL);
  if ((*status = prepare_weights(model)) == XC_OK) return model;
  xc_model_destroy(model);
  return NULL;
}

xc_model *xc_model_create(int64_t threads, int32_t *status) {
  int32_t unused;
  return create(threads, status ? status : &unused);
}

static void free_frame(frame *old) {
  xc_heap_destroy(old->heap);
  free(old->arena);
  free(old);
}

void xc_model_destroy(xc_model *model) {
  if (!model) return;
  for (frame *old; (old = model->idle) != NULL; free_frame(old)) model->idle = old->next;
  pthread_mutex_destroy(&model->lock);
  free(model->prepared);
  free(model);
  release_pool();
}

static frame *take_frame(xc_model *model) {
  pthread_mutex_lock(&model->lock);
  frame *taken = model->idle;
  if (taken) model->idle = taken->next;
  pthread_mutex_unlock(&model->lock);
  if (taken) return taken;
  int64_t buffers = xc_model_signature[SIGNATURE_INPUTS] + xc_model_signature[SIGNATURE_OUTPUTS];
  int64_t slots = buffers + xc_model_signature[SIGNATURE_TABLE_SLOTS] + model->input_sizes;
  taken = calloc(1, sizeof *taken + (size_t)slots * sizeof(int64_t));
  if (!taken) return NULL;
  if (!(taken->heap = xc_heap_create(0))) {
    free(taken);
    return NULL;
  }
  taken->buffers = (void **)(taken + 1);
  taken->table = (int64_t *)(taken->buffers + buffers);
  taken->input_dims = taken->table + xc_model_signature[SIGNATURE_TABLE_SLOTS];
  return taken;
}

static void give_back(xc_model *model, frame *used) {
  pthread_mutex_lock(&model->lock);
  used->next = model->idle;
  model->idle = used;
  pthread_mutex_unlock(&model->lock);
}

/* Whether a size of an output depends on data: the table has -1 for it. */
static int is_late(const int64_t *tensor, const int64_t *dims) {
  for (int64_t i = 0; i < tensor[1]; i++)
    if (dims[i] < 0) return 1;
  return 0;
}

static int sizes_fit(const int64_t *tensor, const int64_t *dims) {
  int64_t bytes = tensor[0] & 0xff;
  for (int64_t i = 0; i < tensor[1]; i++) {
    if (dims[i] < 0 || (tensor[2 + i] >= 0 && dims[i] != tensor[2 + i])) return 0;
    if (__builtin_mul_overflow(bytes, dims[i] ? dims[i] : 1, &bytes)) return 0;
  }
  return 1;
}

static int64_t tensor_bytes(const int64_t *tensor, const int64_t *dims) {
  int64_t bytes = ((tensor[0] & 0xff) + 7) / 8;
  for (int64_t i = 0; i < tensor[1]; i++) bytes *= dims[i];
  return bytes;
}

/* Makes the frame's table for these sizes, unless it is for them already. */
static int32_t prepare_frame(const xc_model *model, frame *own, const int64_t *input_dims) {
  size_t bytes = (size_t)model->input_sizes * sizeof(int64_t);
  if (own->prepared && !memcmp(own->input_dims, input_dims, bytes)) return XC_OK;
  own->prepared = 0;
  const int64_t *tensor = xc_model_signature + SIGNATURE_TENSORS, *dims = input_dims;
  for (int64_t i = 0; i < xc_model_signature[SIGNATURE_INPUTS]; i++) {
    if (!sizes_fit(tensor, dims)) return XC_BAD_DIMS;
    dims += tensor[1];
    tensor = next_tensor(tensor);
  }
  int64_t failed = xc_model_prepare(input_dims, own->table);
  if (failed) return (int32_t)failed;
  dims = own->table + 1;
  for (int64_t i = 0; i < xc_model_signature[SIGNATURE_OUTPUTS]; i++) {
    if (!is_late(tensor, dims) && !sizes_fit(tensor, dims)) return XC_BAD_DIMS;
    dims += tensor[1];
    tensor = next_tensor(tensor);
  }
  memmove(own->input_dims, input_dims, bytes);
  own->prepared = 1;
  return XC_OK;
}

static int64_t frame_bytes(const xc_model *model, const frame *own) {
  return round_up(own->table[0]) + scratch_bytes(model);
}

static int32_t prepared_frame(xc_model *model, const int64_t *input_dims, frame **own) {
  if (!model || (!input_dims && model->input_sizes)) return XC_BAD_ARGUMENT;
  if (!(*own = take_frame(model))) return XC_NO_MEMORY;
  int32_t status = prepare_frame(model, *own, input_dims);
  if (status != XC_OK) give_back(model, *own);
  return status;
}

int32_t xc_model_shapes(xc_model *model, const int64_t *input_dims, int64_t *output_dims) {
  frame *own;
  int32_t status = output_dims ? prepared_frame(model, input_dims, &own) : XC_BAD_ARGUMENT;
  if (status != XC_OK) return status;
  memcpy(output_dims, own->table + 1, (size_t)model->output_sizes * sizeof(int64_t));
  give_back(model, own);
  return XC_OK;
}

int64_t xc_model_required_bytes(xc_model *model, const int64_t *input_dims) {
  frame *own;
  int32_t status = prepared_frame(model, input_dims, &own);
  if (status != XC_OK) return status < 0 ? status : -(INT64_C(1) << 32) - status;
  int64_t bytes = frame_bytes(model, own);
  give_back(model, own);
  return bytes;
}

/* The checks of a tensor that need no sizes. */
static int32_t check_form(const xc_tensor *tensor, const int64_t *expected) {
  if (tensor->size < sizeof(xc_tensor)) return XC_BAD_ARGUMENT;
  if (tensor->dtype != expected[0]) return XC_BAD_DTYPE;
  if (tensor->rank != expected[1]) return XC_BAD_RANK;
  return tensor->dims || !expected[1] ? XC_OK : XC_BAD_ARGUMENT;
}

static int32_t check_buffer(const xc_tensor *tensor, const int64_t *expected, const int64_t *dims) {
  uint64_t element = ((uint64_t)(expected[0] & 0xff) + 7) / 8;
  uint64_t bytes = (uint64_t)tensor_bytes(expected, dims);
  if (bytes && (!tensor->data || (uintptr_t)tensor->data % element)) return XC_BAD_BUFFER;
  return tensor->bytes >= bytes ? XC_OK : XC_BAD_BUFFER;
}

static int overlap(const xc_tensor *a, const xc_tensor *b) {
  uintptr_t begin = (uintptr_t)a->data, other = (uintptr_t)b->data;
  return a->bytes && b->bytes && begin < other + b->bytes && other < begin + a->bytes;
}

/* Gathers the sizes of the inputs into `dims`. */
static int32_t bind_inputs(frame *own, const xc_tensor *inputs, int64_t *dims) {
  const int64_t *expected = xc_model_signature + SIGNATURE_TENSORS;
  for (int64_t i = 0; i < xc_model_signature[SIGNATURE_INPUTS]; i++) {
    int32_t status = check_form(&inputs[i], expected);
    if (status != XC_OK) return status;
    for (int64_t k = 0; k < expected[1]; k++) {
      if (own->prepared && dims[k] != inputs[i].dims[k]) own->prepared = 0;
      dims[k] = inputs[i].dims[k];
    }
    if (!sizes_fit(expected, dims)) return XC_BAD_DIMS;
    if ((status = check_buffer(&inputs[i], expected, dims)) != XC_OK) return status;
    own->buffers[i] = inputs[i].data;
    dims += expected[1];
    expected = next_tensor(expected);
  }
  return XC_OK;
}

static int32_t bind_outputs(frame *own, const xc_tensor *inputs, xc_tensor *outputs) {
  int64_t input_count = xc_model_signature[SIGNATURE_INPUTS];
  const int64_t *expected = xc_model_signature + SIGNATURE_TENSORS, *dims = own->table + 1;
  for (int64_t i = 0; i < input_count; i++) expected = next_tensor(expected);
  for (int64_t i = 0; i < xc_model_signature[SIGNATURE_OUTPUTS]; i++) {
    int32_t status = check_form(&outputs[i], expected);
    if (status != XC_OK) return status;
    for (int64_t k = 0; k < expected[1]; k++) outputs[i].dims[k] = dims[k];
    int late = is_late(expected, dims);
    if (!late && (status = check_buffer(&outputs[i], expected, dims)) != XC_OK) return status;
    if (late && !outputs[i].data) outputs[i].bytes = 0;
    for (int64_t k = 0; k < input_count; k++)
      if (overlap(&outputs[i], &inputs[k])) return XC_BAD_BUFFER;
    for (int64_t k = 0; k < i; k++)
      if (overlap(&outputs[i], &outputs[k])) return XC_BAD_BUFFER;
    own->buffers[input_count + i] = outputs[i].data;
    dims += expected[1];
    expected = next_tensor(expected);
  }
  return XC_OK;
}

static int32_t bind_arena(const xc_model *model, frame *own, void **arena, uint64_t arena_bytes) {
  int64_t needed = frame_bytes(model, own);
  if (*arena)
    return (int64_t)arena_bytes < needed || (uintptr_t)*arena % XC_ALIGNMENT ? XC_ARENA_TOO_SMALL : XC_OK;
  if (!own->arena || own->arena_bytes < needed) {
    free(own->arena);
    own->arena = aligned(needed);
    own->arena_bytes = own->arena ? needed : 0;
  }
  *arena = own->arena;
  return own->arena ? XC_OK : XC_NO_MEMORY;
}

/* Copies one output from the heap of the run to where the caller wants it, or to new memory. */
static int32_t hand_over(xc_tensor *output, const int64_t *expected, const void *data) {
  if (!sizes_fit(expected, output->dims)) return XC_BAD_DIMS;
  int64_t bytes = tensor_bytes(expected, output->dims);
  if (!output->data) {
    if (!(output->data = aligned(bytes))) return XC_NO_MEMORY;
    output->bytes = (uint64_t)bytes;
  }
  int32_t status = check_buffer(output, expected, output->dims);
  if (status == XC_OK && bytes) memcpy(output->data, data, (size_t)bytes);
  return status;
}

/* Hands over the outputs whose size depends on data; their sizes are the first words of the arena. All sizes are
 * written, also when an output does not fit. */
static int32_t hand_over_late(const frame *own, const void *arena, xc_tensor *outputs) {
  int64_t input_count = xc_model_signature[SIGNATURE_INPUTS];
  const int64_t *expected = xc_model_signature + SIGNATURE_TENSORS, *dims = own->table + 1, *found = arena;
  int32_t first_failure = XC_OK;
  for (int64_t i = 0; i < input_count; i++) expected = next_tensor(expected);
  for (int64_t i = 0; i < xc_model_signature[SIGNATURE_OUTPUTS]; i++) {
    if (is_late(expected, dims)) {
      for (int64_t k = 0; k < expected[1]; k++) outputs[i].dims[k] = dims[k] < 0 ? *found++ : dims[k];
      int32_t status = hand_over(&outputs[i], expected, own->buffers[input_count + i]);
      if (first_failure == XC_OK) first_failure = status;
    }
    dims += expected[1];
    expected = next_tensor(expected);
  }
  return first_failure;
}

void xc_model_release(void *data) { free(data); }

static int32_t run_in_frame(xc_model *model, frame *own, const xc_tensor *inputs, xc_tensor *outputs,
                            void *arena, uint64_t arena_bytes) {
  int32_t status = bind_inputs(own, inputs, own->input_dims);
  if (status == XC_OK) status = prepare_frame(model, own, own->input_dims);
  if (status == XC_OK) status = bind_outputs(own, inputs, outputs);
  if (status == XC_OK) status = bind_arena(model, own, &arena, arena_bytes);
  if (status != XC_OK) return status;
  void *scratch = (char *)arena + round_up(own->table[0]);
  xc_context ctx = context_of(model, arena, scratch, own->buffers, own->heap);
  status = xc_model_run_program(&ctx, own->table);
  return status == XC_OK ? hand_over_late(own, arena, outputs) : status;
}

int32_t xc_model_run(xc_model *model, const xc_tensor *inputs, int64_t input_count, xc_tensor *outputs,
                     int64_t output_count, void *arena, uint64_t arena_bytes) {
  if (!model || (!inputs && input_count) || (!outputs && output_count)) return XC_BAD_ARGUMENT;
  if (input_count != xc_model_signature[SIGNATURE_INPUTS]) return XC_BAD_COUNT;
  if (output_count != xc_model_signature[SIGNATURE_OUTPUTS]) return XC_BAD_COUNT;
  frame *own = take_frame(model);
  if (!own) return XC_NO_MEMORY;
  int32_t status = run_in_frame(model, own, inputs, outputs, arena, arena_bytes);
  give_back(model, own);
  return status;
}
