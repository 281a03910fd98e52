/* Runs a compiled model once through its C interface and copies the outputs into a box. */
#include "../../../runtime/native/xcompile_rt.h"

void *malloc(unsigned long bytes);
void *memcpy(void *to, const void *from, unsigned long bytes);

typedef struct functions {
  xc_model *(*create)(int64_t threads, int32_t *status);
  int32_t (*shapes)(xc_model *model, const int64_t *input_dims, int64_t *output_dims);
  int32_t (*run)(xc_model *model, const xc_tensor *inputs, int64_t input_count, xc_tensor *outputs, int64_t output_count,
                 void *arena, uint64_t arena_bytes);
} functions;

static uint64_t bytes_of(const xc_tensor *tensor) {
  uint64_t bytes = ((tensor->dtype & 0xff) + 7) / 8;
  for (int32_t i = 0; i < tensor->rank; i++) bytes *= tensor->dims[i];
  return bytes;
}

static int is_late(const xc_tensor *tensor) {
  for (int32_t i = 0; i < tensor->rank; i++)
    if (tensor->dims[i] < 0) return 1;
  return 0;
}

/* The sizes of all inputs lie behind each other from inputs[0].dims on, those of the outputs from outputs[0].dims on.
 * Outputs lie in the box at multiples of 64. Returns the model's status; -1000 when they do not fit. */
int64_t run_model(const functions *model, int64_t threads, const xc_tensor *inputs, int64_t input_count,
                  const int64_t *input_dims, xc_tensor *outputs, int64_t output_count, int64_t *output_dims, char *box,
                  uint64_t box_bytes) {
  int32_t status;
  xc_model *handle = model->create(threads, &status);
  if (!handle) return status;
  if ((status = model->shapes(handle, input_dims, output_dims)) != XC_OK) return status;
  for (int64_t i = 0; i < output_count; i++) {
    if (is_late(&outputs[i])) continue;
    outputs[i].bytes = bytes_of(&outputs[i]);
    outputs[i].data = malloc(outputs[i].bytes);
  }
  if ((status = model->run(handle, inputs, input_count, outputs, output_count, 0, 0)) != XC_OK) return status;
  uint64_t at = 0;
  for (int64_t i = 0; i < output_count; i++) {
    uint64_t bytes = bytes_of(&outputs[i]);
    if (at + bytes > box_bytes) return -1000;
    memcpy(box + at, outputs[i].data, bytes);
    at += (bytes + 63) / 64 * 64;
  }
  return XC_OK;
}
