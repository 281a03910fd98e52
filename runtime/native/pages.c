/* Pages of a mapped file that were read once and are not needed soon. */
#define _GNU_SOURCE
#include "xcompile_rt.h"

#include <sys/auxv.h>
#include <sys/mman.h>

void xc_release_pages(const void *start, int64_t bytes) {
  uintptr_t page = getauxval(AT_PAGESZ), first = (uintptr_t)start;
  uintptr_t begin = (first + page - 1) & -page, end = (first + (uintptr_t)bytes) & -page;
  if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}
