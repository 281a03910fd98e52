/* What kernels and the runtime ask of libc, for machines without system: one thread, no files, no environment.
 *
 * Compiled with -fno-builtin, so that nothing here is turned into a call of itself. */
#include "image.h"

void *memcpy(void *to, const void *from, word bytes) {
  for (word i = 0; i < bytes; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memmove(void *to, const void *from, word bytes) {
  if (to <= from) return memcpy(to, from, bytes);
  while (bytes--) ((char *)to)[bytes] = ((const char *)from)[bytes];
  return to;
}

void *memset(void *to, int value, word bytes) {
  for (word i = 0; i < bytes; i++) ((char *)to)[i] = (char)value;
  return to;
}

int memcmp(const void *a, const void *b, word bytes) {
  const unsigned char *x = a, *y = b;
  for (word i = 0; i < bytes; i++)
    if (x[i] != y[i]) return x[i] - y[i];
  return 0;
}

int bcmp(const void *a, const void *b, word bytes) { return memcmp(a, b, bytes); }

word strlen(const char *text) {
  word length = 0;
  while (text[length]) length++;
  return length;
}

int strncmp(const char *a, const char *b, word most) {
  for (word i = 0; i < most; i++)
    if (a[i] != b[i] || !a[i]) return (unsigned char)a[i] - (unsigned char)b[i];
  return 0;
}

int strcmp(const char *a, const char *b) { return strncmp(a, b, ~0ul); }

/* Memory is taken from behind the image, whose zeros nobody has touched, and never given back. */
static word taken;

int posix_memalign(void **memory, word alignment, word bytes) {
  const struct header *header = (const struct header *)IMAGE;
  word begin = (IMAGE + header->bytes + taken + alignment - 1) / alignment * alignment;
  if (begin + bytes > IMAGE + header->memory) return 12; /* ENOMEM */
  taken = begin + bytes - IMAGE - header->bytes;
  *memory = (void *)begin;
  return 0;
}

void *malloc(word bytes) {
  void *memory;
  return posix_memalign(&memory, 64, bytes) ? (void *)0 : memory;
}

void *calloc(word count, word bytes) { return malloc(count * bytes); }
void free(void *memory) {}

word getauxval(word kind) { return ~0ul; } /* every feature */
long syscall(long number, ...) { return -1; }
int open(const char *path, int flags, ...) { return -1; }
char *getenv(const char *name) { return (char *)0; }
int getpid(void) { return 1; }
int sigfillset(void *set) { return 0; }
int pthread_sigmask(int how, const void *set, void *old) { return 0; }
int pthread_mutex_init(void *mutex, const void *attributes) { return 0; }
int pthread_mutex_destroy(void *mutex) { return 0; }
int pthread_mutex_lock(void *mutex) { return 0; }
int pthread_mutex_unlock(void *mutex) { return 0; }
int pthread_create(void *thread, const void *attributes, void *body, void *argument) { return 11; /* EAGAIN */ }
