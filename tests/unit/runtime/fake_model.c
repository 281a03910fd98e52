/* A model made by hand, with batch size n, for tests of the runtime:
 *
 *   y[n,4] = relu(x[n,4] * w[4]) + bias[n,4],   total[n] = sum of a row of y
 *
 * `prepared` holds w, computed from the weights (w / 2) by init. Parameters are macros: PREFIX names the
 * symbols, SCALE multiplies y, to tell two models apart.
 */
#include "xcompile_rt.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(suffix) JOIN(PREFIX, suffix)
#define SCRATCH_STRIDE 64

static void rows(const float *restrict x, const float *restrict bias, const float *restrict w,
                 float *restrict y, float *restrict total, float *scratch, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    for (int64_t k = 0; k < 4; k++) {
      float product = x[i * 4 + k] * w[k];
      scratch[k] = (product > 0 ? product : 0) * SCALE;
    }
    float sum = 0;
    for (int64_t k = 0; k < 4; k++) sum += y[i * 4 + k] = scratch[k] + bias[i * 4 + k];
    total[i] = sum;
  }
}

/* Global, as kernels of a real model are: the linker must keep it from clashing with another model's. */
void kernel_0_task(void *record, int64_t begin, int64_t end, void *scratch) {
  void **slots = record;
  rows(slots[0], slots[1], slots[2], slots[3], slots[4], scratch, begin, end);
}

/* table: arena bytes, n, 4 (y), n (total), n for the program */
int64_t NAME(_prepare)(const int64_t *input_dims, int64_t *table) {
  if (input_dims[0] != input_dims[2]) return -1;
  table[0] = 100;
  table[1] = input_dims[0], table[2] = 4;
  table[3] = input_dims[0];
  table[4] = input_dims[0];
  return 0;
}

int32_t NAME(_run)(xc_context *ctx, const int64_t *table) {
  const float *x = ctx->buffers[0];
  if (table[4] > 0 && x[0] == -12345.0f) return -2;
  if (table[4] > 0 && x[0] == -54321.0f) { /* wait until the program writes the next element, at most some seconds */
    const volatile float *flag = x + 1;
    for (int64_t i = 0; *flag == 0 && i < 1LL << 33; i++) continue;
    if (*flag == 0) return -2;
  }
  ((volatile char *)ctx->arena)[99] = 1;
  void *record[] = {ctx->buffers[0], ctx->buffers[1], ctx->prepared, ctx->buffers[2], ctx->buffers[3]};
  xc_parallel_for(ctx, kernel_0_task, record, table[4], 4, SCRATCH_STRIDE);
  return 0;
}

int32_t NAME(_init)(xc_context *ctx) {
  const float *half = ctx->weights;
  float *w = ctx->prepared;
  for (int k = 0; k < 4; k++) w[k] = half[k] * 2;
  return 0;
}
