// Softmax of bytes, and of int16.
#include <algorithm>

#include "integer/requantize.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

// Of points 128 apart, and lines between.
inline int32_t between(const int16_t* points, int32_t at) {
  const int32_t i = at >> 7, base = points[i];
  return base + (((points[i + 1] - base) * (at & 127) + 64) >> 7);
}

void row_of_shorts(const ct_int_softmax_args& t, const int16_t* x, int16_t* y) {
  const int16_t* const power = reinterpret_cast<const int16_t*>(t.power);
  const int32_t largest = *std::max_element(x, x + t.cols);
  int32_t sum = 0;
  for (int64_t i = 0; i < t.cols; ++i) sum += power[largest - x[i]];
  const int empty = __builtin_clz(uint32_t(std::max(sum, 1))), shift = 31 - empty;
  const int64_t mantissa = (((int64_t(sum) << (empty - 1)) + (1 << 13)) >> 14) - (1 << 16);
  const int64_t inverse = between(t.inverse, int32_t(std::min<int64_t>(std::max<int64_t>(mantissa, 0), UINT16_MAX)));
  const int64_t half = shift ? int64_t(1) << (shift - 1) : 0;
  for (int64_t i = 0; i < t.cols; ++i)
    y[i] = int16_t(std::min<int64_t>((power[largest - x[i]] * inverse + half) >> shift, INT16_MAX));
}

int32_t softmax_of_shorts(Context& context, const ct_int_softmax_args& t) {
  context.parallel(t.cols > 0 ? t.rows : 0, double(t.rows * t.cols), [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      row_of_shorts(t, reinterpret_cast<const int16_t*>(t.x) + row * t.cols, reinterpret_cast<int16_t*>(t.y) + row * t.cols);
  });
  return CT_OK;
}

}  // namespace

int32_t int_softmax(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_softmax_args*>(opaque);
  if (t.inverse) return softmax_of_shorts(context, t);
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
