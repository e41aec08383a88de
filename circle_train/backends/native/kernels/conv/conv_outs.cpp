#include "conv/conv_outs.h"

#include <algorithm>

#include "conv/conv_shape.h"
#include "product/walk.h"
#include "update/optimizer.h"
#include "product/gemm.h"
#include "product/pack.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kNear = 40 << 10;  // bytes of an image's rows and of dy that stay near while weights pass
constexpr int64_t kUnits = 12;
constexpr int64_t kMostChannels = 24, kFewestOuts = 5, kMostOuts = 128;  // beyond, other ways are faster

// Sums lie as (window cells x outputs), outputs up to whole vectors; chunks are whole output rows of an image. All but the
// workers' room is a function of the problem alone.
struct Plan {
  Plan(const ct_conv_grad_w_args& t, char* scratch, int workers) : s(t.shape) {
    cols = round_up(s.out_c, W);
    run = (s.dilation_w == 1 ? s.kernel_w : 1) * s.in_c;
    size = s.kernel_h * s.kernel_w * s.in_c;
    width = ((s.out_w - 1) * s.stride_w + (s.kernel_w - 1) * s.dilation_w + 1) * s.in_c;
    above = (s.kernel_h - 1) * s.dilation_h + 1 - s.stride_h;
    const int64_t row = s.out_w * s.out_c + s.stride_h * width;
    const int64_t most = std::max<int64_t>(1, (kNear / int64_t(sizeof(float)) - above * width) / row);
    chunks = ceil_div(s.out_h, most);
    parts = std::max<int64_t>(1, std::min(kUnits, s.batch * chunks));
    room = round_up(rows_under(ceil_div(s.out_h, chunks)) * width + s.out_w * cols, 1024);
    Carver carver(scratch);
    sums = carver.take<float>(parts * size * cols);
    biases = carver.take<float>(parts * cols);
    turned = carver.take<float>(size * s.out_c);
    mine = carver.take<float>(room * workers);
    used = carver.used();
  }
  int64_t rows_under(int64_t out_rows) const { return std::max<int64_t>(0, out_rows * s.stride_h + above); }

  const ct_conv_shape& s;
  int64_t cols, run, size;
  int64_t width, above;  // floats of a row with its padding; rows under a chunk besides its own
  int64_t chunks, parts, room, used;
  float *sums, *biases, *turned, *mine;
};

// The image's rows under output rows first..first+count with their padding.
void pad_rows(const ct_conv_grad_w_args& t, const Plan& p, int64_t image, int64_t first, int64_t count, float* to) {
  const ct_conv_shape& s = p.s;
  const int64_t left = std::min(std::max<int64_t>(0, s.pad_left * s.in_c), p.width);
  const int64_t skip = std::max<int64_t>(0, -s.pad_left * s.in_c), inside = std::max<int64_t>(0, std::min(s.in_w * s.in_c - skip, p.width - left));
  for (int64_t r = 0; r < p.rows_under(count); ++r, to += p.width) {
    const int64_t h = first * s.stride_h - s.pad_top + r;
    if (h < 0 || h >= s.in_h) {
      zero_floats(to, p.width);
      continue;
    }
    zero_floats(to, left);
    copy_floats(to + left, t.x + (image * s.in_h + h) * s.in_w * s.in_c + skip, inside);
    zero_floats(to + left + inside, p.width - left - inside);
  }
}

