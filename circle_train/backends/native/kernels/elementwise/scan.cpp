// Along one axis of a tensor seen as outer x size x inner: running sums, where the extreme is, the largest few.
#include <algorithm>

#include "run/table.h"
#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {
namespace {

// Columns side by side, each in its own order from `from` in steps of `by`.
template <class Join>
void scan_columns(const ct_scan_args& t, int64_t at, int64_t columns, float start, Join join) {
  const int64_t by = t.reverse ? -t.inner : t.inner;
  at += t.reverse ? (t.size - 1) * t.inner : 0;
  each_vector(columns, [&](int64_t i, auto lanes) {
    vf total = splat(start);
    for (int64_t s = 0, p = at + i; s < t.size; ++s, p += by) {
      const vf next = join(total, load_some(t.x + p, lanes));
      store_some(t.y + p, t.exclusive ? total : next, lanes);
      total = next;
    }
  });
}

constexpr int64_t kColumns = 64;

template <class T>
void find_extreme(const ct_extreme_args& t, int64_t outer, int64_t inner) {
  const float* const x = t.x + outer * t.size * t.inner + inner;
  int64_t place = 0;
  float best = t.size > 0 ? x[0] : 0;
  for (int64_t s = 1; s < t.size && best == best; ++s) {
    const float v = x[s * t.inner];
    if (v != v || (t.op == CT_REDUCE_MAX ? v > best : v < best)) best = v, place = s;
  }
  static_cast<T*>(t.place)[outer * t.inner + inner] = T(place);
}

// The places of the k largest, falling, in order[0..k).
void top_places(const float* x, int64_t n, int64_t k, int32_t* order) {
  for (int64_t i = 0; i < n; ++i) order[i] = int32_t(i);
  std::partial_sort(order, order + k, order + n, [x](int32_t a, int32_t b) {
    const bool nan_a = x[a] != x[a], nan_b = x[b] != x[b];
    if (nan_a || nan_b) return nan_a != nan_b ? nan_a : a < b;
    return x[a] != x[b] ? x[a] > x[b] : a < b;
  });
}

}  // namespace

int32_t scan(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_scan_args*>(opaque);
  const int64_t blocks = ceil_div(t.inner, kColumns);
  context.parallel(t.outer * blocks, double(t.outer) * t.size * t.inner * (t.inner < W ? 2 : 0.3), [&](int, int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t first = u % blocks * kColumns, columns = std::min(kColumns, t.inner - first);
      const int64_t at = u / blocks * t.size * t.inner + first;
      if (t.op == CT_REDUCE_PROD) scan_columns(t, at, columns, 1, [](vf a, vf b) { return a * b; });
      else scan_columns(t, at, columns, 0, [](vf a, vf b) { return a + b; });
    }
  });
  return CT_OK;
}

int32_t extreme(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_extreme_args*>(opaque);
  context.parallel(t.outer * t.inner, double(t.outer) * t.inner * t.size, [&](int, int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u)
      t.place_bytes == 8 ? find_extreme<int64_t>(t, u / t.inner, u % t.inner) : find_extreme<int32_t>(t, u / t.inner, u % t.inner);
  });
  return CT_OK;
}

int64_t top_scratch(const void* opaque, int threads) {
  return round_up(static_cast<const ct_top_args*>(opaque)->cols * int64_t(sizeof(int32_t)), CT_ALIGNMENT) * threads;
}

int32_t top(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_top_args*>(opaque);
  const int64_t room = round_up(t.cols * int64_t(sizeof(int32_t)), CT_ALIGNMENT);
  context.parallel(t.rows, double(t.rows) * t.cols * 3, [&](int worker, int64_t begin, int64_t end) {
    auto* const order = reinterpret_cast<int32_t*>(context.scratch() + worker * room);
    for (int64_t r = begin; r < end; ++r) {
      const float* const x = t.x + r * t.cols;
      top_places(x, t.cols, t.k, order);
      if (t.dx) std::fill(t.dx + r * t.cols, t.dx + (r + 1) * t.cols, 0.0f);
      for (int64_t i = 0; i < t.k; ++i) {
        if (t.values) t.values[r * t.k + i] = x[order[i]];
        if (t.places) t.places[r * t.k + i] = order[i];
        if (t.dx) t.dx[r * t.cols + order[i]] = t.dy[r * t.k + i];
      }
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
