// AVERAGE_POOL_2D and its gradient.
#include "pooling/pool_windows.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

void average_window(const ct_pool_args& t, const Window& w, const Clamp& act) {
  const ct_conv_shape& s = t.shape;
  const float count = float(std::max<int64_t>(1, w.rows.count() * w.cols.count()));
  each_vector(s.in_c, [&](int64_t c, auto lanes) {
    vf total{};
    for (int64_t kh = w.rows.begin; kh < w.rows.end; ++kh) {
      vf row{};
      for (int64_t kw = w.cols.begin; kw < w.cols.end; ++kw)
        row += load_some(t.x + w.input + (kh * s.in_w + kw) * s.in_c + c, lanes);
      total += row;
    }
    store_some(t.y + w.output + c, activate(total / count, act), lanes);
  });
}

}  // namespace

int32_t average_pool(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_pool_args*>(opaque);
  const Clamp act = clamp_of(t.act);
  context.parallel(t.shape.batch * t.shape.out_h, forward_nanoseconds(t.shape), [&](int, int64_t begin, int64_t end) {
    each_window(t.shape, begin, end, [&](const Window& w) { average_window(t, w, act); });
  });
  return CT_OK;
}

int32_t average_pool_grad(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_pool_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  const double work = double(in_pixels(s)) * s.in_c * 0.3;
  const Clamp act = clamp_of(t.act);
  context.parallel(s.batch * s.in_h, work, [&](int, int64_t begin, int64_t end) {
    add_rows(t, begin, end, [&](int64_t at, int64_t cells, auto lanes) {
      const vf share = dy_at(t, act, at, lanes) / float(cells);
      return [share](int64_t) { return share; };
    });
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
