// libFuzzer target: any bytes are refused with a message or are safe to use. Not part of the build:
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -ffp-contract=off -Iinclude -Isrc
//           tests/fuzz/gguf_fuzz.cc src/gguf/{gguf_file,gguf_parser,gguf_value}.cc
//           src/gguf/{mapped_file,weight_types}.cc -o gguf_fuzz
//   ./gguf_fuzz -max_len=4096 -malloc_limit_mb=64 -max_total_time=120 CORPUS
// The limit on one allocation stands for the promise that nothing is allocated before it is
// checked.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "gguf/exercise_for_test.h"
#include "gguf/gguf_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = kvant::GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (file.ok()) {
    kvant::ExerciseGguf(*file);
  } else if (file.status().message().empty()) {
    std::abort();
  }
  return 0;
}
