/* Launches that watch how they are run, and counters of allocations. */
#define _GNU_SOURCE
#include "xcompile_rt.h"

#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

/* From libxcompile_rt.so; passed in, so that this library needs no link against it. */
typedef void (*parallel_for)(xc_context *, xc_task, void *, int64_t, int64_t, int64_t);

typedef struct watch {
  _Atomic int32_t *times; /* how often each unit was done */
  int64_t *begins;        /* the part that did it */
  char *scratch;
  int64_t stride;
  _Atomic int64_t parts, errors;
  uint32_t mode; /* the floating-point control the parts must see */
  int64_t pause; /* microseconds a part takes */
} watch;

static uint32_t mode(void) {
#if defined(__x86_64__)
  uint32_t mxcsr;
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
  return mxcsr & 0xffc0;
#else
  return 0;
#endif
}

static void set_mode(uint32_t value) {
#if defined(__x86_64__)
  __asm__ volatile("ldmxcsr %0" : : "m"(value));
#else
  (void)value;
#endif
}

static void task(void *record, int64_t begin, int64_t end, void *scratch) {
  watch *w = record;
  atomic_fetch_add(&w->parts, 1);
  int64_t part = ((char *)scratch - w->scratch) / w->stride;
  if (part < 0 || part >= XC_MAX_THREADS || mode() != w->mode) atomic_fetch_add(&w->errors, 1);
  *(int64_t *)scratch = begin;
  if (w->pause) usleep((useconds_t)w->pause);
  for (int64_t i = begin; i < end; i++) {
    atomic_fetch_add(&w->times[i], 1);
    w->begins[i] = begin;
  }
  if (*(int64_t *)scratch != begin) atomic_fetch_add(&w->errors, 1);
}

/* Runs `launches` launches; returns the number of parts of one, or -1 when a unit was not done exactly once or
 * a part saw another part's scratch or another rounding mode. */
int64_t probe(parallel_for run, xc_pool *pool, int64_t threads, int64_t extent, int64_t grain,
              int64_t launches, int64_t pause, int64_t flush_denormals, _Atomic int32_t *times,
              int64_t *begins, char *scratch) {
  xc_context ctx = {sizeof ctx, NULL, NULL, NULL, scratch, NULL, pool, threads, NULL};
  uint32_t before = mode();
  if (flush_denormals) set_mode(before | 0x8040);
  watch w = {times, begins, scratch, 64, 0, 0, mode(), pause};
  for (int64_t n = 0; n < launches; n++) {
    run(&ctx, task, &w, extent, grain, 64);
    for (int64_t i = 0; i < extent; i++) atomic_fetch_add(&w.errors, times[i] != n + 1);
  }
  if (flush_denormals) set_mode(before);
  return w.errors ? -1 : w.parts / launches;
}

#ifdef COUNT_ALLOCATIONS
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static _Atomic int64_t allocations;

void *malloc(size_t bytes) { return atomic_fetch_add(&allocations, 1), __libc_malloc(bytes); }
void *calloc(size_t n, size_t bytes) { return atomic_fetch_add(&allocations, 1), __libc_calloc(n, bytes); }
void *realloc(void *p, size_t bytes) { return atomic_fetch_add(&allocations, 1), __libc_realloc(p, bytes); }
int posix_memalign(void **p, size_t alignment, size_t bytes) {
  atomic_fetch_add(&allocations, 1);
  return (*p = __libc_memalign(alignment, bytes)) ? 0 : 12;
}

/* Allocations during `times` runs of a library's P_run_model. */
int64_t allocations_of(int32_t (*run)(xc_model *, const xc_tensor *, int64_t, xc_tensor *, int64_t, void *, uint64_t),
                       xc_model *model, const xc_tensor *inputs, int64_t input_count, xc_tensor *outputs,
                       int64_t output_count, int64_t times) {
  int64_t before = allocations;
  for (int64_t i = 0; i < times; i++)
    if (run(model, inputs, input_count, outputs, output_count, NULL, 0)) return -1;
  return allocations - before;
}
#endif
