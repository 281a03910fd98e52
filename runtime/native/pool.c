/* Static partition and the thread pool.
 *
 * A launch publishes its parts under a new generation. Threads claim parts one by one; a part's claim word
 * holds the last generation in which it was claimed, so a thread that wakes late can never take a part of a
 * launch that is over, and a successful claim proves that the launch still waits for that part. The caller
 * claims too: it never waits for a thread that has not woken. Which thread runs a part is left to chance,
 * what the part computes is not.
 */
#define _GNU_SOURCE
#include "xcompile_rt.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NANOSECONDS 50000 /* about the time between two kernels; then sleep */
#define PARTS_BITS 16

_Static_assert(sizeof(xc_context) == 80, "generated code addresses the context by offset");
_Static_assert(offsetof(xc_context, pool) == 48, "generated code addresses the context by offset");
_Static_assert(XC_MAX_THREADS < 1 << PARTS_BITS, "parts must fit into the epoch");

typedef struct thread_pool thread_pool;

typedef struct worker {
  thread_pool *pool;
  pthread_t thread;
  int64_t index;
  uint64_t seen; /* the last epoch this thread has dealt with */
} worker;

typedef struct claim_word {
  _Alignas(64) _Atomic uint64_t generation;
} claim_word;

struct thread_pool {
  xc_pool base;
  int64_t threads;
  int64_t spin_nanoseconds;
  int64_t started;        /* threads alive besides the caller */
  _Atomic int32_t owner;  /* the process whose threads these are; 0: none yet; negative: being started */
  _Atomic uint32_t stop;
  _Alignas(64) _Atomic uint32_t busy;
  xc_part part;           /* the launch in progress */
  void *state;
  _Alignas(64) _Atomic uint64_t epoch; /* generation << PARTS_BITS | parts */
  _Alignas(64) _Atomic uint32_t signal; /* futex of idle threads: counts launches */
  _Atomic uint32_t sleepers;
  _Alignas(64) _Atomic uint32_t pending; /* futex of the caller: parts not finished */
  _Atomic uint32_t caller_sleeps;
  claim_word claims[XC_MAX_THREADS];
  worker workers[XC_MAX_THREADS];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int32_t count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/* Rounding and denormal modes: a part computes under those of the thread that called, whoever runs it. */
static inline uint64_t float_control(void) {
#if defined(__x86_64__)
  uint32_t mxcsr;
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
  return mxcsr & ~UINT32_C(0x3f);
#elif defined(__aarch64__)
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#endif
}

static inline void set_float_control(uint64_t control) {
#if defined(__x86_64__)
  uint32_t mxcsr = (uint32_t)control;
  __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(control));
#endif
}

static int try_claim(thread_pool *pool, int64_t part, uint64_t generation) {
  _Atomic uint64_t *word = &pool->claims[part].generation;
  uint64_t last = atomic_load_explicit(word, memory_order_relaxed);
  return last < generation && atomic_compare_exchange_strong(word, &last, generation);
}

/* Runs the parts of a launch that nobody has claimed, starting with `first`, which keeps a thread on the
 * same part of the data from kernel to kernel. */
static void run_parts(thread_pool *pool, uint64_t epoch, int64_t first) {
  uint64_t generation = epoch >> PARTS_BITS;
  int64_t parts = epoch & ((UINT64_C(1) << PARTS_BITS) - 1);
  for (int64_t i = 0; i < parts; i++) {
    int64_t part = (first + i) % parts;
    if (!try_claim(pool, part, generation)) continue;
    pool->part(pool->state, part);
    if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->caller_sleeps))
      futex_wake(&pool->pending, 1);
  }
}

static uint64_t wait_for_launch(thread_pool *pool, uint64_t seen) {
  uint64_t epoch;
  int64_t deadline = pool->spin_nanoseconds ? nanoseconds() + pool->spin_nanoseconds : 0;
  for (uint32_t i = 1; deadline; i++) {
    if ((epoch = atomic_load_explicit(&pool->epoch, memory_order_acquire)) != seen) return epoch;
    relax();
    if (i % 32 == 0 && nanoseconds() > deadline) break;
  }
  for (;;) {
    uint32_t signal = atomic_load(&pool->signal);
    atomic_fetch_add(&pool->sleepers, 1);
    if (atomic_load(&pool->epoch) == seen) futex_wait(&pool->signal, signal);
    atomic_fetch_sub(&pool->sleepers, 1);
    if ((epoch = atomic_load(&pool->epoch)) != seen) return epoch;
  }
}

static void *work(void *argument) {
  worker *self = argument;
  for (;;) {
    self->seen = wait_for_launch(self->pool, self->seen);
    if (atomic_load(&self->pool->stop)) return NULL;
    run_parts(self->pool, self->seen, self->index);
  }
}

static uint64_t next_epoch(thread_pool *pool, int64_t parts) {
  uint64_t generation = atomic_load_explicit(&pool->epoch, memory_order_relaxed) >> PARTS_BITS;
  return (generation + 1) << PARTS_BITS | (uint64_t)parts;
}

static void publish(thread_pool *pool, uint64_t epoch, int32_t wanted) {
  atomic_store(&pool->epoch, epoch);
  atomic_fetch_add(&pool->signal, 1);
  if (atomic_load(&pool->sleepers)) futex_wake(&pool->signal, wanted);
}

static void wait_for_parts(thread_pool *pool) {
  int64_t deadline = pool->spin_nanoseconds ? nanoseconds() + pool->spin_nanoseconds : 0;
  for (uint32_t i = 1; deadline; i++) {
    if (atomic_load_explicit(&pool->pending, memory_order_acquire) == 0) return;
    relax();
    if (i % 32 == 0 && nanoseconds() > deadline) break;
  }
  atomic_store(&pool->caller_sleeps, 1);
  for (uint32_t pending; (pending = atomic_load(&pool->pending)) != 0;) futex_wait(&pool->pending, pending);
  atomic_store(&pool->caller_sleeps, 0);
}

