#include "windows/few_outputs.h"

#include <algorithm>

#include "conv/conv_shape.h"
#include "vectors/activation.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kMostOutputs = 3;
constexpr int64_t kLeastRun = 16, kLeastWindow = 48;  // floats: with fewer the lanes' last sum is felt
constexpr int64_t kPiece = 512;                       // pixels of a unit
constexpr int kTogether = 4;                          // windows that share a load of weights

// Some output pixels of a row, and of each kernel row of their windows the part that lies inside the image.
struct Place {
  const float* image;
  int64_t h0, first;    // the first kernel row, and where in a row of the image the part begins
  int64_t begin, count; // floats of a kernel row's weights
};

// y[p*O + o] = the window of pixel p times the weights of output o
template <int P, int O>
void dots(const ct_conv_args& t, const Place& at, float* y) {
  const ct_conv_shape& s = t.shape;
  const int64_t run = s.kernel_w * s.in_c, step = s.stride_w * s.in_c;
  vf acc[P][O] = {};
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    const int64_t h = at.h0 + kh * s.dilation_h;
    if (h < 0 || h >= s.in_h) continue;
    const float* const x = at.image + h * s.in_w * s.in_c + at.first;
    const float* const w = t.w + kh * run + at.begin;
    each_vector(at.count, [&](int64_t i, auto lanes) {
      vf wv[O];
#pragma GCC unroll 3
      for (int o = 0; o < O; ++o) wv[o] = load_some(w + o * s.kernel_h * run + i, lanes);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const vf xv = load_some(x + p * step + i, lanes);
#pragma GCC unroll 3
        for (int o = 0; o < O; ++o) acc[p][o] += xv * wv[o];
      }
    });
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 3
    for (int o = 0; o < O; ++o) y[p * O + o] = sum(acc[p][o]) + (t.b ? t.b[o] : 0.0f);
}

template <int O>
void make_piece(const ct_conv_args& t, int64_t row, int64_t begin, int64_t end) {
  const ct_conv_shape& s = t.shape;
  const float* const image = t.x + row / s.out_h * s.in_h * s.in_w * s.in_c;
  float* const y = t.y + row * s.out_w * O;
  for (int64_t ow = begin; ow < end;) {
    const int64_t w0 = ow * s.stride_w - s.pad_left;
    const int64_t low = std::clamp<int64_t>(-w0, 0, s.kernel_w), high = std::clamp<int64_t>(s.in_w - w0, low, s.kernel_w);
    const Place at{image, row % s.out_h * s.stride_h - s.pad_top, (w0 + low) * s.in_c, low * s.in_c, (high - low) * s.in_c};
    const bool whole = w0 >= 0 && w0 + (kTogether - 1) * s.stride_w + s.kernel_w <= s.in_w && ow + kTogether <= end;
    whole ? dots<kTogether, O>(t, at, y + ow * O) : dots<1, O>(t, at, y + ow * O);
    ow += whole ? kTogether : 1;
  }
  const int64_t from = (row * s.out_w + begin) * O, count = (end - begin) * O;
  const Clamp act = clamp_of(unbent(t.act));
  if (t.add || unbent(t.act) != CT_ACT_NONE)
    each_vector(count, [&](int64_t i, auto lanes) {
      const vf v = load_some(t.y + from + i, lanes);
      store_some(t.y + from + i, activate(t.add ? v + load_some(t.add + from + i, lanes) : v, act), lanes);
    });
  if (is_curve(t.act)) bend(t.act, t.y + from, 1, count, 0);
}

}  // namespace

bool has_few_outputs(const ct_conv_args& t) {
  const ct_conv_shape& s = t.shape;
  const int64_t run = s.kernel_w * s.in_c;
  return s.groups == 1 && s.dilation_w == 1 && s.out_c <= kMostOutputs && run >= kLeastRun && s.kernel_h * run >= kLeastWindow && !t.bf16;
}

void run_few_outputs(Context& context, const ct_conv_args& t) {
  const ct_conv_shape& s = t.shape;
  const int64_t pieces = ceil_div(s.out_w, kPiece);
  const double nanoseconds = double(out_pixels(s)) * s.out_c * (s.kernel_h * s.kernel_w * s.in_c / 40.0 + 3);
  const auto make = s.out_c == 1 ? make_piece<1> : s.out_c == 2 ? make_piece<2> : make_piece<3>;
  context.parallel(s.batch * s.out_h * pieces, nanoseconds, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * kPiece;
      make(t, i / pieces, first, std::min(first + kPiece, s.out_w));
    }
  });
}

}  // namespace CT_TIER
}  // namespace ct
