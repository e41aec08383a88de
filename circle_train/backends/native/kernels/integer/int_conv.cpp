// Convolutions and matrix products of bytes, and of int16 with bytes, requantised where the sums arise.
#include "integer/byte_product.h"
#include "integer/requantize.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

struct Requantized {
  explicit Requantized(const ct_int_conv_args& args) : t(args), range(args) {}

  int32_t zero(int64_t) const { return t.x_zero; }
  void operator()(const int32_t* sums, int64_t place, int64_t channels, int64_t output, int64_t channel, int32_t less) const {
    if (t.shift) return to_shorts(t, reinterpret_cast<const int64_t*>(sums), place, channels, output, channel);
    requantize(sums, t.bias + place, t.scale + place, channels, less, range, t.y + output * t.shape.out_c + channel);
  }

  const ct_int_conv_args& t;
  const Range range;
};

}  // namespace

int64_t int_conv_scratch(const void* opaque, int threads) {
  return byte_memory(BytePlan(*static_cast<const ct_int_conv_args*>(opaque))) * threads;
}

int32_t int_conv(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_conv_args*>(opaque);
  multiply_bytes(context, BytePlan(t), context.scratch(), Requantized(t));
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
