// Bytes as the floats that they stand for.
#include <algorithm>

#include "integer/requantize.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {

int32_t int_widen(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_widen_args*>(opaque);
  constexpr int64_t kPiece = 8192;
  // A signed byte is the unsigned one of its other half, less 128.
  const int32_t flip = t.is_signed ? 0x80 : 0;
  const float zero = t.zero + float(flip);
  context.parallel(ceil_div(t.size, kPiece), double(t.size) * 0.1, [&](int, int64_t begin, int64_t end) {
    const int64_t first = begin * kPiece;
    each_vector(std::min(end * kPiece, t.size) - first, [&](int64_t i, auto lanes) {
      const vf stored = to_float(load_bytes(t.x + first + i, lanes, flip));
      store_some(t.y + first + i, (stored - zero) * t.scale, lanes);
    });
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
