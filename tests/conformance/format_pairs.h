// The pairs of formats that attention is tested on, one or more of every class, and the levels.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

#include "kvant/format.h"
#include "kvant/isa.h"

namespace kvant::testing {

inline Format Parse(const char* spec, Side side) { return ParseFormat(spec, side).value(); }

struct FormatNames {
  const char* k;
  const char* v;
};
inline constexpr FormatNames kFormatPairs[] = {
    {"f16", "f16"},
    {"f32", "f32"},
    {"bf16", "bf16"},
    {"int8:channel:g64:min", "int8:token:none"},
    {"int4:channel:g64:min", "int4:token:g64:min"},
    {"int3:channel:g64:min", "int3:token:g64:min"},
    {"int2:channel:g32:min", "int2:token:g32:min"},
    {"int5:channel:g16:rzero", "int6:channel:g32:min"},
    {"int6:token:g64:zero", "int5:token:g16:zero"},
    {"int4:token:g32:rzero", "int4:channel:g16:none"},
    {"int3:token:g16:min", "int3:channel:g64:ext"},
    {"int2:token:g16:none", "int8:channel:g64:rzero"},
    {"int4:channel:g128:min", "int4:token:g128:min"},
    {"int8:channel:g256:zero", "int2:token:g256:min"},
    {"q8_0", "q8_0"},
    {"q4_0", "q4_0"},
    {"q5_1", "q4_1"},
    {"iq4_nl", "iq4_nl"},
    {"int8:token", "int4:token"},
    {"int4:token:g128:min", "int8:token:none"},
    {"int8:channel", "f16"},
    {"bf16", "int4:token:g64"},
    {"tq4:mean:bal:n8", "tq4:n8"},
    {"tq3:mean:n8", "tq2:n8"},
    {"tq2", "tq3"},
    {"tq4", "int4:channel:g128"},
    {"fit4:mean:n8", "fit3:n8"},
    {"fit3", "fit2"},
    {"fit2:mean", "fit4"},
    {"tc2:mean:n8", "tc3:n8"},
    {"tc3", "tc2"},
    {"tcx2:mean", "tcx4:n8"},
    {"tcx3:n8", "tcx2"},
    {"tcx4:mean:n8", "tcx3"},
    {"nest4:mean:bal:n8", "nest4:n8"},
    {"nest3", "nest2"},
    {"nest2:mean:n8", "nest3:n8"},
    {"tq3:mean:n8", "tq1:n8"},
    {"tq4", "tq1"},
    {"fp8_e4m3", "fp8_e4m3"},
    {"fp8_e5m2", "fp8_e5m2"},
    {"fp8_e5m2", "int4:token:g64"},
    {"int8:channel", "fp8_e4m3"},
    {"mxfp4", "mxfp4:c20"},
    {"nvfp4", "nvfp4_4over6"},
    {"fp8_e4m3", "mxfp4"},
    {"int4:channel:g64:min:prerope", "int4:token:g64:min"},
    {"int3:channel:g32:rzero:prerope", "int3:token:g64:min"},
    {"int2:channel:g128:none:prerope", "f16"},
    {"int5:token:g16:zero:prerope", "int2:token:g32:min"},
    {"int6:token:prerope", "tq2"},
    {"int8:channel:g16:ext:prerope", "int8:token:none"},
    {"int4:channel:g64:min:prerope:out1", "int4:token:min:out1"},
    {"int3:channel:g32:min:out2", "int3:token:g32:min:out3"},
    {"int2:channel:g128:min:out4", "int2:channel:g256:rzero:out2"},
    {"int2:token:g16:none:prerope:out2", "int5:channel:g16:min:out1"},
    {"int6:token:zero:out16", "int8:token:none:out2"},
};

inline std::string NameOfPair(const ::testing::TestParamInfo<FormatNames>& each) {
  std::string name = std::string(each.param.k) + "_" + each.param.v;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

// Sanitized builds are fifty times slower: they look for reads out of bounds, on the vector levels
// and a few shapes; so is an emulated CPU. The release build tests everything.
#if defined(KVANT_SMALL_TILES) || defined(KVANT_EMULATED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline std::vector<Isa> LevelsToTest() {
  std::vector<Isa> levels = AvailableIsas();
  if (kSanitized && levels.size() > 1) levels.erase(levels.begin());
  return levels;
}

}  // namespace kvant::testing
