#include <arm_neon.h>

#include "cache/token_writer.h"

namespace kvant {

void NarrowF16Neon(const float* from, int n, uint16_t* to) {
  int i = 0;
  for (; i + 4 <= n; i += 4) {
    vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
  }
  for (; i < n; ++i) {
    vst1_lane_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(from[i]))), 0);
  }
}

}  // namespace kvant
