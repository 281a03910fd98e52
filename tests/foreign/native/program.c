/* A program of a system with glibc: opens a compiled library, runs its model, and writes the first output.
 *
 * program LIBRARY PREFIX THREADS RUNS DTYPE OUTPUT_BYTES SIZE...   with the input, of these sizes, on standard input */
#include "../../../runtime/native/xcompile_rt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef xc_model *create_function(int64_t threads, int32_t *status);
typedef int32_t run_function(xc_model *model, const xc_tensor *inputs, int64_t input_count, xc_tensor *outputs,
                             int64_t output_count, void *arena, uint64_t arena_bytes);
typedef void destroy_function(xc_model *model);

static void *library;
static const char *prefix;

static void *function(const char *name) {
  char symbol[256];
  snprintf(symbol, sizeof symbol, "%s_%s", prefix, name);
  void *found = dlsym(library, symbol);
  if (!found) exit(3);
  return found;
}

int main(int count, char **words) {
  if (count < 8 || !(library = dlopen(words[1], RTLD_NOW))) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  prefix = words[2];
  int32_t status, dtype = atoi(words[5]);
  uint64_t bytes = (dtype & 0xff) / 8, output_bytes = strtoull(words[6], NULL, 10);
  int64_t sizes[16], output_sizes[16];
  for (int i = 7; i < count; i++) bytes *= (uint64_t)(sizes[i - 7] = atoll(words[i]));
  xc_tensor input = {sizeof input, malloc(bytes), bytes, sizes, count - 7, dtype};
  xc_tensor output = {sizeof output, malloc(output_bytes), output_bytes, output_sizes, 2, dtype};
  if (fread(input.data, 1, bytes, stdin) != bytes) return 4;
  xc_model *model = ((create_function *)function("create"))(atoll(words[3]), &status);
  for (int run = atoi(words[4]); model && run > 0; run--) {
    memset(output.data, 0xff, output_bytes);
    status = ((run_function *)function("run_model"))(model, &input, 1, &output, 1, NULL, 0);
    if (status != XC_OK) break;
  }
  if (model) ((destroy_function *)function("destroy"))(model);
  if (dlclose(library) || status != XC_OK) return 10 + status;
  return fwrite(output.data, 1, output_bytes, stdout) != output_bytes;
}

/* What crt1.o would hold. */
__asm__(".globl _start\n"
        "_start: mov x29, #0\n mov x30, #0\n mov x5, x0\n ldr x1, [sp]\n add x2, sp, #8\n mov x6, sp\n"
        "mov x3, #0\n mov x4, #0\n adrp x0, main\n add x0, x0, :lo12:main\n bl __libc_start_main\n");
