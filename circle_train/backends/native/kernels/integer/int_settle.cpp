// Training on a grid: what an operator made becomes what the file's integers can say, and what its gradient will ask for is kept.
#include <algorithm>

#include "integer/requantize.h"
#include "run/table.h"
#include "vectors/bits.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kPiece = 4096;
static_assert(kPiece % kBitGroup == 0, "bits begin a byte at every piece");

struct Grid {
  const ct_int_settle_args& t;

  // Not a number stays one, so that the step's guard sees it.
  vf stored(vf x) const {
    const vf rounded = round_even(x * t.inverse) + t.zero;
    const vf above = rounded < splat(t.low) ? splat(t.low) : rounded;
    return above > splat(t.high) ? splat(t.high) : above;
  }

  uint32_t settle(int64_t i, int lanes) const {
    const vf x = load_some(t.x + i, lanes), r = stored(x);
    if (t.y) store_some(t.y + i, (r - t.zero) * t.scale, lanes);
    if (t.bytes) store_bytes(t.bytes + i, round_to_int(r), lanes);
    return bits_of((x > splat(t.pass_low)) & (x < splat(t.pass_high)) ? splat(1.0f) : vf{});
  }
};

}  // namespace

int32_t int_settle(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_settle_args*>(opaque);
  const Grid grid{t};
  context.parallel(ceil_div(t.size, kPiece), double(t.size) * 0.3, [&](int, int64_t begin, int64_t end) {
    const int64_t last = std::min(end * kPiece, t.size);
    for (int64_t i = begin * kPiece; i < last; i += kBitGroup) {
      const int count = int(std::min<int64_t>(kBitGroup, last - i));
      uint32_t word = 0;
      for (int j = 0; j < count; j += W) {
        const int lanes = std::min(W, count - j);
        word |= (grid.settle(i + j, lanes) & ((1u << lanes) - 1)) << j;
      }
      for (int b = 0; t.bits && b * 8 < count; ++b) t.bits[i / 8 + b] = uint8_t(word >> (8 * b));
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
