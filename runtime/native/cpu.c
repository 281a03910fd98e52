/* What this machine and this process have: CPU features, CPUs, quotas.
 *
 * No vector instruction may run before xc_cpu_has has been asked, so nothing here is vectorized or runs in
 * an initializer.
 */
#define _GNU_SOURCE
#include "xcompile_rt.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct cpu_feature {
  const char *name;
  uint32_t word; /* x86: index into the words read by read_features; aarch64: 0 HWCAP, 1 HWCAP2 */
  uint32_t bit;
} cpu_feature;

#if defined(__x86_64__)

enum { LEAF1_ECX, LEAF1_EDX, LEAF7_EBX, LEAF7_ECX, LEAF7_EDX, LEAF7_1_EAX, LEAF7_1_EDX, EXTENDED_ECX, WORDS };

static const cpu_feature FEATURES[] = {
    {"sse", LEAF1_EDX, 25}, {"sse2", LEAF1_EDX, 26}, {"cx8", LEAF1_EDX, 8}, {"fxsr", LEAF1_EDX, 24},
    {"mmx", LEAF1_EDX, 23}, {"cmov", LEAF1_EDX, 15},
    {"sse3", LEAF1_ECX, 0}, {"pclmul", LEAF1_ECX, 1}, {"ssse3", LEAF1_ECX, 9}, {"fma", LEAF1_ECX, 12},
    {"cx16", LEAF1_ECX, 13}, {"sse4.1", LEAF1_ECX, 19}, {"sse4.2", LEAF1_ECX, 20}, {"movbe", LEAF1_ECX, 22},
    {"popcnt", LEAF1_ECX, 23}, {"aes", LEAF1_ECX, 25}, {"xsave", LEAF1_ECX, 26}, {"avx", LEAF1_ECX, 28},
    {"f16c", LEAF1_ECX, 29}, {"rdrnd", LEAF1_ECX, 30},
    {"bmi", LEAF7_EBX, 3}, {"avx2", LEAF7_EBX, 5}, {"bmi2", LEAF7_EBX, 8}, {"avx512f", LEAF7_EBX, 16},
    {"avx512dq", LEAF7_EBX, 17}, {"adx", LEAF7_EBX, 19}, {"avx512ifma", LEAF7_EBX, 21},
    {"avx512cd", LEAF7_EBX, 28}, {"sha", LEAF7_EBX, 29}, {"avx512bw", LEAF7_EBX, 30},
    {"avx512vl", LEAF7_EBX, 31},
    {"avx512vbmi", LEAF7_ECX, 1}, {"avx512vbmi2", LEAF7_ECX, 6}, {"gfni", LEAF7_ECX, 8},
    {"vaes", LEAF7_ECX, 9}, {"vpclmulqdq", LEAF7_ECX, 10}, {"avx512vnni", LEAF7_ECX, 11},
    {"avx512bitalg", LEAF7_ECX, 12}, {"avx512vpopcntdq", LEAF7_ECX, 14},
    {"avx512fp16", LEAF7_EDX, 23},
    {"avxvnni", LEAF7_1_EAX, 4}, {"avx512bf16", LEAF7_1_EAX, 5}, {"avxifma", LEAF7_1_EAX, 23},
    {"avxvnniint8", LEAF7_1_EDX, 4}, {"avxneconvert", LEAF7_1_EDX, 5}, {"avxvnniint16", LEAF7_1_EDX, 10},
    {"sahf", EXTENDED_ECX, 0}, {"lzcnt", EXTENDED_ECX, 5}, {"sse4a", EXTENDED_ECX, 6},
    {"prfchw", EXTENDED_ECX, 8},
};

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
  __asm__ volatile("cpuid" : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3]) : "a"(leaf), "c"(subleaf));
}

