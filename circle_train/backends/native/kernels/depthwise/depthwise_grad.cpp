// DEPTHWISE_CONV_2D gradients. grad_x with stride 1 is the forward row with the kernel turned round; other strides and
// multipliers gather the taps that reached each pixel. grad_w adds rows into fixed parts, and the parts in order.
#include <algorithm>

#include "depthwise/depthwise_row.h"
#include "vectors/stored.h"
#include "update/optimizer.h"

namespace ct {
namespace CT_TIER {
namespace {

RowReader dy_reader(const float* dy, const ct_conv_shape& s) { return {dy, s.out_h, s.out_w, s.out_c, 1, nullptr, false}; }

bool turns_round(const ct_conv_shape& s) { return s.stride_h == 1 && s.stride_w == 1 && s.out_c == s.in_c; }

struct GradX {
  const ct_conv_grad_x_args& t;
  RowReader reader;
  int64_t row_floats, pointers;
  bool past;
  float* turned;          // the kernel turned round
  float* sums;            // out_c floats a worker: one pixel before channels are joined
  float* rows;
  const float** tables;

  GradX(const ct_conv_grad_x_args& args, Carver& carver, int workers) : t(args) {
    const ct_conv_shape& s = t.shape;
    reader = dy_reader(t.dy, s);
    past = !t.accumulate && is_large(t.dx, s.in_c, in_pixels(s) * s.in_c, W);
    row_floats = reader.floats_per_row() * s.kernel_h;
    pointers = round_up(s.kernel_h, 8);
    turned = carver.take<float>(turns_round(s) ? s.kernel_h * s.kernel_w * s.out_c : 0);
    sums = carver.take<float>(round_up(s.out_c, 16) * workers);
    rows = carver.take<float>(row_floats * workers);
    tables = carver.take<const float*>(pointers * workers);
  }

  RowEnd end_of(int64_t at) const {
    RowEnd end;
    end.accumulate = t.accumulate != 0;
    end.bf16_mask = t.bf16 & CT_BF16_MASK;
    end.out_mask = t.out_mask_y ? moved(t.out_mask_y, at, end.bf16_mask) : nullptr;
    end.mask = clamp_of(t.out_mask_act);
    end.past = past;
    return end;
  }

  void turned_row(int64_t n, int64_t h, const RowReader& from, const float** table) const {
    const ct_conv_shape& s = t.shape;
    const int64_t pad_h = s.dilation_h * (s.kernel_h - 1) - s.pad_top, pad_w = s.dilation_w * (s.kernel_w - 1) - s.pad_left;
    for (int64_t kh = 0; kh < s.kernel_h; ++kh) table[kh] = from.row(n, h - pad_h + kh * s.dilation_h, kh);
    const RowWindow window{s.kernel_h, s.kernel_w, 1, s.dilation_w, pad_w, s.out_w, s.in_w, s.in_c};
    const int64_t at = (n * s.in_h + h) * s.in_w * s.in_c;
    Ahead ahead;
    const int64_t next = h - pad_h + (s.kernel_h - 1) * s.dilation_h + 1, row = s.out_w * s.out_c, size = in_pixels(s) * s.in_c;
    if (next > 0) ahead.add(t.dy + (n * s.out_h + next) * row, row, t.dy + s.batch * s.out_h * row, row_steps(window));
    if (t.out_mask_y && !(t.bf16 & CT_BF16_MASK)) ahead.add(t.out_mask_y + at + s.in_w * s.in_c, s.in_w * s.in_c, t.out_mask_y + size, row_steps(window));
    depthwise_row(window, table, turned, end_of(at), ahead, t.dx + at);
  }

  // The dy row that kernel row kh of pixel row h was multiplied into, or NULL.
  void gathered_row(int64_t n, int64_t h, const RowReader& from, const float** table, float* sum_row) const {
    const ct_conv_shape& s = t.shape;
    for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
      const int64_t dh = h + s.pad_top - kh * s.dilation_h;
      table[kh] = dh % s.stride_h == 0 && dh >= 0 ? from.row(n, dh / s.stride_h, kh) : nullptr;
    }
    for (int64_t w = 0; w < s.in_w; ++w) gathered_pixel(n, h, w, table, sum_row);
  }

