// The least that a tool can do that has CUPTI record the activity of a program:
// what gpuprobe's collector costs is compared with it.
//
//   g++ -O2 -shared -fPIC -o libcupti_minimal.so cupti_minimal.cpp
//       -I$CUDA_HOME/include -I$CUDA_HOME/extras/CUPTI/include
//       -L$CUDA_HOME/extras/CUPTI/lib64
//       -Wl,-rpath,$CUDA_HOME/extras/CUPTI/lib64 -lcupti
//
//   CUDA_INJECTION64_PATH=$PWD/libcupti_minimal.so CUPTI_MINIMAL_OUTPUT=counts
//   ./app
//
// CUPTI_MINIMAL_KINDS: numbers of CUpti_ActivityKind with commas between them;
// without it those that gpuprobe --activity asks for. At the exit the file gets
// a line "KIND COUNT" for each kind that there was, "dropped COUNT", "buffers
// COUNT", and "refused KIND" for what cannot be had.
#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t buffer_bytes = 8 << 20;
constexpr size_t alignment = 8;
constexpr const char *usual_kinds = "8,9,37,11,4,5,1,22,2,10,49,50,38,17,39,12";

std::atomic<uint64_t> counts[CUPTI_ACTIVITY_KIND_COUNT];
std::atomic<uint64_t> dropped, buffers;
std::vector<int> refused;

void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *most) {
  *buffer = static_cast<uint8_t *>(aligned_alloc(alignment, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *most = 0;
}

void CUPTIAPI completed(CUcontext context, uint32_t stream, uint8_t *buffer,
                        size_t, size_t valid) {
  CUpti_Activity *record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    if (record->kind < CUPTI_ACTIVITY_KIND_COUNT)
      counts[record->kind].fetch_add(1, std::memory_order_relaxed);
  size_t lost = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) ==
      CUPTI_SUCCESS)
    dropped += lost;
  buffers++;
  free(buffer);
}

void at_exit() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const char *path = getenv("CUPTI_MINIMAL_OUTPUT");
  FILE *file = path ? fopen(path, "w") : nullptr;
  if (!file)
    return;
  for (int kind = 0; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++)
    if (counts[kind])
      fprintf(file, "%d %llu\n", kind,
              static_cast<unsigned long long>(counts[kind]));
  fprintf(file, "dropped %llu\n", static_cast<unsigned long long>(dropped));
  fprintf(file, "buffers %llu\n", static_cast<unsigned long long>(buffers));
  for (int kind : refused)
    fprintf(file, "refused %d\n", kind);
  fclose(file);
}

} // namespace

extern "C" int InitializeInjection(void) {
  static std::atomic<bool> called;
  if (called.exchange(true))
    return 1;
  cuptiActivityRegisterCallbacks(requested, completed);
  const char *text = getenv("CUPTI_MINIMAL_KINDS");
  const char *next = text && *text ? text : usual_kinds;
  while (*next) {
    char *end;
    long kind = strtol(next, &end, 10);
    if (end == next)
      break;
    if (cuptiActivityEnable(static_cast<CUpti_ActivityKind>(kind)) !=
        CUPTI_SUCCESS)
      refused.push_back(static_cast<int>(kind));
    next = end + (*end == ',');
  }
  atexit(at_exit);
  return 1;
}
