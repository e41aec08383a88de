// Softmax of bytes.
#include <algorithm>

#include "integer/requantize.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {

int32_t int_softmax(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_softmax_args*>(opaque);
  const Range range(t);
  context.parallel(t.rows, double(t.rows * t.cols), [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* const x = t.x + row * t.cols;
      uint8_t* const y = t.y + row * t.cols;
      uint8_t largest = 0;
      for (int64_t i = 0; i < t.cols; ++i) largest = std::max<uint8_t>(largest, uint8_t(x[i] ^ t.x_flip));
      float sum = 0;
      for (int64_t i = 0; i < t.cols; ++i) sum += t.power[largest - uint8_t(x[i] ^ t.x_flip)];
      const float scale = t.scale / sum;
      vi bytes[256 / W];
      for (int i = 0; i < 256 / W; ++i) bytes[i] = range.bytes_of(load(t.power + i * W) * scale);
      const int32_t* const of = reinterpret_cast<const int32_t*>(bytes);
      for (int64_t i = 0; i < t.cols; ++i) y[i] = uint8_t(of[largest - uint8_t(x[i] ^ t.x_flip)]);
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
