// Floats times bytes: samples are rounded to bytes of their own scale, multiplied as such, and come out as floats.
#include <algorithm>
#include <limits>

#include "integer/byte_product.h"
#include "integer/requantize.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// real = scale * (unsigned byte - zero)
struct Grid {
  float scale;
  int32_t zero;
};

// From the least to the largest number and 0, the zero a whole number: XNNPACK's, whose bytes are less by 128.
Grid grid_of(const float* x, int64_t n) {
  vf low{}, high{};
  each_vector(n, [&](int64_t i, auto lanes) {
    const vf v = load_some(x + i, lanes);
    low = minimum(v, low), high = maximum(v, high);
  });
  const float least = -largest(-low), most = largest(high);
  if (!(most - least < kInfinity)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (!(most - least > 255 * std::numeric_limits<float>::min())) return {1, 128};
  const float steps = 255 / (most - least), from_low = least * steps, from_high = most * steps;
  const float zero = -128 + from_low + 127 + from_high > 0 ? -128 - from_low : 127 - from_high;
  return {1 / steps, int32_t(std::nearbyint(std::min(std::max(zero, -128.0f), 127.0f))) + 128};
}

void round_to(const Grid& grid, const float* x, int64_t n, uint8_t* y) {
  const vf low = splat(float(-grid.zero)), high = splat(float(255 - grid.zero));
  const float steps = 1 / grid.scale;
  each_vector(n, [&](int64_t i, auto lanes) {
    const vf real = load_some(x + i, lanes) * steps;
    store_bytes(y + i, round_to_int(at_most(real > low ? real : low, high)) + grid.zero, lanes);
  });
}

struct Memory {
  Memory(Carver& carver, const ct_int_hybrid_args& t)
      : bytes(carver.take<uint8_t>(t.shape.batch * t.shape.in_h * t.shape.in_w * t.shape.in_c)), grids(carver.take<Grid>(t.samples)) {}
  uint8_t* bytes;
  Grid* grids;
};

ct_int_conv_args product(const ct_int_hybrid_args& t, const uint8_t* bytes) {
  ct_int_conv_args of{};
  of.x = bytes, of.w = t.w, of.shape = t.shape;
  return of;
}

struct Real {
  const ct_int_hybrid_args& t;
  const Grid* grids;
  int64_t outputs;  // of a sample

  int32_t zero(int64_t output) const { return grids[output / outputs].zero; }
  void operator()(const int32_t* sums, int64_t place, int64_t channels, int64_t output, int64_t channel, int32_t) const {
    const Grid grid = grids[output / outputs];
    const vf low = splat(t.low), high = splat(t.high);
    float* const y = t.y + output * t.shape.out_c + channel;
    each_vector(channels, [&](int64_t i, auto lanes) {
      const vi whole = load_ints(sums + i) - load_ints(t.w_sums + place + i) * grid.zero;
      const vf real = to_float(whole) * (load(t.w_scale + place + i) * grid.scale) + load(t.bias + place + i);
      store_some(y + i, at_most(at_least(real, low), high), lanes);
    });
  }
};

int64_t own_bytes(const ct_int_hybrid_args& t) {
  Carver carver(nullptr);
  Memory memory(carver, t);
  return carver.used();
}

}  // namespace

int64_t int_hybrid_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_int_hybrid_args*>(opaque);
  const ct_int_conv_args of = product(t, nullptr);
  return own_bytes(t) + byte_memory(BytePlan(of)) * threads;
}

int32_t int_hybrid(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_hybrid_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  if (t.samples <= 0 || s.out_h * s.out_w <= 0) return CT_OK;
  Carver carver(context.scratch());
  const Memory m(carver, t);
  const int64_t each = s.batch * s.in_h * s.in_w * s.in_c / t.samples;
  context.parallel(t.samples, double(each) * double(t.samples) * 0.2, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      m.grids[i] = grid_of(t.x + i * each, each);
      round_to(m.grids[i], t.x + i * each, each, m.bytes + i * each);
    }
  });
  const ct_int_conv_args of = product(t, m.bytes);
  multiply_bytes(context, BytePlan(of), context.scratch() + carver.used(), Real{t, m.grids, s.batch * s.out_h * s.out_w / t.samples});
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