/* Registers whose state the system saves (XCR0): a CPU feature is of no use where it does not. */
static uint32_t saved_state(uint32_t leaf1_ecx) {
  uint32_t low = 0, high;
  if (leaf1_ecx >> 27 & 1) __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static void read_features(uint32_t words[WORDS]) {
  uint32_t r[4], most;
  memset(words, 0, WORDS * sizeof(uint32_t));
  cpuid(0, 0, r);
  most = r[0];
  cpuid(1, 0, r);
  words[LEAF1_ECX] = r[2], words[LEAF1_EDX] = r[3];
  if (most >= 7) {
    cpuid(7, 0, r);
    words[LEAF7_EBX] = r[1], words[LEAF7_ECX] = r[2], words[LEAF7_EDX] = r[3];
    uint32_t subleaves = r[0];
    if (subleaves >= 1) {
      cpuid(7, 1, r);
      words[LEAF7_1_EAX] = r[0], words[LEAF7_1_EDX] = r[3];
    }
  }
  cpuid(0x80000000, 0, r);
  if (r[0] >= 0x80000001) {
    cpuid(0x80000001, 0, r);
    words[EXTENDED_ECX] = r[2];
  }
}

static int needs_wide_state(const char *name, uint32_t *state) {
  static const char *const ymm[] = {"fma", "f16c", "vaes", "vpclmulqdq"};
  *state = 0;
  if (!strncmp(name, "avx512", 6)) *state = 0xe6;
  else if (!strncmp(name, "avx", 3)) *state = 0x06;
  for (uint32_t i = 0; i < sizeof ymm / sizeof *ymm; i++)
    if (!strcmp(name, ymm[i])) *state = 0x06;
  return *state != 0;
}

static int32_t has_feature(const cpu_feature *feature) {
  uint32_t words[WORDS], state;
  read_features(words);
  if (!(words[feature->word] >> feature->bit & 1)) return 0;
  if (!needs_wide_state(feature->name, &state)) return 1;
  return (saved_state(words[LEAF1_ECX]) & state) == state;
}

#elif defined(__aarch64__)

static const cpu_feature FEATURES[] = {
    {"fp-armv8", 0, 0}, {"neon", 0, 1},  {"aes", 0, 3},   {"sha2", 0, 6},  {"crc", 0, 7},
    {"lse", 0, 8},      {"fullfp16", 0, 10}, {"rdm", 0, 12}, {"dotprod", 0, 20}, {"sve", 0, 22},
    {"fp16fml", 0, 23}, {"sve2", 1, 1},  {"i8mm", 1, 13}, {"bf16", 1, 14},
};

static int32_t has_feature(const cpu_feature *feature) {
  return getauxval(feature->word ? AT_HWCAP2 : AT_HWCAP) >> feature->bit & 1;
}

#endif

int32_t xc_cpu_has(const char *name) {
  for (uint32_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++)
    if (!strcmp(FEATURES[i].name, name)) return has_feature(&FEATURES[i]);
  return -1;
}

static int64_t affinity_cpus(void) {
  uint64_t mask[1024]; /* 65536 CPUs */
  long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  int64_t count = 0;
  for (long i = 0; i < bytes / 8; i++) count += __builtin_popcountll(mask[i]);
  return count > 0 ? count : 1;
}

/* Reads a small text file; -1 when there is none. */
static long read_text(const char *path, char *text, long capacity) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  long length = 0, got;
  while (length < capacity - 1 && (got = read(file, text + length, (size_t)(capacity - 1 - length))) > 0)
    length += got;
  close(file);
  text[length] = 0;
  return length;
}

static long long read_number(const char *folder, const char *name) {
  char path[4352], text[64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return read_text(path, text, sizeof text) > 0 ? strtoll(text, NULL, 10) : 0;
}

static int64_t whole_cpus(long long quota, long long period) {
  return quota > 0 && period > 0 ? (quota + period - 1) / period : 0;
}

static int64_t folder_quota(const char *folder) {
  char path[4352], text[64];
  snprintf(path, sizeof path, "%s/cpu.max", folder);
  if (read_text(path, text, sizeof text) > 0) { /* version 2: "200000 100000" or "max 100000" */
    char *rest;
    long long quota = strtoll(text, &rest, 10);
    return rest == text ? 0 : whole_cpus(quota, strtoll(rest, NULL, 10));
  }
  return whole_cpus(read_number(folder, "cpu.cfs_quota_us"), read_number(folder, "cpu.cfs_period_us"));
}

static int64_t smaller_quota(int64_t a, int64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* The least quota of a group and all groups around it. A group that is not there (a container sees the
 * path of its host) counts as none. */
static int64_t path_quota(const char *root, const char *mount, const char *path, size_t path_length) {
  char folder[4096];
  size_t base = (size_t)snprintf(folder, sizeof folder, "%s/%s", root, mount);
  if (base + path_length + 1 > sizeof folder) return 0;
  memcpy(folder + base, path, path_length);
  folder[base + path_length] = 0;
  int64_t quota = folder_quota(folder);
  for (size_t end = base + path_length; end > base; end--)
    if (folder[end - 1] == '/') {
      folder[end - 1] = 0;
      quota = smaller_quota(quota, folder_quota(folder));
    }
  return quota;
}

static int lists_cpu(const char *controllers, size_t length) {
  for (size_t begin = 0, end; begin < length; begin = end + 1) {
    for (end = begin; end < length && controllers[end] != ','; end++) continue;
    if (end - begin == 3 && !memcmp(controllers + begin, "cpu", 3)) return 1;
  }
  return 0;
}

int64_t xc_quota_cpus(const char *memberships, const char *root) {
  int64_t quota = 0;
  for (const char *line = memberships; *line;) { /* "hierarchy:controllers:path" */
    size_t length = strcspn(line, "\n");
    const char *controllers = memchr(line, ':', length), *end = line + length;
    const char *path = controllers ? memchr(controllers + 1, ':', (size_t)(end - controllers - 1)) : NULL;
    if (path) {
      size_t named = (size_t)(path - controllers - 1), path_length = (size_t)(end - path - 1);
      if (named == 0) {
        quota = smaller_quota(quota, path_quota(root, "", path + 1, path_length));
        quota = smaller_quota(quota, path_quota(root, "unified", path + 1, path_length));
      } else if (lists_cpu(controllers + 1, named)) {
        quota = smaller_quota(quota, path_quota(root, "cpu", path + 1, path_length));
        quota = smaller_quota(quota, path_quota(root, "cpu,cpuacct", path + 1, path_length));
      }
    }
    line = *end ? end + 1 : end;
  }
  return quota;
}

int64_t xc_default_threads(void) {
  char memberships[16384];
  int64_t threads = affinity_cpus();
  if (read_text("/proc/self/cgroup", memberships, sizeof memberships) > 0) {
    int64_t quota = xc_quota_cpus(memberships, "/sys/fs/cgroup");
    if (quota > 0 && quota < threads) threads = quota;
  }
  const char *option = getenv("XCOMPILE_THREADS");
  long long wanted = option ? strtoll(option, NULL, 10) : 0;
  if (wanted > 0 && wanted < threads) threads = wanted;
  return threads < XC_MAX_THREADS ? threads : XC_MAX_THREADS;
}
