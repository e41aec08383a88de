// Integers as the floats that they stand for.
#include <algorithm>

#include "vectors/stored.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kPiece = 8192;

struct Shorts {
  const int16_t* x;
  vf operator()(int64_t i, int lanes) const { return to_float(load_shorts(x + i, lanes)); }
};

// By rows of one channel, or of all channels.
template <class Stored>
void widen(Context& context, const ct_int_widen_args& t, Stored stored) {
  const bool is_across = t.inner == 1 && t.channels > 1;
  const int64_t rows = is_across ? t.outer : t.outer * t.channels, width = is_across ? t.channels : t.inner;
  const int64_t pieces = ceil_div(width, kPiece);
  const double size = double(t.outer) * double(t.channels) * double(t.inner);
  context.parallel(rows * pieces, size * 0.1, [&](int, int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / pieces, first = unit % pieces * kPiece, count = std::min(kPiece, width - first), at = row * width + first;
      if (is_across) {
        each_vector(count, [&](int64_t i, auto lanes) {
          const vf real = (stored(at + i, lanes) - load_some(t.zero + first + i, lanes)) * load_some(t.scale + first + i, lanes);
          store_some(t.y + at + i, real, lanes);
        });
      } else {
        widen_row(t, stored, row % t.channels, at, count, t.y + at);
      }
    }
  });
}

}  // namespace

int32_t int_widen(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_widen_args*>(opaque);
  if (t.type == CT_INT_INT16)
    widen(context, t, Shorts{static_cast<const int16_t*>(t.x)});
  else
    widen(context, t, Bytes(t));
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
