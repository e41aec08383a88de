#include "depthwise/depthwise_row.h"

#include <algorithm>

namespace ct {
namespace CT_TIER {

const float* RowReader::row(int64_t n, int64_t h, int64_t slot) const {
  if (h < 0 || h >= height) return nullptr;
  const int64_t at = (n * height + h) * width * channels;
  if (plain()) return x + at;
  if (slots > 0) {
    slot = h % slots;
    const int64_t number = n * height + h + 1;
    if (held[slot] == number) return scratch + slot * floats_per_row();
    held[slot] = number;
  }
  float* const made = scratch + slot * floats_per_row();
  const int64_t size = width * channels;
  if (bf16) {
    const uint16_t* const from = reinterpret_cast<const uint16_t*>(x) + at;
    each_vector(size, [&](int64_t i, auto lanes) { store_some(made + i, load_bf16(from + i, lanes), lanes); });
    return made;
  }
  for (int64_t i = 0; i < size; ++i) std::fill(made + i * repeat, made + (i + 1) * repeat, x[at + i]);
  return made;
}

namespace {
// The outputs whose whole window lies inside the row.
struct Interior {
  int64_t begin, end;
  explicit Interior(const RowWindow& w) {
    begin = std::min(w.out_w, std::max<int64_t>(0, ceil_div(w.pad, w.stride)));
    const int64_t room = w.in_w - 1 - (w.kernel_w - 1) * w.dilation + w.pad;
    end = room < 0 ? begin : std::max(begin, std::min(w.out_w, room / w.stride + 1));
  }
};

template <class Lanes>
inline void finish(const RowEnd& end, vf v, int64_t c, int64_t at, float* out, Lanes lanes) {
  if (end.bias) v += load_some(end.bias + c, lanes);
  if (end.add) v += load_some(end.add + at, lanes);
  if (end.accumulate) v += load_some(out + at, lanes);
  v = activate(v, end.act);
  if (end.out_mask) {
    const auto* const narrow = reinterpret_cast<const uint16_t*>(end.out_mask);
    v = masked(v, end.bf16_mask ? load_bf16(narrow + at, lanes) : load_some(end.out_mask + at, lanes), end.mask);
  }
  if (end.bf16_out) return store_bf16(reinterpret_cast<uint16_t*>(out) + at, v, lanes);
  if (end.past && lanes == W) return store_past(out + at, v);
  store_some(out + at, v, lanes);
}

// Of several outputs, a pixel from each other; apart from the sums, which are many functions.
template <class Lanes>
__attribute__((noinline)) void finish_all(const RowEnd& end, const vf* sums, int count, int64_t channels, int64_t c, int64_t at, float* out, Lanes lanes) {
  for (int t = 0; t < count; ++t, at += channels) finish(end, sums[t], c, at, out, lanes);
}

// Any window at all, one output pixel.
void pixel(const RowWindow& window, const float* const* rows, const float* w, const RowEnd& end, int64_t ow, float* out) {
  const int64_t w0 = ow * window.stride - window.pad, channels = window.channels;
  each_vector(channels, [&](int64_t c, auto lanes) {
    vf acc{};
    for (int64_t kh = 0; kh < window.kernel_h; ++kh) {
      if (!rows[kh]) continue;
      for (int64_t kw = 0; kw < window.kernel_w; ++kw) {
        const int64_t at = w0 + kw * window.dilation;
        if (at < 0 || at >= window.in_w) continue;
        acc += load_some(rows[kh] + at * channels + c, lanes) * load_some(w + (kh * window.kernel_w + kw) * channels + c, lanes);
      }
    }
    finish_all(end, &acc, 1, channels, c, ow * channels + c, out, lanes);
  });
}

// T outputs at once, windows K wide, stride S: each weight is loaded once for T outputs, each input once. Edge: columns may be
// missing on either side.
template <int K, int S, int T, bool Edge>
void together(const RowWindow& window, const float* const* rows, const float* w, const RowEnd& end, int64_t ow, float* out) {
  const int64_t channels = window.channels, column = ow * S - window.pad, first = column * channels;
  constexpr int X = (T - 1) * S + K;
  each_vector(channels, [&](int64_t c, auto lanes) {
    vf acc[T] = {};
    for (int64_t kh = 0; kh < window.kernel_h; ++kh) {
      if (!rows[kh]) continue;
      vf xs[X];
#pragma GCC unroll 16
      for (int i = 0; i < X; ++i) {
        const bool there = !Edge || (column + i >= 0 && column + i < window.in_w);
        xs[i] = there ? load_some(rows[kh] + first + i * channels + c, lanes) : vf{};
      }
#pragma GCC unroll 8
      for (int k = 0; k < K; ++k) {
        const vf wv = load_some(w + (kh * K + k) * channels + c, lanes);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) acc[t] += xs[t * S + k] * wv;
      }
    }
    finish_all(end, acc, T, channels, c, ow * channels + c, out, lanes);
  });
}

template <int K, int S, int T>
void inside_grad(const RowWindow& window, const float* const* rows, const float* dy, int64_t ow, float* dw) {
  const int64_t channels = window.channels, first = (ow * S - window.pad) * channels;
  constexpr int X = (T - 1) * S + K;
  each_vector(channels, [&](int64_t c, auto lanes) {
    vf ds[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) ds[t] = load_some(dy + (ow + t) * channels + c, lanes);
    for (int64_t kh = 0; kh < window.kernel_h; ++kh) {
      if (!rows[kh]) continue;
      vf xs[X];
#pragma GCC unroll 16
      for (int i = 0; i < X; ++i) xs[i] = load_some(rows[kh] + first + i * channels + c, lanes);
#pragma GCC unroll 8
      for (int k = 0; k < K; ++k) {
        float* const at = dw + (kh * K + k) * channels + c;
        vf acc = load_some(at, lanes);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) acc += ds[t] * xs[t * S + k];
        store_some(at, acc, lanes);
      }
    }
  });
}

void pixel_grad(const RowWindow& window, const float* const* rows, const float* dy, int64_t ow, float* dw) {
  const int64_t w0 = ow * window.stride - window.pad, channels = window.channels;
  for (int64_t kh = 0; kh < window.kernel_h; ++kh) {
    if (!rows[kh]) continue;
    for (int64_t kw = 0; kw < window.kernel_w; ++kw) {
      const int64_t x_at = w0 + kw * window.dilation;
      if (x_at < 0 || x_at >= window.in_w) continue;
      float* const to = dw + (kh * window.kernel_w + kw) * channels;
      const float* const xs = rows[kh] + x_at * channels;
      each_vector(channels, [&](int64_t c, auto lanes) {
        store_some(to + c, load_some(to + c, lanes) + load_some(dy + ow * channels + c, lanes) * load_some(xs + c, lanes), lanes);
      });
    }
  }
}

constexpr int T = 4;
using Together = void (*)(const RowWindow&, const float* const*, const float*, const RowEnd&, int64_t, float*);
using InsideGrad = void (*)(const RowWindow&, const float* const*, const float*, int64_t, float*);

// The one for these windows, of those for 3 and 5 columns with stride 1 and 2; NULL where there is none.
template <class F>
F pick(const RowWindow& w, F three, F three_by_two, F five, F five_by_two) {
  if (w.dilation != 1 || (w.kernel_w != 3 && w.kernel_w != 5)) return nullptr;
  return w.stride == 1 ? (w.kernel_w == 3 ? three : five) : w.stride == 2 ? (w.kernel_w == 3 ? three_by_two : five_by_two) : nullptr;
}
template <bool Edge>
Together together_for(const RowWindow& w) {
  return pick<Together>(w, together<3, 1, T, Edge>, together<3, 2, T, Edge>, together<5, 1, T, Edge>, together<5, 2, T, Edge>);
}
InsideGrad inside_grad_for(const RowWindow& w) {
  return pick<InsideGrad>(w, inside_grad<3, 1, T>, inside_grad<3, 2, T>, inside_grad<5, 1, T>, inside_grad<5, 2, T>);
}

constexpr int64_t kMostRows = 8;

// Whether a row is a plain 3-wide convolution, with no more than one column of its windows missing on either side.
bool is_plain3(const RowWindow& w, const RowEnd& end) {
  const bool shape = w.kernel_w == 3 && w.dilation == 1 && (w.stride == 1 || w.stride == 2) && w.channels >= W;
  const bool sides = w.in_w > 1 && w.pad >= 0 && w.pad <= 1 && (w.out_w - 1) * w.stride - w.pad + 2 <= w.in_w;
  const bool end_is_plain = !end.add && !end.accumulate && !end.bf16_out && !end.bf16_mask && !end.act.curve && !end.mask.curve;
  return shape && sides && end_is_plain && w.kernel_h <= kMostRows;
}

// The rows of a window that there are, at the first column of some outputs, and their weights.
struct Rows3 {
  int64_t count = 0;
  const float* x[kMostRows];
  const float* w[kMostRows];
};

// T outputs from `at` on, the very sums of `pixel`; Left, Right: the first, the last column of all their windows is not there.
template <int S, int T, bool Left, bool Right>
void plain3(const Rows3& rows, int64_t channels, int64_t first, const RowEnd& end, int64_t at, float* out) {
  constexpr int X = (T - 1) * S + 3;
  const vf low = splat(end.act.low), high = splat(end.act.high);
  // Where channels are no whole vectors, the last one begins earlier: it makes some of them again.
  for (int64_t next = 0, c; (c = std::min(next, channels - W)), next < channels; next += W) {
    vf acc[T] = {};
    for (int64_t kh = 0; kh < rows.count; ++kh) {
      const float* const x = rows.x[kh] + first + c;
      const float* const w = rows.w[kh] + c;
      vf xs[X], ws[3];
#pragma GCC unroll 16
      for (int i = Left; i < X - Right; ++i) xs[i] = load(x + i * channels);
#pragma GCC unroll 3
      for (int k = 0; k < 3; ++k) ws[k] = load(w + k * channels);
#pragma GCC unroll 3
      for (int k = 0; k < 3; ++k) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
          if (!(Left && t * S + k == 0) && !(Right && t * S + k == X - 1)) acc[t] += xs[t * S + k] * ws[k];
      }
    }
    if (end.bias) {
      const vf bias = load(end.bias + c);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) acc[t] += bias;
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const int64_t to = at + t * channels + c;
      vf v = at_most(at_least(acc[t], low), high);
      if (end.out_mask) v = masked_by_range(v, load(end.out_mask + to), end.mask);
      end.past ? store_past(out + to, v) : store(out + to, v);
    }
  }
}

