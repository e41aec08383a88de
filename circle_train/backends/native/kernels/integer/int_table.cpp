// What a function makes of each of the 256 bytes, or of the 65,536 pairs of them, looked up.
#include <algorithm>

#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kPiece = 16384;

template <class X, class Y>
void look_up(Context& context, const ct_int_table_args& t) {
  const Y* const table = static_cast<const Y*>(t.table);
  const int64_t pieces = ceil_div(t.width, kPiece);
  context.parallel(t.rows * pieces, double(t.rows * t.width) * 0.5, [&](int, int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / pieces, first = unit % pieces * kPiece, last = std::min(first + kPiece, t.width);
      const X* const x = static_cast<const X*>(t.x) + row * t.x_row;
      Y* const y = static_cast<Y*>(t.y) + row * t.y_row;
      for (int64_t i = first; i < last; ++i) y[i] = table[x[i]];
    }
  });
}

}  // namespace

int32_t int_table(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_table_args*>(opaque);
  if (t.element_size == 1)
    look_up<uint8_t, uint8_t>(context, t);
  else if (t.element_size == 2)
    look_up<uint16_t, uint16_t>(context, t);
  else
    look_up<uint8_t, uint32_t>(context, t);
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
