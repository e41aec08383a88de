// Layer and RMS normalisation over the last axis, and their gradients.
#include <algorithm>

#include "update/optimizer.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

// sum over i of f(i, lanes), lanes past the row excluded because f returns zeros there.
template <class F>
float row_sum(int64_t n, F f) {
  vf total{};
  each_vector(n, [&](int64_t i, auto lanes) { total += f(i, lanes); });
  return sum(total);
}

template <class Lanes>
vf only(vf v, Lanes lanes) {
  if (lanes == W) return v;
  for (int j = lanes; j < W; ++j) v[j] = 0;
  return v;
}

template <bool Centred>
void normalise_row(const ct_norm_args& t, int64_t r) {
  const float* x = t.x + r * t.cols;
  float* const y = t.y + r * t.cols;
  if (t.add) {
    float* const to = t.sum ? t.sum + r * t.cols : y;
    const float* const from = x;
    const float* const add = t.add + r * t.cols;
    each_vector(t.cols, [&](int64_t i, auto lanes) { store_some(to + i, load_some(from + i, lanes) + load_some(add + i, lanes), lanes); });
    x = to;
  } else if (t.sum) {
    std::copy(x, x + t.cols, t.sum + r * t.cols);
  }
  const float mean = Centred ? row_sum(t.cols, [&](int64_t i, auto lanes) { return load_some(x + i, lanes); }) / t.cols : 0.0f;
  const float variance = row_sum(t.cols, [&](int64_t i, auto lanes) {
    const vf d = only(load_some(x + i, lanes) - mean, lanes);
    return d * d;
  }) / t.cols;
  const float rstd = 1.0f / std::sqrt(variance + t.eps);
  if (t.mean) t.mean[r] = mean;
  if (t.rstd) t.rstd[r] = rstd;
  each_vector(t.cols, [&](int64_t i, auto lanes) {
    vf v = (load_some(x + i, lanes) - mean) * rstd;
    if (t.gamma) v *= load_some(t.gamma + i, lanes);
    if (t.beta) v += load_some(t.beta + i, lanes);
    store_some(y + i, v, lanes);
  });
}

template <bool Centred>
int32_t normalise(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_norm_args*>(opaque);
  context.parallel(t.rows, double(t.rows) * t.cols * 0.25, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) normalise_row<Centred>(t, r);
  });
  return CT_OK;
}

// Parameter gradients are added up over fixed parts of the rows.
int64_t parts_of(const ct_norm_grad_args& t) { return std::max<int64_t>(1, std::min<int64_t>(32, t.rows / 8)); }

struct Parts {
  float* gamma;
  float* beta;
};

Parts carve(Carver& carver, const ct_norm_grad_args& t) {
  const int64_t size = parts_of(t) * t.cols;
  return {carver.take<float>(t.has_gamma ? size : 0), carver.take<float>(t.has_beta ? size : 0)};
}

// With h = (x - mean)*rstd and d = dy*gamma: dx = rstd * (d - mean(d) - h*mean(d*h)); RMS has no mean(d).
template <bool Centred>
void gradient_row(const ct_norm_grad_args& t, int64_t r, float* dgamma, float* dbeta) {
  const float* const x = t.x + r * t.cols;
  const float* const dy = t.dy + r * t.cols;
  float* const dx = t.dx ? t.dx + r * t.cols : nullptr;
  const float mean = Centred ? t.mean[r] : 0.0f, rstd = t.rstd[r];
  vf sum_d{}, sum_dh{};
  each_vector(t.cols, [&](int64_t i, auto lanes) {
    const vf g = load_some(dy + i, lanes);
    const vf h = (load_some(x + i, lanes) - mean) * rstd;
    const vf d = t.gamma_values ? g * load_some(t.gamma_values + i, lanes) : g;
    sum_d += d;
    sum_dh += d * h;
    if (dgamma) store_some(dgamma + i, load_some(dgamma + i, lanes) + g * h, lanes);
    if (dbeta) store_some(dbeta + i, load_some(dbeta + i, lanes) + g, lanes);
  });
  if (!dx) return;
  const float a = Centred ? sum(sum_d) / t.cols : 0.0f, b = sum(sum_dh) / t.cols;
  each_vector(t.cols, [&](int64_t i, auto lanes) {
    vf d = load_some(dy + i, lanes);
    if (t.gamma_values) d *= load_some(t.gamma_values + i, lanes);
    const vf h = (load_some(x + i, lanes) - mean) * rstd;
    vf v = rstd * (d - a - h * b);
    if (t.accumulate) v += load_some(dx + i, lanes);
    store_some(dx + i, v, lanes);
  });
}

void join(float* parts, int64_t count, int64_t cols, const ct_update& u) {
  each_vector(cols, [&](int64_t i, auto lanes) {
    vf total = load_some(parts + i, lanes);
    for (int64_t p = 1; p < count; ++p) total += load_some(parts + p * cols + i, lanes);
    store_some(parts + i, total, lanes);
  });
  apply_update(u, 0, parts, cols);
}

template <bool Centred>
int32_t gradient(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_norm_grad_args*>(opaque);
  Carver carver(context.scratch());
  const Parts parts = carve(carver, t);
  const int64_t count = parts_of(t);
  context.parallel(count, double(t.rows) * t.cols * 0.5, [&](int, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      float* const dgamma = t.has_gamma ? parts.gamma + p * t.cols : nullptr;
      float* const dbeta = t.has_beta ? parts.beta + p * t.cols : nullptr;
      if (dgamma) std::fill(dgamma, dgamma + t.cols, 0.0f);
      if (dbeta) std::fill(dbeta, dbeta + t.cols, 0.0f);
      for (int64_t r = t.rows * p / count; r < t.rows * (p + 1) / count; ++r) gradient_row<Centred>(t, r, dgamma, dbeta);
    }
  });
  if (t.has_gamma) join(parts.gamma, count, t.cols, t.gamma);
  if (t.has_beta) join(parts.beta, count, t.cols, t.beta);
  return CT_OK;
}

}  // namespace

int32_t layer_norm(Context& context, const void* opaque) { return normalise<true>(context, opaque); }
int32_t rms_norm(Context& context, const void* opaque) { return normalise<false>(context, opaque); }
int32_t layer_norm_grad(Context& context, const void* opaque) { return gradient<true>(context, opaque); }
int32_t rms_norm_grad(Context& context, const void* opaque) { return gradient<false>(context, opaque); }

int64_t norm_grad_scratch(const void* opaque, int) {
  Carver carver(nullptr);
  carve(carver, *static_cast<const ct_norm_grad_args*>(opaque));
  return carver.used();
}

}  // namespace CT_TIER
}  // namespace ct