// As many as the registers hold.
constexpr int most_outputs(int64_t stride) { return stride == 1 && W == 16 ? 2 * T : T; }

using Plain3 = void (*)(const Rows3&, int64_t, int64_t, const RowEnd&, int64_t, float*);

template <int S, int T>
Plain3 plain3_at(bool left, bool right) {
  if (left) return right ? plain3<S, T, true, true> : plain3<S, T, true, false>;
  return right ? plain3<S, T, false, true> : plain3<S, T, false, false>;
}

template <int S>
Plain3 plain3_for(int64_t outputs, bool left, bool right) {
  if constexpr (most_outputs(S) > T)
    if (outputs > T) return plain3_at<S, most_outputs(S)>(left, right);
  if (outputs == 1) return plain3_at<S, 1>(left, right);
  if (outputs == 2) return plain3_at<S, 2>(left, right);
  return outputs == 3 ? plain3_at<S, 3>(left, right) : plain3_at<S, T>(left, right);
}

void plain3_row(const RowWindow& window, const float* const* rows, const float* w, const RowEnd& end, Ahead& ahead, float* out) {
  Rows3 there;
  for (int64_t kh = 0; kh < window.kernel_h; ++kh) {
    if (!rows[kh]) continue;
    there.x[there.count] = rows[kh];
    there.w[there.count++] = w + kh * 3 * window.channels;
  }
  const int64_t most = most_outputs(window.stride);
  for (int64_t ow = 0, outputs; ow < window.out_w; ow += outputs) {
    outputs = window.out_w - ow >= most ? most : std::min<int64_t>(T, window.out_w - ow);
    const int64_t first = ow * window.stride - window.pad;
    const bool left = first < 0, right = first + (outputs - 1) * window.stride + 2 >= window.in_w;
    ahead.step();
    const Plain3 run = window.stride == 1 ? plain3_for<1>(outputs, left, right) : plain3_for<2>(outputs, left, right);
    run(there, window.channels, first * window.channels, end, ow * window.channels, out);
  }
}

}  // namespace

