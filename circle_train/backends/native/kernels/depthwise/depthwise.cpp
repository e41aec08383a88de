// DEPTHWISE_CONV_2D forward, row by row.
#include "depthwise/depthwise_row.h"
#include "vectors/stored.h"

namespace ct {
namespace CT_TIER {
namespace {

// Pointers to the rows of one window, in scratch after the rows themselves.
struct Layout {
  RowReader reader;
  int64_t row_floats;   // made rows of one worker
  int64_t pointers;     // const float* of one worker
  float* rows;
  const float** tables;
};

Layout layout_of(const ct_conv_args& t, Carver& carver, int workers) {
  const ct_conv_shape& s = t.shape;
  Layout l{{t.x, s.in_h, s.in_w, s.in_c, s.out_c / s.in_c, nullptr, (t.bf16 & CT_BF16_X) != 0}, 0, 0, nullptr, nullptr};
  l.row_floats = l.reader.floats_per_row() * s.kernel_h;
  l.pointers = round_up(s.kernel_h, 8);
  l.rows = carver.take<float>(l.row_floats * workers);
  l.tables = carver.take<const float*>(l.pointers * workers);
  return l;
}

}  // namespace

int64_t depthwise_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_conv_args*>(opaque);
  if (t.stored.x) return widened_scratch(t, threads, depthwise_scratch);
  Carver carver(nullptr);
  if (has_outputs(t.shape)) layout_of(t, carver, threads);
  return carver.used();
}

int32_t depthwise(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  if (!has_outputs(s)) return CT_OK;
  if (t.stored.x) return run_widened(context, t, &ct_conv_args::w, depthwise);
  Carver carver(context.scratch());
  const Layout l = layout_of(t, carver, context.workers());
  const RowWindow window{s.kernel_h, s.kernel_w, s.stride_w, s.dilation_w, s.pad_left, s.in_w, s.out_w, s.out_c};
  const double work = double(out_pixels(s)) * s.out_c * (0.1 + s.kernel_h * s.kernel_w * 0.02);
  const bool bf16_x = t.bf16 & CT_BF16_X, bf16_y = t.bf16 & CT_BF16_Y;
  const bool bends = is_curve(t.act) && !bf16_y, past = !bf16_y && !bends && is_large(t.y, s.out_c, out_pixels(s) * s.out_c, W);
  context.parallel(s.batch * s.out_h, work, [&](int worker, int64_t begin, int64_t end) {
    RowReader reader = l.reader;
    reader.scratch = l.rows + worker * l.row_floats;
    reader.keep_rows(s.kernel_h, s.dilation_h);
    const float** const rows = l.tables + worker * l.pointers;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / s.out_h, h0 = i % s.out_h * s.stride_h - s.pad_top;
      for (int64_t kh = 0; kh < s.kernel_h; ++kh) rows[kh] = reader.row(n, h0 + kh * s.dilation_h, kh);
      RowEnd row_end;
      row_end.bias = t.b;
      row_end.act = clamp_of(bends ? int32_t(CT_ACT_NONE) : t.act);
      row_end.past = past;
      row_end.bf16_out = bf16_y;
      row_end.add = t.add ? t.add + i * s.out_w * s.out_c : nullptr;
      Ahead ahead;
      const int64_t next = h0 + (s.kernel_h - 1) * s.dilation_h + 1;
      if (next > 0 && !bf16_x) {
        const int64_t row = s.in_w * s.in_c;
        ahead.add(t.x + (n * s.in_h + next) * row, s.stride_h * row, t.x + s.batch * s.in_h * row, row_steps(window));
      }
      float* const y = moved(t.y, i * s.out_w * s.out_c, bf16_y);
      depthwise_row(window, rows, t.w, row_end, ahead, y);
      if (bends) bend(t.act, y, 1, s.out_w * s.out_c, 0);
    }
    if (past) finish_stores_past();
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
