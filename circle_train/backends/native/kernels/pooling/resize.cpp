// Images of another size: every output row a weighted sum of input rows, every output column one of columns. Gradients are the
// same with the transposed weights.
#include "run/table.h"
#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {
namespace {

// to[0..n) = what lies at `terms` of the table, `stride` apart, times their weights.
void weighted_sum(const ct_resize_axis& axis, int64_t at, const float* from, int64_t stride, int64_t n, float* to) {
  const int32_t begin = axis.starts[at], end = axis.starts[at + 1];
  each_vector(n, [&](int64_t i, auto lanes) {
    vf total{};
    for (int32_t t = begin; t < end; ++t) total += load_some(from + axis.index[t] * stride + i, lanes) * axis.weight[t];
    store_some(to + i, total, lanes);
  });
}

int64_t row_floats(const ct_resize_args& t) { return round_up(t.in_w * t.channels, CT_ALIGNMENT / int64_t(sizeof(float))); }

}  // namespace

int64_t resize_scratch(const void* opaque, int threads) {
  return row_floats(*static_cast<const ct_resize_args*>(opaque)) * int64_t(sizeof(float)) * threads;
}

int32_t resize(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_resize_args*>(opaque);
  const int64_t in_row = t.in_w * t.channels;
  const double work = double(t.batch) * (t.out_h * t.out_w + t.in_h * t.in_w) * t.channels * 0.5;
  context.parallel(t.batch * t.out_h, work, [&](int worker, int64_t begin, int64_t end) {
    float* const row = reinterpret_cast<float*>(context.scratch()) + worker * row_floats(t);
    for (int64_t i = begin; i < end; ++i) {
      weighted_sum(t.rows, i % t.out_h, t.x + i / t.out_h * t.in_h * in_row, in_row, in_row, row);
      float* const y = t.y + i * t.out_w * t.channels;
      for (int64_t j = 0; j < t.out_w; ++j) weighted_sum(t.columns, j, row, t.channels, t.channels, y + j * t.channels);
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
