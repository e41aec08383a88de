// Floats as integers.
#include <algorithm>

#include "integer/requantize.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {

int32_t int_round(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_round_args*>(opaque);
  constexpr int64_t kPiece = 4096;
  const Range range(t);
  context.parallel(ceil_div(t.size, kPiece), double(t.size) * 0.1, [&](int, int64_t begin, int64_t end) {
    const int64_t first = begin * kPiece;
    each_vector(std::min(end * kPiece, t.size) - first, [&](int64_t i, auto lanes) {
      const vi stored = range.bytes_of(load_some(t.x + first + i, lanes) * t.scale);
      if (t.type == CT_INT_INT16)
        store_shorts(static_cast<int16_t*>(t.y) + first + i, stored, lanes);
      else
        store_bytes(static_cast<uint8_t*>(t.y) + first + i, stored, lanes);
    });
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