  void gathered_pixel(int64_t n, int64_t h, int64_t w, const float* const* table, float* sum_row) const {
    const ct_conv_shape& s = t.shape;
    constexpr int64_t kMost = 16;
    const float *dys[kMost], *ws[kMost];
    const int64_t at = ((n * s.in_h + h) * s.in_w + w) * s.in_c;
    const RowEnd end = end_of(at);
    bool started = false;
    int64_t taps = 0;
    // With more taps than fit a list (dilated or huge kernels), lists are added up in sum_row.
    const auto flush = [&](bool last) {
      each_vector(s.out_c, [&](int64_t c, auto lanes) {
        vf acc = started ? load_some(sum_row + c, lanes) : vf{};
        for (int64_t i = 0; i < taps; ++i) acc += load_some(dys[i] + c, lanes) * load_some(ws[i] + c, lanes);
        if (last && s.out_c == s.in_c) {
          put(end, acc, at + c, c, lanes);
        } else {
          store_some(sum_row + c, acc, lanes);
        }
      });
      started = true;
      taps = 0;
    };
    for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
      for (int64_t kw = 0; kw < s.kernel_w && table[kh]; ++kw) {
        const int64_t dw = w + s.pad_left - kw * s.dilation_w;
        if (dw < 0 || dw % s.stride_w != 0 || dw / s.stride_w >= s.out_w) continue;
        if (taps == kMost) flush(false);
        dys[taps] = table[kh] + dw / s.stride_w * s.out_c;
        ws[taps++] = t.w + (kh * s.kernel_w + kw) * s.out_c;
      }
    }
    if (!started && sum_few(end, taps, dys, ws, at)) return;
    flush(true);
    if (s.out_c != s.in_c) join(end, at, sum_row);
  }

  // A pixel's whole sum, if it is as simple as most and has as many taps as 3x3 kernels with stride 2 leave it.
  bool sum_few(const RowEnd& end, int64_t taps, const float* const* dys, const float* const* ws, int64_t at) const {
    if (end.accumulate || end.bf16_mask || end.mask.curve || t.shape.in_c != t.shape.out_c || t.shape.in_c % W != 0) return false;
    if (taps == 1) return sum<1>(end, dys, ws, at), true;
    if (taps == 2) return sum<2>(end, dys, ws, at), true;
    if (taps == 4) return sum<4>(end, dys, ws, at), true;
    return false;
  }

  template <int Taps>
  void sum(const RowEnd& end, const float* const* dys, const float* const* ws, int64_t at) const {
    const Clamp mask = end.mask;
    const float *dy[Taps], *w[Taps];
    for (int i = 0; i < Taps; ++i) dy[i] = dys[i], w[i] = ws[i];
    float* const dx = t.dx + at;
    for (int64_t c = 0; c < t.shape.in_c; c += W) {
      vf acc{};
      for (int i = 0; i < Taps; ++i) acc += load(dy[i] + c) * load(w[i] + c);
      if (end.out_mask) acc = masked_by_range(acc, load(end.out_mask + c), mask);
      end.past ? store_past(dx + c, acc) : store(dx + c, acc);
    }
  }

  template <class Lanes>
  void put(const RowEnd& end, vf v, int64_t at, int64_t c, Lanes lanes) const {
    if (end.accumulate) v += load_some(t.dx + at, lanes);
    if (end.out_mask) {
      const auto* const narrow = reinterpret_cast<const uint16_t*>(end.out_mask);
      v = masked(v, end.bf16_mask ? load_bf16(narrow + c, lanes) : load_some(end.out_mask + c, lanes), end.mask);
    }
    if (end.past && lanes == W) return store_past(t.dx + at, v);
    store_some(t.dx + at, v, lanes);
  }

  // A multiplier's outputs all go back to their one input channel.
  void join(const RowEnd& end, int64_t at, const float* sum_row) const {
    const int64_t repeat = t.shape.out_c / t.shape.in_c;
    for (int64_t c = 0; c < t.shape.in_c; ++c) {
      float total = 0;
      for (int64_t q = 0; q < repeat; ++q) total += sum_row[c * repeat + q];
      put(end, splat(total), at + c, c, 1);
    }
  }
};

// Rows of output, in parts that depend on the problem alone.
struct GradW {
  const ct_conv_grad_w_args& t;
  int64_t rows, parts, cells, row_floats, pointers;
  RowReader x, dy;
  float *dw, *db, *made;
  const float** tables;

  GradW(const ct_conv_grad_w_args& args, Carver& carver, int workers) : t(args) {
    const ct_conv_shape& s = t.shape;
    rows = s.batch * s.out_h;
    parts = std::max<int64_t>(1, std::min<int64_t>(rows, 32));
    cells = s.kernel_h * s.kernel_w * s.out_c;
    x = {t.x, s.in_h, s.in_w, s.in_c, s.out_c / s.in_c, nullptr, (t.bf16 & CT_BF16_X) != 0};
    dy = dy_reader(t.dy, s);
    row_floats = x.floats_per_row() * s.kernel_h + dy.floats_per_row();
    pointers = round_up(s.kernel_h, 8);
    dw = carver.take<float>(parts * cells);
    db = carver.take<float>(parts * s.out_c);
    made = carver.take<float>(row_floats * workers);
    tables = carver.take<const float*>(pointers * workers);
  }

