// usage: kvant_gpu_check CUBIN_FOLDER
//
// On a machine with a GPU: runs every decode kernel over the inputs of the SIMT tests and compares
// with attention in double within the same bound, then times those of head_dim 128 over pages that
// the L2 cache cannot hold. Prints one JSON object a line; exits 1 if a kernel is out of bound.
// The folder holds <source>.sm_<N>.cubin of the device's target (scripts/gpu-check).
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "simt/decode_bound.h"

namespace kvant {
namespace {

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  std::fprintf(stderr, "gpu_check: %s: %s\n", what, text == nullptr ? "unknown error" : text);
  std::exit(2);
}

// Device memory, freed with its owner.
class DeviceArray {
 public:
  explicit DeviceArray(size_t bytes) : bytes_(std::max<size_t>(bytes, 16)) {
    Check(cuMemAlloc(&at_, bytes_), "cuMemAlloc");
  }
  template <typename T>
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size() * sizeof(T)) {
    if (!values.empty()) {
      Check(cuMemcpyHtoD(at_, values.data(), values.size() * sizeof(T)), "cuMemcpyHtoD");
    }
  }
  ~DeviceArray() { cuMemFree(at_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(at_);
  }
  void Fill(unsigned char byte) { Check(cuMemsetD8(at_, byte, bytes_), "cuMemsetD8"); }
  void CopyTo(std::vector<float>* out) const {
    Check(cuMemcpyDtoH(out->data(), at_, out->size() * sizeof(float)), "cuMemcpyDtoH");
  }

 private:
  CUdeviceptr at_ = 0;
  size_t bytes_;
};

class Kernels {
 public:
  explicit Kernels(std::string folder) : folder_(std::move(folder)) {
    Check(cuInit(0), "cuInit");
    CUdevice device;
    Check(cuDeviceGet(&device, 0), "cuDeviceGet");
    Check(cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
    Check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    char name[128];
    int major = 0, minor = 0;
    cuDeviceGetName(name, sizeof name, device);
    cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    target_ = std::to_string(major * 10 + minor);
    std::printf("{\"device\": \"%s\", \"arch\": \"sm_%s\"}\n", name, target_.c_str());
  }

  CUfunction Find(const std::string& source, const char* name) {
    const std::string path = folder_ + "/" + source + ".sm_" + target_ + ".cubin";
    CUmodule& module = modules_[path];
    if (module == nullptr) Check(cuModuleLoad(&module, path.c_str()), path.c_str());
    CUfunction function;
    Check(cuModuleGetFunction(&function, module, name), name);
    return function;
  }

 private:
  std::string folder_, target_;
  CUcontext context_ = nullptr;
  std::map<std::string, CUmodule> modules_;
};

template <typename Arguments>
void Launch(CUfunction kernel, int grid_x, int grid_y, Arguments args) {
  constexpr unsigned kThreads = 128;
  void* parameters[] = {&args};
  Check(cuLaunchKernel(kernel, static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y), 1,
                       kThreads, 1, 1, 0, nullptr, parameters, nullptr),
        "cuLaunchKernel");
}

std::string SourceOf(const cuda::KernelRow& row) {
  return "decode_" + std::string(cuda::FormatOf(row));
}

// The largest error in units of its bound.
double WorstOf(Kernels* kernels, const cuda::KernelRow& row, int heads) {
  constexpr int kSplits = 2, kRows = simt::DecodeWorld::kRows;
  const simt::DecodeWorld world(row.page, row.head_dim, heads, {{5, 257}, {130, 191}}, 1);
  const simt::Expected expected = simt::DecodeBound(world, row.tensor_cores).Make();
  std::vector<float> out(expected.value.size());
  const DeviceArray payload(world.payload), metadata(world.metadata), table(world.table);
  const DeviceArray ranges(world.ranges), queries(world.queries), result(out);
  const DeviceArray levels(
      std::vector<uint16_t>(world.levels.halves.begin(), world.levels.halves.end()));
  const DeviceArray partial_out(out.size() * kSplits * 4), state(kRows * heads * kSplits * 2 * 4);
  const cuda::DecodeArguments args{.payload = payload.As<unsigned char>(),
                                   .metadata = metadata.As<unsigned char>(),
                                   .page_table = table.As<uint32_t>(),
                                   .ranges = ranges.As<cuda::TokenRange>(),
                                   .queries = queries.As<float>(),
                                   .partial_out = partial_out.As<float>(),
                                   .partial_state = state.As<float>(),
                                   .page_table_stride = world.pages,
                                   .group_ratio = heads,
                                   .slots = kSplits,
                                   .first_slot = 0,
                                   .pages_per_split = (world.pages + kSplits - 1) / kSplits,
                                   .score_scale = world.score_scale,
                                   .levels = levels.As<uint16_t>(),
                                   .level_unit = world.levels.unit};
  Launch(kernels->Find(SourceOf(row), row.name), kSplits, kRows, args);
  Launch(kernels->Find("merge", "kvant_merge"), heads, kRows,
         cuda::MergeArguments{partial_out.As<float>(), state.As<float>(), result.As<float>(), heads,
                              kSplits, row.head_dim});
  Check(cuCtxSynchronize(), row.name);
  result.CopyTo(&out);
  return simt::WorstOf(out, expected);
}

// Median of 21 launches over 64 rows of 16,384 tokens, all of different pages.
void Time(Kernels* kernels, const cuda::KernelRow& row) {
  constexpr int kRows = 64, kPages = 256, kPerSplit = 16, kSplits = kPages / kPerSplit, kRuns = 21;
  const size_t pages = size_t{kRows} * kPages;
  const size_t heads = static_cast<size_t>(kRows * row.heads),
               dim = static_cast<size_t>(row.head_dim);
  const size_t payload_bytes =
      pages * static_cast<size_t>(cuda::PagePayloadBytes(row.page, row.head_dim));
  const size_t metadata_bytes =
      pages * static_cast<size_t>(cuda::PageMetadataBytes(row.page, row.head_dim));
  std::vector<uint32_t> numbers(pages);
  for (size_t i = 0; i < pages; ++i) numbers[i] = static_cast<uint32_t>(i * 97 % pages);
  const DeviceArray table(numbers);
  const DeviceArray ranges(std::vector<cuda::TokenRange>(kRows, {0, kPages * 64}));
  DeviceArray payload(payload_bytes), metadata(metadata_bytes), queries(heads * dim * 4);
  const DeviceArray partial_out(heads * kSplits * dim * 4), state(heads * kSplits * 2 * 4);
  payload.Fill(0x25);  // halves of .02, codes of 2 and 5
  metadata.Fill(0x25);
  queries.Fill(0x3d);  // floats of .046
  const DeviceArray levels(std::vector<uint16_t>(16, 0x2525));
  const cuda::DecodeArguments args{payload.As<unsigned char>(),
                                   metadata.As<unsigned char>(),
                                   table.As<uint32_t>(),
                                   ranges.As<cuda::TokenRange>(),
                                   queries.As<float>(),
                                   partial_out.As<float>(),
                                   state.As<float>(),
                                   kPages,
                                   row.heads,
                                   kSplits,
                                   0,
                                   kPerSplit,
                                   .127f,
                                   levels.As<uint16_t>(),
                                   1};
  const CUfunction kernel = kernels->Find(SourceOf(row), row.name);
  CUevent begin, end;
  Check(cuEventCreate(&begin, CU_EVENT_DEFAULT), "cuEventCreate");
  Check(cuEventCreate(&end, CU_EVENT_DEFAULT), "cuEventCreate");
  std::vector<float> times_ms;
  for (int run = 0; run < kRuns + 3; ++run) {
    Check(cuEventRecord(begin, nullptr), "cuEventRecord");
    Launch(kernel, kSplits, kRows, args);
    Check(cuEventRecord(end, nullptr), "cuEventRecord");
    Check(cuEventSynchronize(end), row.name);
    float ms = 0;
    Check(cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
    if (run >= 3) times_ms.push_back(ms);  // the first ones warm up
  }
  cuEventDestroy(begin);
  cuEventDestroy(end);
  std::nth_element(times_ms.begin(), times_ms.begin() + kRuns / 2, times_ms.end());
  const double ms = static_cast<double>(times_ms[kRuns / 2]);
  std::printf(
      "{\"kernel\": \"%s\", \"tokens\": %d, \"median_us\": %.2f, \"payload_GBps\": %.1f, "
      "\"payload_and_metadata_GBps\": %.1f}\n",
      row.name, kRows * kPages * 64, ms * 1e3, static_cast<double>(payload_bytes) / ms / 1e6,
      static_cast<double>(payload_bytes + metadata_bytes) / ms / 1e6);
}

int Main(const char* folder) {
  Kernels kernels(folder);
  bool ok = true;
  for (const cuda::KernelRow& row : cuda::kDecodeKernels) {
    const double worst = WorstOf(&kernels, row, row.heads);
    ok = ok && worst <= 1;
    std::printf("{\"kernel\": \"%s\", \"worst_of_bound\": %.4f, \"ok\": %s}\n", row.name, worst,
                worst <= 1 ? "true" : "false");
  }
  for (const cuda::KernelRow& row : cuda::kDecodeKernels) {
    if (row.head_dim == 128) Time(&kernels, row);
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace kvant

int main(int argc, char** argv) {
  if (argc == 2) return kvant::Main(argv[1]);
  std::fprintf(stderr, "usage: kvant_gpu_check CUBIN_FOLDER\n");
  return 2;
}
