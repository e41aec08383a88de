#include "conv/conv_planar.h"

#include <algorithm>

#include "conv/conv_shape.h"
#include "vectors/activation.h"
#include "vectors/quads.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kMostChannels = 16;
constexpr int kOuts = 8;        // outputs summed side by side
constexpr int64_t kBand = 16;   // output rows of a unit
#if defined(__AVX512F__)
constexpr int kPixels = 2;      // vectors of pixels that share a load of weights
#else
constexpr int kPixels = 1;
#endif

// A unit's image rows are laid out by channel, with their padding; a row of outputs is `blocks` vectors of pixels.
struct Plan {
  Plan(const PlanarConv& t, char* scratch, int workers) : s(t.s) {
    blocks = ceil_div(s.out_w, W);
    width = round_up(blocks * W + s.kernel_w - 1, W);
    row = width * s.in_c;
    groups = ceil_div(s.out_c, kOuts);
    depth = s.kernel_h * s.kernel_w * s.in_c;
    bands = ceil_div(s.out_h, kBand);
    sums = t.accumulate || t.out_mask ? kBand * s.out_w * s.out_c : 0;
    Carver carver(scratch);
    weights = carver.take<float>(groups * depth * kOuts);
    own = round_up((kBand + s.kernel_h - 1) * row + sums, 1024);
    mine = carver.take<float>(own * workers);
    size = carver.used();
  }
  const ct_conv_shape& s;
  int64_t blocks, width, row, groups, depth, bands, sums, own, size;
  float *weights, *mine;
};

// Weights by group of outputs, then kernel row, channel, kernel column; outputs that there are not are zeros.
void pack_weights(const PlanarConv& t, const Plan& p) {
  const ct_conv_shape& s = p.s;
  const int64_t cells = s.kernel_h * s.kernel_w;
  float* to = p.weights;
  for (int64_t o = 0; o < p.groups * kOuts; o += kOuts)
    for (int64_t kh = 0; kh < s.kernel_h; ++kh)
      for (int64_t c = 0; c < s.in_c; ++c)
        for (int64_t kw = 0; kw < s.kernel_w; ++kw, to += kOuts)
          for (int64_t j = 0; j < kOuts; ++j) {
            const int64_t cell = kh * s.kernel_w + kw, out = o + j;
            const float* const from = t.turned ? t.w + (c * cells + cells - 1 - cell) * s.out_c + out : t.w + (out * cells + cell) * s.in_c + c;
            to[j] = out < s.out_c ? *from : 0.0f;
          }
}

// The image rows below output rows first..first+count, each channel's pixels side by side.
void spread_rows(const PlanarConv& t, const Plan& p, int64_t image, int64_t first, int64_t count, float* to) {
  const ct_conv_shape& s = p.s;
  const int64_t pixels = std::min(s.in_w, p.width - s.pad_left);
  for (int64_t r = 0; r < count + s.kernel_h - 1; ++r, to += p.row) {
    const int64_t h = first + r - s.pad_top;
    std::fill_n(to, p.row, 0.0f);
    if (h < 0 || h >= s.in_h) continue;
    const float* const from = t.x + (image * s.in_h + h) * s.in_w * s.in_c;
    int64_t c = 0;
    for (; c + kQuad <= s.in_c; c += kQuad)
      for (int64_t w = 0; w < pixels; w += W) {
        vf lines[kQuad];
        load_columns(from + w * s.in_c + c, std::min<int64_t>(W, pixels - w), s.in_c, lines);
        for (int j = 0; j < kQuad; ++j) store_some(to + (c + j) * p.width + s.pad_left + w, lines[j], int(std::min<int64_t>(W, pixels - w)));
      }
    if (s.in_c == 1) copy_floats(to + s.pad_left, from, pixels), ++c;
    for (; c < s.in_c; ++c) {
      float* const line = to + c * p.width + s.pad_left;
      for (int64_t w = 0; w < pixels; ++w) line[w] = from[w * s.in_c + c];
    }
  }
}

// Sums of kOuts outputs for N vectors of pixels, whose image rows begin at `at`.
template <int N>
inline void sum_windows(const Plan& p, const float* const (&at)[N], const float* weights, vf (&acc)[N][kOuts]) {
  const ct_conv_shape& s = p.s;
  for (int n = 0; n < N; ++n)
    for (int j = 0; j < kOuts; ++j) acc[n][j] = vf{};
  for (int64_t line = 0; line < s.kernel_h * s.in_c; ++line)
    for (int64_t kw = 0; kw < s.kernel_w; ++kw, weights += kOuts) {
      vf x[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) x[n] = load(at[n] + line * p.width + kw);
#pragma GCC unroll 8
      for (int j = 0; j < kOuts; ++j) {
        const vf w = splat(weights[j]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) acc[n][j] += x[n] * w;
      }
    }
}

