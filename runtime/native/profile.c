/* Records when the parts of launches run. `xcompile profile` gives the context of its runs `xc_profiled_launch`: the
 * model's code is the one that ships, in memory or in a library, and a run without it looks at one field a launch.
 * This file is part of the shared library for Python only, not of the object in compiled libraries.
 */
#define _GNU_SOURCE
#include "xcompile_rt.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

/* A part of a launch, or with part = -1 the whole launch as its caller sees it. Times in nanoseconds. */
typedef struct xc_event {
  int64_t task;   /* the address of the kernel's task */
  int64_t launch; /* the number of the launch since the recording began */
  int64_t part;
  int64_t thread; /* a small number for each thread */
  int64_t start;
  int64_t stop;
  int64_t cpu; /* time that the thread itself worked */
} xc_event;

typedef struct profiled_launch {
  xc_task task;
  void *record;
  int64_t number;
  _Atomic int64_t parts;
} profiled_launch;

static xc_event *_Atomic events; /* null: nothing is recorded */
static int64_t capacity;
static _Atomic int64_t used;
static _Atomic int64_t launches;
static _Atomic int64_t threads;
static _Thread_local int64_t thread_number;

static int64_t now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void append(xc_event event) {
  xc_event *into = atomic_load(&events);
  int64_t place = atomic_fetch_add(&used, 1);
  if (!into || place >= capacity) return;
  if (!thread_number) thread_number = atomic_fetch_add(&threads, 1) + 1;
  event.thread = thread_number;
  into[place] = event;
}

static void run_profiled(void *record, int64_t begin, int64_t end, void *scratch) {
  profiled_launch *launch = record;
  int64_t start = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
  launch->task(launch->record, begin, end, scratch);
  int64_t worked = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
  append((xc_event){(int64_t)launch->task, launch->number, atomic_fetch_add(&launch->parts, 1), 0, start,
                    now(CLOCK_MONOTONIC), worked});
}

/* `xc_launch`, recorded while there is a buffer. */
EXPORT void xc_profiled_launch(xc_context *ctx, xc_task task, void *record, int64_t extent, int64_t grain,
                               int64_t scratch_stride) {
  if (!atomic_load(&events)) {
    xc_launch(ctx, task, record, extent, grain, scratch_stride);
    return;
  }
  profiled_launch launch = {task, record, atomic_fetch_add(&launches, 1), 0};
  int64_t start = now(CLOCK_MONOTONIC);
  xc_launch(ctx, run_profiled, &launch, extent, grain, scratch_stride);
  append((xc_event){(int64_t)task, launch.number, -1, 0, start, now(CLOCK_MONOTONIC), 0});
}

/* Record into `count` events at `buffer`; null ends it. No launch may be under way. */
EXPORT void xc_profile_into(xc_event *buffer, int64_t count) {
  capacity = count;
  atomic_store(&used, 0);
  atomic_store(&launches, 0);
  atomic_store(&events, buffer);
}

/* The number of events since `xc_profile_into`, which can be larger than the buffer. */
EXPORT int64_t xc_profile_count(void) { return atomic_load(&used); }