  void part(int64_t i, int worker) const {
    const ct_conv_shape& s = t.shape;
    const RowWindow window{s.kernel_h, s.kernel_w, s.stride_w, s.dilation_w, s.pad_left, s.in_w, s.out_w, s.out_c};
    float* const own_w = t.has_w ? dw + i * cells : nullptr;
    float* const own_b = t.has_b ? db + i * s.out_c : nullptr;
    if (own_w) std::fill(own_w, own_w + cells, 0.0f);
    if (own_b) std::fill(own_b, own_b + s.out_c, 0.0f);
    RowReader xs = x, dys = dy;
    xs.scratch = made + worker * row_floats;
    xs.keep_rows(s.kernel_h, s.dilation_h);
    dys.scratch = xs.scratch + x.floats_per_row() * s.kernel_h;
    const float** const table = tables + worker * pointers;
    for (int64_t r = rows * i / parts; r < rows * (i + 1) / parts; ++r) {
      const int64_t n = r / s.out_h, oh = r % s.out_h;
      for (int64_t kh = 0; kh < s.kernel_h; ++kh)
        table[kh] = xs.row(n, oh * s.stride_h - s.pad_top + kh * s.dilation_h, kh);
      Ahead ahead;
      const int64_t next = oh * s.stride_h - s.pad_top + (s.kernel_h - 1) * s.dilation_h + 1, row = s.in_w * s.in_c;
      const float* const x_end = t.x + s.batch * s.in_h * row;
      if (next > 0 && !x.bf16) ahead.add(t.x + (n * s.in_h + next) * row, s.stride_h * row, x_end, row_steps(window));
      const int64_t dy_row = s.out_w * s.out_c;
      ahead.add(t.dy + (r + 1) * dy_row, dy_row, t.dy + rows * dy_row, row_steps(window));
      depthwise_row_grad_w(window, table, dys.row(n, oh, 0), ahead, own_w, own_b);
    }
  }

  void join(float* from, int64_t size, const ct_update& u, int64_t first, int64_t n) const {
    each_vector(n, [&](int64_t i, auto lanes) {
      vf total = load_some(from + first + i, lanes);
      for (int64_t p = 1; p < parts; ++p) total += load_some(from + p * size + first + i, lanes);
      store_some(from + first + i, total, lanes);
    });
    apply_update(u, first, from + first, n);
  }
};

}  // namespace

int64_t depthwise_grad_x_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_conv_grad_x_args*>(opaque);
  if (t.stored.x) return widened_scratch(t, threads, depthwise_grad_x_scratch);
  Carver carver(nullptr);
  const GradX g(t, carver, threads);
  return carver.used();
}

int32_t depthwise_grad_x(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_grad_x_args*>(opaque);
  if (t.stored.x) return run_widened(context, t, &ct_conv_grad_x_args::w, depthwise_grad_x);
  const ct_conv_shape& s = t.shape;
  Carver carver(context.scratch());
  const GradX g(t, carver, context.workers());
  const bool turn = turns_round(s);
  const int64_t cells = s.kernel_h * s.kernel_w;
  for (int64_t k = 0; k < cells && turn; ++k) copy_floats(g.turned + k * s.out_c, t.w + (cells - 1 - k) * s.out_c, s.out_c);
  const double work = double(in_pixels(s)) * s.in_c * (0.1 + cells * 0.02);
  context.parallel(s.batch * s.in_h, work, [&](int worker, int64_t begin, int64_t end) {
    RowReader reader = g.reader;
    reader.scratch = g.rows + worker * g.row_floats;
    const float** const table = g.tables + worker * g.pointers;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / s.in_h, h = i % s.in_h;
      if (turn) {
        g.turned_row(n, h, reader, table);
      } else {
        g.gathered_row(n, h, reader, table, g.sums + worker * round_up(s.out_c, 16));
      }
    }
    if (g.past) finish_stores_past();
  });
  return CT_OK;
}

int64_t depthwise_grad_w_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_conv_grad_w_args*>(opaque);
  Carver carver(nullptr);
  if (t.shape.in_c > 0) GradW(t, carver, threads);
  return carver.used();
}

int32_t depthwise_grad_w(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_grad_w_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  if (s.in_c == 0) return CT_OK;
  Carver carver(context.scratch());
  const GradW g(t, carver, context.workers());
  const double work = double(out_pixels(s)) * s.out_c * (0.1 + s.kernel_h * s.kernel_w * 0.02);
  context.parallel(g.parts, work, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) g.part(i, worker);
  });
  constexpr int64_t piece = 512;
  if (t.has_w) {
    context.parallel(ceil_div(g.cells, piece), double(g.cells) * g.parts * 0.1, [&](int, int64_t begin, int64_t end) {
      g.join(g.dw, g.cells, t.w, begin * piece, std::min(end * piece, g.cells) - begin * piece);
    });
  }
  if (t.has_b) g.join(g.db, s.out_c, t.b, 0, s.out_c);
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