static void start_threads(thread_pool *pool) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's threads */
  for (pool->started = 0; pool->started < pool->threads - 1; pool->started++) {
    worker *self = &pool->workers[pool->started];
    self->pool = pool;
    self->index = pool->started + 1;
    self->seen = atomic_load(&pool->epoch);
    if (pthread_create(&self->thread, NULL, work, self)) break; /* fewer threads give the same answer */
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Gives the pool its threads: at its first launch, and again in a process forked since, which has the
 * memory of the pool but none of its threads. False while another thread is doing so. */
static int adopt(thread_pool *pool, int32_t owner, int32_t process) {
  if (owner == -process || !atomic_compare_exchange_strong(&pool->owner, &owner, -process)) return 0;
  atomic_store(&pool->epoch, next_epoch(pool, 0)); /* a launch that the fork cut off is over */
  atomic_store(&pool->busy, 0);
  atomic_store(&pool->sleepers, 0);
  atomic_store(&pool->caller_sleeps, 0);
  start_threads(pool);
  atomic_store(&pool->owner, process);
  return 1;
}

static int enter(thread_pool *pool) {
  int32_t process = getpid(), owner = atomic_load(&pool->owner);
  if (owner != process && !adopt(pool, owner, process)) return 0;
  return atomic_exchange(&pool->busy, 1) == 0;
}

static void run_in_caller(int64_t parts, xc_part part, void *state) {
  for (int64_t i = 0; i < parts; i++) part(state, i);
}

static void pool_for_each(xc_pool *base, int64_t parts, xc_part part, void *state) {
  thread_pool *pool = (thread_pool *)base;
  if (parts < 2 || parts > XC_MAX_THREADS || pool->threads < 2 || !enter(pool)) {
    run_in_caller(parts, part, state);
    return;
  }
  uint64_t epoch = next_epoch(pool, parts);
  pool->part = part;
  pool->state = state;
  atomic_store(&pool->pending, (uint32_t)parts);
  publish(pool, epoch, (int32_t)parts - 1);
  run_parts(pool, epoch, 0);
  wait_for_parts(pool);
  atomic_store(&pool->busy, 0);
}

xc_pool *xc_pool_create(int64_t threads) {
  void *memory;
  if (posix_memalign(&memory, XC_ALIGNMENT, sizeof(thread_pool))) return NULL;
  thread_pool *pool = memset(memory, 0, sizeof(thread_pool));
  pool->base.size = sizeof(xc_pool);
  pool->base.for_each = pool_for_each;
  pool->threads = threads < 1 ? 1 : threads > XC_MAX_THREADS ? XC_MAX_THREADS : threads;
  /* With more threads than CPUs, one that spins keeps one that works from running. */
  pool->spin_nanoseconds = pool->threads <= xc_default_threads() ? SPIN_NANOSECONDS : 0;
  return &pool->base;
}

void xc_pool_destroy(xc_pool *base) {
  thread_pool *pool = (thread_pool *)base;
  if (pool && atomic_load(&pool->owner) == getpid()) {
    atomic_store(&pool->stop, 1);
    publish(pool, next_epoch(pool, 0), XC_MAX_THREADS);
    for (int64_t i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
  }
  free(pool);
}

xc_pool *xc_default_pool(void) {
  static _Atomic(xc_pool *) shared;
  xc_pool *pool = atomic_load(&shared);
  if (pool) return pool;
  xc_pool *created = xc_pool_create(xc_default_threads());
  if (!created || atomic_compare_exchange_strong(&shared, &pool, created)) return created;
  xc_pool_destroy(created);
  return pool;
}

typedef struct launch {
  xc_task task;
  void *record;
  char *scratch;
  int64_t extent, parts, scratch_stride;
  uint64_t float_control;
} launch;

static void run_part(void *state, int64_t part) {
  const launch *job = state;
  int64_t share = job->extent / job->parts, longer = job->extent % job->parts;
  int64_t begin = part * share + (part < longer ? part : longer);
  int64_t end = begin + share + (part < longer);
  uint64_t control = float_control();
  if (control != job->float_control) set_float_control(job->float_control);
  job->task(job->record, begin, end, job->scratch + part * job->scratch_stride);
  if (control != job->float_control) set_float_control(control);
}

void xc_parallel_for(xc_context *ctx, xc_task task, void *record, int64_t extent, int64_t grain,
                     int64_t scratch_stride) {
  if (ctx->size > offsetof(xc_context, launch) && ctx->launch)
    ctx->launch(ctx, task, record, extent, grain, scratch_stride);
  else
    xc_launch(ctx, task, record, extent, grain, scratch_stride);
}

void xc_launch(xc_context *ctx, xc_task task, void *record, int64_t extent, int64_t grain, int64_t scratch_stride) {
  if (extent <= 0) return;
  int64_t most = ctx->threads < XC_MAX_THREADS ? ctx->threads : XC_MAX_THREADS;
  int64_t parts = grain > 1 ? extent / grain : extent;
  if (parts > most) parts = most;
  if (parts <= 1) {
    task(record, 0, extent, ctx->scratch);
    return;
  }
  launch job = {task, record, ctx->scratch, extent, parts, scratch_stride, float_control()};
  if (ctx->pool)
    ctx->pool->for_each(ctx->pool, parts, run_part, &job);
  else
    run_in_caller(parts, run_part, &job);
}
