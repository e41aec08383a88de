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

typedef uint8_t vq __attribute__((vector_size(16), may_alias));  // a quarter of a block on every tier

vq load_quarter(const uint8_t* p, int64_t n) {
  vq v{};
  if (n >= 16)
    std::memcpy(&v, p, 16);
  else
    std::memcpy(&v, p, size_t(n));
  return v;
}

// One row of outputs, of a block of channels.
class Row {
 public:
  Row(const ct_int_pool_args& args, int64_t row, int64_t block)
      : t_(args), s_(args.shape), channel_(block * kBlock), n_(std::min(kBlock, s_.in_c - channel_)), row_(row),
        rows_(inside(row % s_.out_h, s_.stride_h, s_.pad_top, s_.kernel_h, s_.in_h)) {}

  void keep_largest() const {
    const int flip = t_.x_flip, low = t_.low + flip, high = t_.high + flip;
    for (int64_t column = 0; column < s_.out_w; ++column) {
      const Span columns = inside(column, s_.stride_w, s_.pad_left, s_.kernel_w, s_.in_w);
      for (int64_t i = 0; i < n_; i += 16) {
        vq most = vq{} + uint8_t(low);
        for (int64_t r = rows_.begin; r < rows_.end; ++r)
          for (int64_t c = columns.begin; c < columns.end; ++c) {
            const vq x = load_quarter(cell(r, c) + i, n_ - i) ^ uint8_t(flip);
            most = x > most ? x : most;
          }
        most = (most < uint8_t(high) ? most : vq{} + uint8_t(high)) ^ uint8_t(flip);
        std::memcpy(result(column) + i, &most, size_t(std::min<int64_t>(16, n_ - i)));
      }
    }
  }

  void average() const {
    const Range range(t_);
    alignas(CT_ALIGNMENT) int32_t cells[kBlock];
    for (int64_t column = 0; column < s_.out_w; ++column) {
      const Span columns = inside(column, s_.stride_w, s_.pad_left, s_.kernel_w, s_.in_w);
      std::fill(cells, cells + kBlock, 0);
      for (int64_t r = rows_.begin; r < rows_.end; ++r)
        for (int64_t c = columns.begin; c < columns.end; ++c) add(cell(r, c), cells);
      const int32_t count = std::max<int32_t>(1, int32_t((rows_.end - rows_.begin) * (columns.end - columns.begin)));
      const float scale = t_.scale / float(count);
      each_vector(n_, [&](int64_t i, auto lanes) {
        const vi sums = load_ints(cells + i) - t_.x_zero * count;
        store_bytes(result(column) + i, range.halves_away(to_float(sums) * scale), lanes);
      });
    }
  }

 private:
  void add(const uint8_t* x, int32_t* to) const {
    for (int64_t i = 0; i < n_; ++i) to[i] += uint8_t(x[i] ^ t_.x_flip);
  }

  const uint8_t* cell(int64_t r, int64_t c) const { return t_.x + ((row_ / s_.out_h * s_.in_h + r) * s_.in_w + c) * s_.in_c + channel_; }
  uint8_t* result(int64_t column) const { return t_.y + (row_ * s_.out_w + column) * s_.in_c + channel_; }

  const ct_int_pool_args& t_;
  const ct_conv_shape& s_;
  const int64_t channel_, n_, row_;
  const Span rows_;
};

}  // namespace

int32_t int_pool(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_pool_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  const int64_t blocks = ceil_div(s.in_c, kBlock), area = s.kernel_h * s.kernel_w;
  const double work = double(s.batch * s.out_h * s.out_w * s.in_c * area);
  context.parallel(s.batch * s.out_h * blocks, work * 0.1, [&](int, int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const Row row(t, unit / blocks, unit % blocks);
      t.op == CT_REDUCE_SUM ? row.average() : row.keep_largest();
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
