// Means and largest of windows of bytes.
#include <algorithm>

#include "integer/requantize.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kBlock = 64;

struct Span {
  int64_t begin, end;
};

// The cells of a window that lie inside.
Span inside(int64_t out, int64_t stride, int64_t pad, int64_t kernel, int64_t size) {
  const int64_t first = out * stride - pad;
  return {std::max<int64_t>(first, 0), std::min(first + kernel, size)};
}

void add(const uint8_t* x, int64_t n, uint8_t flip, int32_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += uint8_t(x[i] ^ flip);
}

void keep_largest(const uint8_t* x, int64_t n, uint8_t flip, int32_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = std::max<int32_t>(to[i], uint8_t(x[i] ^ flip));
}

}  // namespace

int32_t int_pool(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_pool_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  const bool is_mean = t.op == CT_REDUCE_SUM;
  const int64_t blocks = ceil_div(s.in_c, kBlock), area = s.kernel_h * s.kernel_w;
  const Range range(t);
  context.parallel(s.batch * s.out_h * s.out_w * blocks, double(s.batch * s.out_h * s.out_w * s.in_c * area) * 0.1, [&](int, int64_t begin, int64_t end) {
    alignas(CT_ALIGNMENT) int32_t cells[kBlock];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t channel = unit % blocks * kBlock, n = std::min(kBlock, s.in_c - channel), place = unit / blocks;
      const int64_t image = place / (s.out_h * s.out_w);
      const Span rows = inside(place / s.out_w % s.out_h, s.stride_h, s.pad_top, s.kernel_h, s.in_h);
      const Span columns = inside(place % s.out_w, s.stride_w, s.pad_left, s.kernel_w, s.in_w);
      std::fill(cells, cells + kBlock, 0);
      for (int64_t r = rows.begin; r < rows.end; ++r)
        for (int64_t c = columns.begin; c < columns.end; ++c)
          (is_mean ? add : keep_largest)(t.x + ((image * s.in_h + r) * s.in_w + c) * s.in_c + channel, n, uint8_t(t.x_flip), cells);
      const int32_t count = std::max<int32_t>(1, int32_t((rows.end - rows.begin) * (columns.end - columns.begin)));
      const float scale = is_mean ? t.scale / float(count) : 1.0f;
      uint8_t* const y = t.y + place * s.in_c + channel;
      each_vector(n, [&](int64_t i, auto lanes) {
        const vi sums = load_ints(cells + i) - t.x_zero * (is_mean ? count : 1);
        store_bytes(y + i, range.halves_away(to_float(sums) * scale), lanes);
      });
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
