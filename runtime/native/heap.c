/* The memory of one run at a time for values whose size depends on data.
 *
 * Blocks are powers of two. A block that is given back waits in the list of its size for the next request, so that a
 * run at sizes that came before takes nothing from the system.
 */
#define _GNU_SOURCE
#include "xcompile_rt.h"

#include <stdlib.h>
#include <string.h>

#define SMALLEST 8 /* 256 bytes */
#define LARGEST 46

typedef struct block {
  struct block *next_free;
  struct block *next; /* all blocks of the heap */
  int64_t bits;       /* its size is 1 << bits */
} block;

struct xc_heap {
  block *all;
  block *idle[LARGEST + 1];
  int32_t poisoned;
};

_Static_assert(sizeof(block) <= XC_ALIGNMENT, "a block's memory starts one line behind it");

xc_heap *xc_heap_create(int32_t poisoned) {
  xc_heap *heap = calloc(1, sizeof *heap);
  if (heap) heap->poisoned = poisoned;
  return heap;
}

void xc_heap_destroy(xc_heap *heap) {
  if (!heap) return;
  for (block *old; (old = heap->all) != NULL; free(old)) heap->all = old->next;
  free(heap);
}

void xc_heap_begin(xc_context *ctx) {
  xc_heap *heap = ctx->heap;
  if (!heap) return;
  memset(heap->idle, 0, sizeof heap->idle);
  for (block *each = heap->all; each; each = each->next) {
    each->next_free = heap->idle[each->bits];
    heap->idle[each->bits] = each;
  }
}

static block *new_block(xc_heap *heap, int64_t bits) {
  void *memory;
  if (posix_memalign(&memory, XC_ALIGNMENT, XC_ALIGNMENT + ((size_t)1 << bits))) return NULL;
  block *made = memory;
  made->bits = bits;
  made->next = heap->all;
  heap->all = made;
  return made;
}

void *xc_heap_allocate(xc_context *ctx, int64_t bytes) {
  xc_heap *heap = ctx->heap;
  if (!heap || bytes < 0 || bytes > INT64_C(1) << LARGEST) return NULL;
  int64_t bits = bytes <= 1 << SMALLEST ? SMALLEST : 64 - __builtin_clzll((uint64_t)bytes - 1);
  block *taken = heap->idle[bits];
  if (taken) heap->idle[bits] = taken->next_free;
  else if (!(taken = new_block(heap, bits))) return NULL;
  void *memory = (char *)taken + XC_ALIGNMENT;
  if (heap->poisoned) memset(memory, 0xff, (size_t)bytes);
  return memory;
}

void xc_heap_free(xc_context *ctx, void *memory) {
  block *given = (block *)((char *)memory - XC_ALIGNMENT);
  given->next_free = ctx->heap->idle[given->bits];
  ctx->heap->idle[given->bits] = given;
}
