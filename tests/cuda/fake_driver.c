// A driver of a GPU whose memory is the host's and which knows one kernel, to run `runtime/cuda.py` without a GPU.
// Tests set the variables: what it says of itself, and which function fails with what.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int fake_init_status = 0, fake_version = 13000, fake_count = 1, fake_major = 8, fake_minor = 0;
int fake_fault_status = 0;
char fake_fault[64] = "";
int64_t fake_live = 0;        // allocations that were not given back
int fake_launch[6];           // blocks, y, z, threads, dynamic shared bytes; then how many launches there were
char fake_code[16];           // how the last module that was loaded begins
int fake_shared_attribute = 0;

static int fault(const char *name) { return strcmp(name, fake_fault) ? 0 : fake_fault_status; }

int cuInit(unsigned flags) { return flags ? 1 : fake_init_status; }
int cuDriverGetVersion(int *version) { return *version = fake_version, 0; }
int cuDeviceGetCount(int *count) { return *count = fake_count, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetName(char *text, int size, int device) { return strncpy(text, "Fake GPU", size), device; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = fake_launch, device; }
int cuCtxSetCurrent(void *context) { return context == fake_launch ? 0 : 201; }
int cuCtxSynchronize(void) { return fault("cuCtxSynchronize"); }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? fake_major : attribute == 76 ? fake_minor : -1;
  return device;
}

int cuGetErrorString(int status, const char **text) {
  *text = status == 700 ? "an illegal memory access was encountered"
        : status == 209 ? "no kernel image is available for execution on the device" : NULL;
  return *text ? 0 : 1;
}

int cuMemAlloc_v2(uint64_t *address, size_t size) {
  int status = fault("cuMemAlloc_v2");
  if (status) return status;
  *address = (uint64_t)(uintptr_t)aligned_alloc(256, (size + 255) / 256 * 256);
  fake_live++;
  return 0;
}

int cuMemFree_v2(uint64_t address) {
  free((void *)(uintptr_t)address);
  fake_live--;
  return 0;
}

int cuMemcpyHtoD_v2(uint64_t target, const void *source, size_t size) {
  return memcpy((void *)(uintptr_t)target, source, size), fault("cuMemcpyHtoD_v2");
}
int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t size) {
  return memcpy(target, (void *)(uintptr_t)source, size), fault("cuMemcpyDtoH_v2");
}
int cuMemcpyDtoD_v2(uint64_t target, uint64_t source, size_t size) {
  return memmove((void *)(uintptr_t)target, (void *)(uintptr_t)source, size), fault("cuMemcpyDtoD_v2");
}

int cuModuleLoadData(void **module, const void *code) {
  strncpy(fake_code, code, sizeof fake_code - 1);
  return *module = fake_code, fault("cuModuleLoadData");
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  return *function = strcmp(name, "fill") ? NULL : module, *function ? 0 : 500;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  fake_shared_attribute = attribute == 8 && function == fake_code ? value : -1;
  return 0;
}

// The kernel `fill(float *target, int64 value, int64 extent)`.
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **values, void **extra) {
  if (function != fake_code || stream || extra || ty != 1 || tz != 1) return 1;
  int what[] = {(int)x, (int)y, (int)z, (int)threads, (int)shared};
  memcpy(fake_launch, what, sizeof what);
  fake_launch[5]++;
  int64_t *target = *(int64_t **)values[0], value = *(int64_t *)values[1], extent = *(int64_t *)values[2];
  for (int64_t i = 0; i < extent; i++) target[i] = value;
  return fault("cuLaunchKernel");
}