// c += the products of padded rows and as many of dy, whose pixels are `step` floats from each other.
void add_products(const Plan& p, const float* x, const float* dy, int64_t rows, int64_t step, float* c) {
  const ct_conv_shape& s = p.s;
  const Walk walk{rows, s.out_w, s.stride_h * p.width, s.stride_w * s.in_c, s.out_w * step, step};
  const int64_t tile = ceil_div(p.run, ceil_div(p.run, kTileRows));
  for (int64_t j = 0; j < p.cols; j += kTileCols)
    for (int64_t at = 0; at < p.size; at += p.run) {
      const int64_t kernel_row = at / (s.kernel_w * s.in_c), pixel = at % (s.kernel_w * s.in_c) / s.in_c;
      const float* const from = x + kernel_row * s.dilation_h * p.width + pixel * s.dilation_w * s.in_c;
      for (int64_t i = 0; i < p.run; i += tile)
        walk_tile(int(std::min(tile, p.run - i)), p.cols - j > W ? 2 : 1)(from + i, dy + j, walk, c + (at + i) * p.cols + j, p.cols);
    }
}

void add_chunk(const ct_conv_grad_w_args& t, const Plan& p, int64_t unit, int64_t part, float* own) {
  const ct_conv_shape& s = p.s;
  const int64_t image = unit / p.chunks, chunk = unit % p.chunks;
  const int64_t first = s.out_h * chunk / p.chunks, rows = s.out_h * (chunk + 1) / p.chunks - first;
  const float* const dy = t.dy + (image * s.out_h + first) * s.out_w * s.out_c;
  if (t.has_b) add_row_sums(dy, s.out_c, rows * s.out_w, s.out_c, p.biases + part * p.cols);
  if (!t.has_w) return;
  pad_rows(t, p, image, first, rows, own);
  float* const c = p.sums + part * p.size * p.cols;
  // Whole vectors are read, whatever lies behind a pixel's outputs; rows behind which too little lies are copied first.
  const int64_t row = s.out_w * s.out_c, unread = s.batch * s.out_h - ceil_div(p.cols - s.out_c, row) - (image * s.out_h + first);
  const int64_t safe = std::max<int64_t>(0, std::min(rows, unread));
  if (safe) add_products(p, own, dy, safe, s.out_c, c);
  float* const made = own + p.rows_under(rows) * p.width;
  for (int64_t r = safe; r < rows; ++r) {
    for (int64_t i = 0; i < s.out_w; ++i)
      each_vector(s.out_c, [&](int64_t j, auto lanes) { store(made + i * p.cols + j, load_some(dy + r * row + i * s.out_c + j, lanes)); });
    add_products(p, own + r * s.stride_h * p.width, made, 1, p.cols, c);
  }
}

}  // namespace

bool suits_outs(const ct_conv_grad_w_args& t) {
  const ct_conv_shape& s = t.shape;
  const bool few = s.in_c > 0 && s.in_c <= kMostChannels && s.out_c >= kFewestOuts && s.out_c <= kMostOuts;
  return few && has_outputs(s) && s.groups == 1 && !t.bf16;
}

int64_t outs_scratch(const ct_conv_grad_w_args& t, int workers) { return Plan(t, nullptr, workers).used; }

void run_outs(Context& context, const ct_conv_grad_w_args& t) {
  const ct_conv_shape& s = t.shape;
  const Plan p(t, context.scratch(), context.workers());
  const double nanoseconds = double(out_pixels(s)) * p.cols * (p.size / 60.0 + 0.1);
  context.parallel(p.parts, nanoseconds, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      std::fill_n(p.sums + part * p.size * p.cols, p.size * p.cols, 0.0f);
      std::fill_n(p.biases + part * p.cols, p.cols, 0.0f);
      const int64_t units = s.batch * p.chunks;
      for (int64_t unit = units * part / p.parts; unit < units * (part + 1) / p.parts; ++unit) add_chunk(t, p, unit, part, p.mine + worker * p.room);
    }
  });
  if (t.has_b) {
    add_parts(p.biases, p.parts, p.cols);
    apply_update(t.b, 0, p.biases, s.out_c);
  }
  if (!t.has_w) return;
  add_parts(p.sums, p.parts, p.size * p.cols);
  transpose(p.sums, p.cols, p.size, s.out_c, p.turned, p.size);
  apply_update(t.w, 0, p.turned, p.size * s.out_c);
}

}  // namespace CT_TIER
}  // namespace ct
