// Batch normalisation by the batch's own statistics: two passes over memory forward, two backward, the activation in each.
#include <algorithm>

#include "elementwise/column_sums.h"
#include "run/table.h"
#include "vectors/activation.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kPiece = 8192;  // elements that are a unit of an elementwise pass

// 1/(1 + e^-z), z within what a float's exponent holds.
inline vf moderate_logistic(vf z) { return 1.0f / (1.0f + exp_of_moderate(-at_most(at_least(z, splat(-87.0f)), splat(87.0f)))); }

// Each activation: its value, and what comes back through it, both from what it is applied to.
struct Plain {
  explicit Plain(int32_t) {}
  vf value(vf z) const { return z; }
  vf back(vf dy, vf) const { return dy; }
};
struct Range {
  Clamp clamp;
  explicit Range(int32_t act) : clamp(clamp_of(act)) {}
  vf value(vf z) const { return at_most(at_least(z, splat(clamp.low)), splat(clamp.high)); }
  vf back(vf dy, vf z) const { return masked_by_range(dy, z, clamp); }
};
struct Tanh {
  explicit Tanh(int32_t) {}
  vf value(vf z) const { return tanh(z); }
  vf back(vf dy, vf z) const {
    const vf y = tanh(z);
    return dy * (1.0f - y * y);
  }
};
struct Swish {
  explicit Swish(int32_t) {}
  vf value(vf z) const { return z * moderate_logistic(z); }
  vf back(vf dy, vf z) const {
    const vf s = moderate_logistic(z);
    return dy * (s * (1.0f + z * (1.0f - s)));
  }
};
struct HardSwish {
  explicit HardSwish(int32_t) {}
  vf value(vf z) const { return z < splat(3.0f) ? z * at_least(z + 3.0f, vf{}) * (1.0f / 6) : z; }
  vf back(vf dy, vf z) const {
    const vf slope = z < splat(-3.0f) ? vf{} : z > splat(3.0f) ? splat(1.0f) : (z + z + 3.0f) * (1.0f / 6);
    return dy * slope;
  }
};

template <class F>
void with_activation(int32_t act, F f) {
  switch (act) {
    case CT_ACT_NONE: return f(Plain(act));
    case CT_ACT_TANH: return f(Tanh(act));
    case CT_ACT_SWISH: return f(Swish(act));
    case CT_ACT_HARD_SWISH: return f(HardSwish(act));
    default: return f(Range(act));
  }
}

// f(row, last) over units of rows.
template <class F>
void each_rows(Context& context, int64_t rows, int64_t cols, double nanoseconds, F f) {
  const int64_t height = std::max<int64_t>(1, kPiece / cols), units = ceil_div(rows, height);
  context.parallel(units, double(rows) * cols * nanoseconds, [&](int, int64_t begin, int64_t end) {
    f(begin * height, std::min(end * height, rows));
  });
}

// What a column's elements are multiplied by: gamma/sqrt(variance + eps).
void scales(const float* gamma, const float* variance, float eps, int64_t cols, float* scale) {
  for (int64_t j = 0; j < cols; ++j) scale[j] = float(gamma[j] / std::sqrt(double(variance[j]) + eps));
}

template <bool Added, class Act>
void apply(const ct_batch_norm_args& t, const float* scale, const Act& act, int64_t first, int64_t last) {
  for (int64_t r = first; r < last; ++r) {
    const float* const x = t.x + r * t.cols;
    const float* const add = Added ? t.add + r * t.cols : nullptr;
    float* const y = t.y + r * t.cols;
    each_vector(t.cols, [&](int64_t j, auto lanes) {
      vf z = (load_some(x + j, lanes) - load_some(t.mean + j, lanes)) * load_some(scale + j, lanes) + load_some(t.beta + j, lanes);
      if (Added) z += load_some(add + j, lanes);
      store_some(y + j, act.value(z), lanes);
    });
  }
}

// The sums that the gradients are made of: of g, and of g (x - mean), g what comes back through the activation.
template <class Act>
struct Back {
  const ct_batch_norm_grad_args& t;
  const float* scale;
  const Act& act;
  template <class Lanes>
  vf through(int64_t at, int64_t j, vf centred, Lanes lanes) const {
    return act.back(load_some(t.dy + at, lanes), centred * load_some(scale + j, lanes) + load_some(t.beta + j, lanes));
  }
  void ask(int64_t at) const {
    __builtin_prefetch(t.dy + at, 0, 2);
    __builtin_prefetch(t.x + at, 0, 2);
  }
  template <class Lanes>
  void take(int64_t at, int64_t j, vf& sum, vf& product, Lanes lanes) const {
    const vf centred = load_some(t.x + at, lanes) - load_some(t.mean + j, lanes);
    const vf g = through(at, j, centred, lanes);
    sum += g;
    product += g * centred;
  }
};

