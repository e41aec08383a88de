// Losses fused with their gradients. Totals are added row by row (or block by block) in order.
#include <algorithm>

#include "elementwise/softmax.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kBlock = 4096;

// One row of dense targets: returns sum t*(lse - z), and the gradient if wanted.
float dense_row(const ct_cross_entropy_args& t, int64_t row, float top, float total, float log_total) {
  const float* const z = t.logits + row * t.cols;
  const float* const target = t.target + row * t.cols;
  vf loss{}, mass{};
  each_vector(t.cols, [&](int64_t i, auto lanes) {
    const vf tv = load_some(target + i, lanes);
    // 0 * inf would be NaN where a class is impossible and not the target.
    const vf distance = log_total - (load_some(z + i, lanes) - top);
    loss += tv == vf{} ? vf{} : tv * distance;
    mass += tv;
  });
  if (t.dz) {
    const float scale = sum(mass) / total;
    each_vector(t.cols, [&](int64_t i, auto lanes) {
      const vf p = exp(load_some(z + i, lanes) - top) * scale;
      store_some(t.dz + row * t.cols + i, t.grad_scale * (p - load_some(target + i, lanes)), lanes);
    });
  }
  return sum(loss);
}

bool is_ignored(const ct_cross_entropy_args& t, int32_t label) { return label == t.ignore_label || label < 0 || label >= t.cols; }

// The gradient holds the exponentials first: they are made once.
float label_row(const ct_cross_entropy_args& t, int64_t row, int32_t label, float top) {
  const float* const z = t.logits + row * t.cols;
  const float distance = z[label] - top;
  if (!t.dz) {
    const float total = row_sum_exp(z, t.cols, 1, top);
    if (t.rate) t.top[row] = top, t.rate[row] = t.grad_scale / total;
    return std::log(total) - distance;
  }
  float* const dz = t.dz + row * t.cols;
  vf sums{};
  each_vector(t.cols, [&](int64_t i, auto lanes) {
    const vf e = exp(load_some(z + i, lanes) - top);
    store_some(dz + i, e, lanes);
    sums += lanes == W ? e : load_some(dz + i, lanes);
  });
  const float total = sum(sums), scale = t.grad_scale / total;
  each_vector(t.cols, [&](int64_t i, auto lanes) { store_some(dz + i, load_some(dz + i, lanes) * scale, lanes); });
  dz[label] -= t.grad_scale;
  return std::log(total) - distance;
}

// As many rows as a vector has lanes, each of few classes: a lane for each row.
constexpr int64_t kFewClasses = 32;

void label_rows(const ct_cross_entropy_args& t, int64_t row, int64_t count, float* losses) {
  float z[kFewClasses][W] = {};
  vi label = vi{} - 1;
  const float* const from = t.logits + row * t.cols;
  for (int64_t r = 0; r < count; ++r) {
    label[r] = is_ignored(t, t.labels[row + r]) ? -1 : t.labels[row + r];
    for (int64_t c = 0; c < t.cols; ++c) z[c][r] = from[r * t.cols + c];
  }
  vf top = load(z[0]), total{}, chosen{};
  for (int64_t c = 1; c < t.cols; ++c) top = maximum(top, load(z[c]));
  for (int64_t c = 0; c < t.cols; ++c) {
    const vf distance = load(z[c]) - top, e = exp(distance);
    chosen = label == int32_t(c) ? distance : chosen;
    total += e;
    store(z[c], e);
  }
  const vi counts = label >= 0;
  store_some(losses + row, counts ? log(total) - chosen : vf{}, int(count));
  if (!t.dz) return;
  const vf scale = t.grad_scale / total;
  for (int64_t c = 0; c < t.cols; ++c) {
    const vf dz = load(z[c]) * scale - (label == int32_t(c) ? splat(t.grad_scale) : vf{});
    store(z[c], counts ? dz : vf{});
  }
  float* const to = t.dz + row * t.cols;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < t.cols; ++c) to[r * t.cols + c] = z[c][r];
}

float ignored_row(const ct_cross_entropy_args& t, int64_t row) {
  if (t.rate) t.top[row] = t.rate[row] = 0;
  if (t.dz) std::fill(t.dz + row * t.cols, t.dz + (row + 1) * t.cols, 0.0f);
  return 0;
}

// Of probabilities: what is below kTiny counts as kTiny, and has no gradient.
constexpr float kTiny = 1e-20f;

float probability_row(const ct_cross_entropy_args& t, int64_t row) {
  const float* const p = t.logits + row * t.cols;
  float* const dz = t.dz ? t.dz + row * t.cols : nullptr;
  float loss = 0;
  for (int64_t i = 0; i < t.cols; ++i) {
    const float target = t.target ? t.target[row * t.cols + i] : float(t.labels[row] == i);
    if (target != 0) loss -= target * std::log(p[i] > kTiny ? p[i] : kTiny);
    if (dz) dz[i] = p[i] > kTiny ? -t.grad_scale * target / p[i] : 0.0f;
  }
  return loss;
}

