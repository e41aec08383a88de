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
  int32_t low = 0;    // the least byte
  bool away = false;  // halves from zero, else to the even
};

// Of numbers from `least` to `most`, 0 among them.
Grid own_grid(double least, double most) {
  if (least == most) return {1, 128};
  const double step = (most - least) / 255, low = least / step, high = most / step;
  const double zero = std::nearbyint(std::min(std::max(-low < high ? -128 - low : 127 - high, -128.0), 127.0));
  return {(float(most) - float(least)) / 255, int32_t(zero) + 128, 0, true};
}

// From the least to the largest number and 0, the zero a whole number: XNNPACK's, whose bytes are less by 128.
Grid grid_of(const float* x, int64_t n, int32_t rounding) {
  vf low{}, high{};
  each_vector(n, [&](int64_t i, auto lanes) {
    const vf v = load_some(x + i, lanes);
    low = minimum(v, low), high = maximum(v, high);
  });
  const float least = -largest(-low), most = largest(high);
  if (!(most - least < kInfinity)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (rounding == CT_ROUNDING_OWN) return own_grid(least, most);
  if (rounding == CT_ROUNDING_SYMMETRIC) {
    const float reach = std::max(most, -least);
    return {reach > 127 * std::numeric_limits<float>::min() ? reach / 127 : 1, 128, 1, true};
  }
  if (!(most - least > 255 * std::numeric_limits<float>::min())) return {1, 128};
  const float steps = 255 / (most - least), from_low = least * steps, from_high = most * steps;
  const float zero = -128 + from_low + 127 + from_high > 0 ? -128 - from_low : 127 - from_high;
  return {1 / steps, int32_t(std::nearbyint(std::min(std::max(zero, -128.0f), 127.0f))) + 128};
}

// store(i, whole steps from zero, lanes) for each vector.
template <class Store>
void round_to(const Grid& grid, const float* x, int64_t n, Store store) {
  const vf low = splat(float(grid.low - grid.zero)), high = splat(float(255 - grid.zero));
  const float steps = 1 / grid.scale;
  each_vector(n, [&](int64_t i, auto lanes) {
    const vf real = load_some(x + i, lanes) * steps, kept = at_most(real > low ? real : low, high);
    const vf half = (vf)(((vi)kept & INT32_MIN) | (vi)splat(0.5f));
    store(i, grid.away ? __builtin_convertvector(kept + half, vi) : round_to_int(kept), lanes);
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
      const Grid grid = m.grids[i] = grid_of(t.x + i * each, each, t.rounding);
      uint8_t* const y = m.bytes + i * each;
      round_to(grid, t.x + i * each, each, [&](int64_t at, vi steps, int lanes) { store_bytes(y + at, steps + grid.zero, lanes); });
    }
  });
  const ct_int_conv_args of = product(t, m.bytes);
  multiply_bytes(context, BytePlan(of), context.scratch() + carver.used(), Real{t, m.grids, s.batch * s.out_h * s.out_w / t.samples});
  return CT_OK;
}

int32_t int_samples(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_samples_args*>(opaque);
  context.parallel(t.samples, double(t.each) * double(t.samples) * 0.2, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* const x = t.x + i * t.each;
      float* const y = t.y + i * t.each;
      const Grid grid = grid_of(x, t.each, t.rounding);
      round_to(grid, x, t.each, [&](int64_t at, vi steps, auto lanes) { store_some(y + at, to_float(steps) * grid.scale, lanes); });
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