struct Factors {
  float* scale;   // of g
  float* slope;   // of x - mean
  float* offset;
};

template <class Act>
void send_back(const Back<Act>& back, const Factors& f, int64_t first, int64_t last) {
  const ct_batch_norm_grad_args& t = back.t;
  for (int64_t r = first; r < last; ++r) {
    const int64_t row = r * t.cols;
    each_vector(t.cols, [&](int64_t j, auto lanes) {
      const vf centred = load_some(t.x + row + j, lanes) - load_some(t.mean + j, lanes);
      const vf g = back.through(row + j, j, centred, lanes);
      const vf rest = centred * load_some(f.slope + j, lanes) + load_some(f.offset + j, lanes);
      store_some(t.dx + row + j, g * load_some(f.scale + j, lanes) + rest, lanes);
    });
  }
}

Factors carve(Carver& carver, int64_t cols) {
  float* const scale = carver.take<float>(cols);
  float* const slope = carver.take<float>(cols);
  return {scale, slope, carver.take<float>(cols)};
}

// From the sums to the parameters' gradients and the factors of dx.
void finish(const ct_batch_norm_grad_args& t, const ColumnSums& sums, const Factors& f) {
  for (int64_t j = 0; j < t.cols; ++j) {
    const double inverse = 1 / std::sqrt(double(t.variance[j]) + t.eps);
    const double sum = sums.first(j), product = sums.second(j);
    if (t.dgamma) t.dgamma[j] = float(product * inverse);
    if (t.dbeta) t.dbeta[j] = float(sum);
    f.slope[j] = float(-t.gamma[j] * inverse * inverse * inverse * product / double(t.rows));
    f.offset[j] = float(-t.gamma[j] * inverse * sum / double(t.rows));
  }
}

}  // namespace

int64_t batch_norm_scratch(const void* opaque, int) {
  const auto& t = *static_cast<const ct_batch_norm_args*>(opaque);
  Carver carver(nullptr);
  carver.take<float>(t.cols);
  if (!t.given) ColumnSums::carve(carver, t.rows, t.cols, true);
  return carver.used();
}

int32_t batch_norm(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_batch_norm_args*>(opaque);
  if (t.rows == 0 || t.cols == 0) return CT_OK;
  Carver carver(context.scratch());
  float* const scale = carver.take<float>(t.cols);
  if (!t.given) column_statistics(context, ColumnSums::carve(carver, t.rows, t.cols, true), t.x, t.mean, t.variance);
  if (!t.y) return CT_OK;
  scales(t.gamma, t.variance, t.eps, t.cols, scale);
  with_activation(t.act, [&](const auto& act) {
    each_rows(context, t.rows, t.cols, 0.3, [&](int64_t first, int64_t last) {
      t.add ? apply<true>(t, scale, act, first, last) : apply<false>(t, scale, act, first, last);
    });
  });
  return CT_OK;
}

int64_t batch_norm_grad_scratch(const void* opaque, int) {
  const auto& t = *static_cast<const ct_batch_norm_grad_args*>(opaque);
  Carver carver(nullptr);
  carve(carver, t.cols);
  ColumnSums::carve(carver, t.rows, t.cols, false);
  return carver.used();
}

int32_t batch_norm_grad(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_batch_norm_grad_args*>(opaque);
  Carver carver(context.scratch());
  const Factors factors = carve(carver, t.cols);
  const ColumnSums sums = ColumnSums::carve(carver, t.rows, t.cols, false);
  if (t.cols == 0) return CT_OK;
  scales(t.gamma, t.variance, t.eps, t.cols, factors.scale);
  with_activation(t.act, [&](const auto& act) {
    const Back<std::decay_t<decltype(act)>> back{t, factors.scale, act};
    add_columns(context, sums, back);
    finish(t, sums, factors);
    if (!t.dx) return;
    each_rows(context, t.rows, t.cols, 0.4, [&](int64_t first, int64_t last) { send_back(back, factors, first, last); });
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