float cross_entropy_row(const ct_cross_entropy_args& t, int64_t row) {
  if (!t.target && is_ignored(t, t.labels[row])) return ignored_row(t, row);
  if (t.probabilities) return probability_row(t, row);
  const float* const z = t.logits + row * t.cols;
  const float top = row_maximum(z, t.cols);
  if (!t.target) return label_row(t, row, t.labels[row], top);
  const float total = row_sum_exp(z, t.cols, 1, top);
  return dense_row(t, row, top, total, std::log(total));
}

bool labels_fit(const ct_cross_entropy_args& t) {
  if (t.target || t.skip_outside) return true;
  for (int64_t r = 0; r < t.rows; ++r)
    if (t.labels[r] != t.ignore_label && (t.labels[r] < 0 || t.labels[r] >= t.cols)) return false;
  return true;
}

float total_of(const float* parts, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += parts[i];
  return float(total);
}

// value(d) and gradient(d) of the difference d = p - target.
template <class Value, class Gradient>
int32_t regression(Context& context, const void* opaque, Value value, Gradient gradient) {
  const auto& t = *static_cast<const ct_regression_loss_args*>(opaque);
  float* const parts = reinterpret_cast<float*>(context.scratch());
  const int64_t blocks = ceil_div(t.size, kBlock);
  context.parallel(blocks, double(t.size) * 0.15, [&](int, int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kBlock;
      vf total{};
      each_vector(std::min(kBlock, t.size - first), [&](int64_t i, auto lanes) {
        const vf d = load_some(t.p + first + i, lanes) - load_some(t.target + first + i, lanes);
        total += value(d);
        if (t.dp) store_some(t.dp + first + i, gradient(d) * t.grad_scale, lanes);
      });
      parts[b] = sum(total);
    }
  });
  if (t.loss) t.loss[0] = t.loss_scale * total_of(parts, blocks);
  return CT_OK;
}

}  // namespace

int64_t softmax_cross_entropy_scratch(const void* opaque, int) {
  return static_cast<const ct_cross_entropy_args*>(opaque)->rows * int64_t(sizeof(float));
}

int32_t softmax_cross_entropy(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_cross_entropy_args*>(opaque);
  if (!labels_fit(t)) return CT_BAD_INDEX;
  float* const losses = t.row_loss ? t.row_loss : reinterpret_cast<float*>(context.scratch());
  const bool few = !t.target && !t.probabilities && !t.rate && t.cols <= kFewClasses;
  const int64_t at_once = few ? W : 1;
  context.parallel(ceil_div(t.rows, at_once), double(t.rows) * t.cols * 1.2, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin * at_once; r < std::min(end * at_once, t.rows); r += at_once)
      few ? label_rows(t, r, std::min(at_once, t.rows - r), losses) : void(losses[r] = cross_entropy_row(t, r));
  });
  if (t.loss) t.loss[0] = t.loss_scale * total_of(losses, t.rows);
  return CT_OK;
}

int64_t regression_loss_scratch(const void* opaque, int) {
  return ceil_div(static_cast<const ct_regression_loss_args*>(opaque)->size, kBlock) * int64_t(sizeof(float));
}

int32_t mean_squared_error(Context& context, const void* opaque) {
  return regression(context, opaque, [](vf d) { return d * d; }, [](vf d) { return 2.0f * d; });
}

int32_t mean_absolute_error(Context& context, const void* opaque) {
  return regression(context, opaque, [](vf d) { return abs(d); },
                    [](vf d) { return d > vf{} ? splat(1.0f) : (d < vf{} ? splat(-1.0f) : d); });
}

int32_t guard_finite(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_guard_args*>(opaque);
  constexpr int64_t kPiece = 16384;
  std::atomic<bool> finite{true};
  context.parallel(ceil_div(t.size, kPiece), double(t.size) * 0.06, [&](int, int64_t begin, int64_t end) {
    const int64_t first = begin * kPiece, count = std::min(end * kPiece, t.size) - first;
    vi bad{};
    each_vector(count, [&](int64_t i, auto lanes) {
      const vf x = load_some(t.x + first + i, lanes);
      bad |= x - x != vf{};  // NaN and infinity minus themselves are NaN
    });
    int32_t any = 0;
    for (int j = 0; j < W; ++j) any |= bad[j];
    if (any) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load(std::memory_order_relaxed) ? CT_OK : CT_NOT_FINITE;
}

}  // namespace CT_TIER
}  // namespace ct