// A group's outputs of one vector of pixels, to where pixels lie side by side.
void put_pixels(const PlanarConv& t, const Clamp& act, vf (&sums)[kOuts], int64_t o, int64_t pixels, float* y) {
  const int64_t outs = std::min<int64_t>(kOuts, t.s.out_c - o), step = t.s.out_c;
  for (int64_t j = 0; j < outs; ++j) {
    if (t.b) sums[j] += splat(t.b[o + j]);
    if (!t.accumulate && !t.out_mask) sums[j] = activate(sums[j], act);
  }
  int64_t j = 0;
  for (; j + kQuad <= outs; j += kQuad) {
    vf some[kQuad] = {sums[j], sums[j + 1], sums[j + 2], sums[j + 3]};
    store_columns(some, pixels, y + j, step);
  }
  for (; j < outs; ++j) {
    float line[W];
    store(line, sums[j]);
    for (int64_t i = 0; i < pixels; ++i) y[i * step + j] = line[i];
  }
}

// A vector of pixels: where its image begins, where its outputs go, and how many there are.
struct Pixels {
  const float* from;
  float* to;
  int64_t count;
};

template <int N>
void make_pixels(const PlanarConv& t, const Plan& p, const Pixels (&pixels)[N], const Clamp& act) {
  const float* at[N];
  for (int n = 0; n < N; ++n) at[n] = pixels[n].from;
  for (int64_t g = 0; g < p.groups; ++g) {
    vf acc[N][kOuts];
    sum_windows<N>(p, at, p.weights + g * p.depth * kOuts, acc);
    for (int n = 0; n < N; ++n) put_pixels(t, act, acc[n], g * kOuts, pixels[n].count, pixels[n].to + g * kOuts);
  }
}

// The vectors of `count` rows, as many at a time as share their weights; y's rows are `y_row` floats from each other.
void make_rows(const PlanarConv& t, const Plan& p, const float* image, int64_t count, const Clamp& act, float* y, int64_t y_row) {
  Pixels some[kPixels];
  int waiting = 0;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t w = 0; w < p.s.out_w; w += W) {
      some[waiting++] = {image + r * p.row + w, y + r * y_row + w * p.s.out_c, std::min<int64_t>(W, p.s.out_w - w)};
      if (waiting < kPixels) continue;
      make_pixels<kPixels>(t, p, some, act);
      waiting = 0;
    }
  if (waiting) make_pixels<1>(t, p, {some[0]}, act);
}

// What is asked for besides sums, on a whole row.
void finish_row(const PlanarConv& t, const float* sums, int64_t count, int64_t at) {
  const Clamp mask = clamp_of(t.out_mask_act);
  each_vector(count, [&](int64_t i, auto lanes) {
    vf v = load_some(sums + i, lanes);
    if (t.accumulate) v += load_some(t.y + at + i, lanes);
    if (t.out_mask) v = masked(v, load_some(t.out_mask + at + i, lanes), mask);
    store_some(t.y + at + i, v, lanes);
  });
}

void make_band(const PlanarConv& t, const Plan& p, int64_t unit, float* own) {
  const int64_t image = unit / p.bands, first = unit % p.bands * kBand, count = std::min(kBand, p.s.out_h - first);
  const int64_t row = p.s.out_w * p.s.out_c, begin = (image * p.s.out_h + first) * row;
  const Clamp act = clamp_of(unbent(t.act));
  spread_rows(t, p, image, first, count, own);
  if (!p.sums) {
    make_rows(t, p, own, count, act, t.y + begin, row);
    if (is_curve(t.act)) bend(t.act, t.y + begin, 1, count * row, 0);
    return;
  }
  float* const sums = own + (kBand + p.s.kernel_h - 1) * p.row;
  make_rows(t, p, own, count, act, sums, row);
  for (int64_t r = 0; r < count; ++r) finish_row(t, sums + r * row, row, begin + r * row);
}

}  // namespace

bool suits_planar(const ct_conv_shape& s) {
  const bool plain = s.groups == 1 && s.stride_h == 1 && s.stride_w == 1 && s.dilation_h == 1 && s.dilation_w == 1;
  const bool few = s.in_c <= kMostChannels && s.out_c <= kMostChannels && (s.out_c % W != 0 || s.in_c > CT_NARROW_CHANNELS);
  return plain && few && s.in_c > 0 && s.kernel_w > 1 && s.pad_left >= 0 && s.pad_left < s.kernel_w && s.out_w * 4 >= W * 3;
}

int64_t planar_scratch(const PlanarConv& t, int workers) { return Plan(t, nullptr, workers).size; }

void run_planar(Context& context, const PlanarConv& t) {
  const Plan p(t, context.scratch(), context.workers());
  pack_weights(t, p);
  const double nanoseconds = double(out_pixels(t.s)) * t.s.out_c * p.depth / 40;
  context.parallel(t.s.batch * p.bands, nanoseconds, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) make_band(t, p, unit, p.mine + worker * p.own);
  });
}

}  // namespace CT_TIER
}  // namespace ct