void depthwise_row(const RowWindow& window, const float* const* rows, const float* w, const RowEnd& end, Ahead& ahead,
                   float* out) {
  if (is_plain3(window, end)) return plain3_row(window, rows, w, end, ahead, out);
  const Interior in(window);
  const Together inside = together_for<false>(window);
  // Outputs may be made twice, but not where they are added to.
  const Together edge = window.out_w >= T && !end.accumulate ? together_for<true>(window) : nullptr;
  for (int64_t ow = 0; ow < window.out_w;) {
    const bool within = inside && ow >= in.begin && ow + T <= in.end;
    if (within || edge) {
      ahead.step();
      ow = std::min(ow, window.out_w - T) + T;
      (within ? inside : edge)(window, rows, w, end, ow - T, out);
    } else {
      pixel(window, rows, w, end, ow++, out);
    }
  }
}

void depthwise_row_grad_w(const RowWindow& window, const float* const* rows, const float* dy, Ahead& ahead, float* dw,
                          float* db) {
  const Interior in(window);
  const InsideGrad fast = inside_grad_for(window);
  for (int64_t ow = 0; ow < window.out_w && dw;) {
    if (fast && ow >= in.begin && ow + T <= in.end) {
      ahead.step();
      fast(window, rows, dy, ow, dw);
      ow += T;
    } else {
      pixel_grad(window, rows, dy, ow++, dw);
    }
  }
  if (!db) return;
  each_vector(window.channels, [&](int64_t c, auto lanes) {
    vf acc = load_some(db + c, lanes);
    for (int64_t ow = 0; ow < window.out_w; ++ow) acc += load_some(dy + ow * window.channels + c, lanes);
    store_some(db + c, acc, lanes);
  });
}

}  // namespace CT_TIER
}  // namespace ct
