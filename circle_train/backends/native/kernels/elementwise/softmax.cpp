// Softmax and log-softmax along the last axis, and their gradients.
#include "elementwise/softmax.h"

#include "run/table.h"

namespace ct {
namespace CT_TIER {

float row_maximum(const float* x, int64_t n) {
  vf best = splat(-std::numeric_limits<float>::infinity());
  float tail = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + W <= n; i += W) best = maximum(best, load(x + i));
  for (; i < n; ++i) tail = (x[i] > tail || x[i] != x[i]) ? x[i] : tail;
  const float wide = largest(best);
  return (tail > wide || tail != tail) ? tail : wide;
}

float row_sum_exp(const float* x, int64_t n, float beta, float top) {
  vf total{};
  each_vector(n, [&](int64_t i, auto lanes) {
    const vf e = exp((load_some(x + i, lanes) - top) * beta);
    if (lanes == W) {
      total += e;
    } else {
      for (int j = 0; j < lanes; ++j) total[j] += e[j];
    }
  });
  return sum(total);
}

void softmax_row(const float* x, float* y, int64_t n, float beta, float top) {
  vf total{};
  each_vector(n, [&](int64_t i, auto lanes) {
    const vf e = exp((load_some(x + i, lanes) - top) * beta);
    store_some(y + i, e, lanes);
    total += lanes == W ? e : load_n(y + i, lanes);
  });
  const float share = 1.0f / sum(total);
  each_vector(n, [&](int64_t i, auto lanes) { store_some(y + i, load_some(y + i, lanes) * share, lanes); });
}

namespace {

float row_dot(const float* a, const float* b, int64_t n) {
  vf total{};
  each_vector(n, [&](int64_t i, auto lanes) { total += load_some(a + i, lanes) * load_some(b + i, lanes); });
  return sum(total);
}

float row_sum(const float* a, int64_t n) {
  vf total{};
  each_vector(n, [&](int64_t i, auto lanes) { total += load_some(a + i, lanes); });
  return sum(total);
}

template <class F>
int32_t each_row(Context& context, const void* opaque, double cost, F f) {
  const auto& t = *static_cast<const ct_softmax_args*>(opaque);
  context.parallel(t.rows, double(t.rows) * t.cols * cost, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(t, r * t.cols);
  });
  return CT_OK;
}

// With beta < 0 the largest beta*x belongs to the smallest x.
float row_top(const ct_softmax_args& t, const float* x) {
  if (t.beta >= 0) return row_maximum(x, t.cols);
  float low = x[0];
  for (int64_t i = 1; i < t.cols; ++i) low = (x[i] < low || x[i] != x[i]) ? x[i] : low;
  return low;
}

template <class Lanes>
void put(const ct_softmax_args& t, int64_t at, vf v, Lanes lanes) {
  if (t.accumulate) v += load_some(t.dx + at, lanes);
  store_some(t.dx + at, v, lanes);
}

}  // namespace

int32_t softmax(Context& context, const void* opaque) {
  return each_row(context, opaque, 0.6, [](const ct_softmax_args& t, int64_t row) {
    const float* const x = t.x + row;
    softmax_row(x, t.y + row, t.cols, t.beta, row_top(t, x));
  });
}

// dx = beta * y * (dy - sum(dy*y))
int32_t softmax_grad(Context& context, const void* opaque) {
  return each_row(context, opaque, 0.2, [](const ct_softmax_args& t, int64_t row) {
    const float dot = row_dot(t.dy + row, t.y + row, t.cols);
    each_vector(t.cols, [&](int64_t i, auto lanes) {
      put(t, row + i, t.beta * load_some(t.y + row + i, lanes) * (load_some(t.dy + row + i, lanes) - dot), lanes);
    });
  });
}

int32_t log_softmax(Context& context, const void* opaque) {
  return each_row(context, opaque, 0.6, [](const ct_softmax_args& t, int64_t row) {
    const float* const x = t.x + row;
    const float top = row_top(t, x);
    const float lse = std::log(row_sum_exp(x, t.cols, t.beta, top));
    each_vector(t.cols, [&](int64_t i, auto lanes) {
      store_some(t.y + row + i, (load_some(x + i, lanes) - top) * t.beta - lse, lanes);
    });
  });
}

// dx = beta * (dy - exp(y) * sum(dy))
int32_t log_softmax_grad(Context& context, const void* opaque) {
  return each_row(context, opaque, 0.6, [](const ct_softmax_args& t, int64_t row) {
    const float total = row_sum(t.dy + row, t.cols);
    each_vector(t.cols, [&](int64_t i, auto lanes) {
      put(t, row + i, t.beta * (load_some(t.dy + row + i, lanes) - exp(load_some(t.y + row + i, lanes)) * total), lanes);
    });
  });
}

}  // namespace CT_TIER
}  // namespace ct
