// Winograd's F(4x4, 3x3): a 4x4 tile of a stride-1 3x3 convolution from 36 products instead of 144.
//
// Along one axis, with d a run of 6 inputs, g the 3 weights and y the 4 outputs: y = A^T ((G g) * (B^T d)). The polynomials
// are evaluated at 0, ±a, ±b and infinity with a = 1/sqrt 2 and b = sqrt 2, which keeps the matrices' entries small and close to
// each other: about half the error of the customary ±1 and ±2. Matrices act on both axes of a tile.
#pragma once

#include <algorithm>
#include <cstring>

#include "vectors/activation.h"
#include "conv/conv_shape.h"

namespace ct {
namespace CT_TIER {

constexpr int kTileOut = 4, kTileIn = 6, kTaps = 3;
constexpr int kPoints = kTileIn * kTileIn;
constexpr float kPointA = 0.707106781186547524f, kPointB = 1.41421356237309505f;

// h = B^T d
struct InputTransform {
  static constexpr int kFrom = kTileIn, kTo = kTileIn;
  static void run(const vf* d, vf* h) {
    const vf even_a = d[4] - 2.0f * d[2], odd_a = d[3] - 2.0f * d[1];
    const vf even_b = d[4] - 0.5f * d[2], odd_b = d[3] - 0.5f * d[1];
    h[0] = (d[0] + d[4]) - 2.5f * d[2];
    h[1] = even_a + kPointA * odd_a;
    h[2] = even_a - kPointA * odd_a;
    h[3] = even_b + kPointB * odd_b;
    h[4] = even_b - kPointB * odd_b;
    h[5] = (d[1] + d[5]) - 2.5f * d[3];
  }
};

// h = G g
struct WeightTransform {
  static constexpr int kFrom = kTaps, kTo = kTileIn;
  static void run(const vf* g, vf* h) {
    constexpr float p = -2.0f / 3, q = 1.0f / 6;
    const vf even_a = p * g[0] + (0.5f * p) * g[2], even_b = q * g[0] + (2.0f * q) * g[2];
    h[0] = g[0];
    h[1] = even_a + (p * kPointA) * g[1];
    h[2] = even_a - (p * kPointA) * g[1];
    h[3] = even_b + (q * kPointB) * g[1];
    h[4] = even_b - (q * kPointB) * g[1];
    h[5] = g[2];
  }
};

// y = A^T h
struct OutputTransform {
  static constexpr int kFrom = kTileIn, kTo = kTileOut;
  static void run(const vf* h, vf* y) {
    const vf sum_a = h[1] + h[2], difference_a = h[1] - h[2], sum_b = h[3] + h[4], difference_b = h[3] - h[4];
    y[0] = h[0] + sum_a + sum_b;
    y[1] = kPointA * difference_a + kPointB * difference_b;
    y[2] = 0.5f * sum_a + 2.0f * sum_b;
    y[3] = (0.5f * kPointA) * difference_a + (2.0f * kPointB) * difference_b + h[5];
  }
};

// T along both axes: from(row, column) gives a vector, to(row, column, vector) takes one.
template <class T, class From, class To>
inline void transform_square(From from, To to) {
  vf half[T::kFrom][T::kTo];
#pragma GCC unroll 6
  for (int j = 0; j < T::kFrom; ++j) {
    vf in[T::kFrom];
#pragma GCC unroll 6
    for (int i = 0; i < T::kFrom; ++i) in[i] = from(i, j);
    T::run(in, half[j]);
  }
#pragma GCC unroll 6
  for (int i = 0; i < T::kTo; ++i) {
    vf in[T::kFrom], out[T::kTo];
#pragma GCC unroll 6
    for (int j = 0; j < T::kFrom; ++j) in[j] = half[j][i];
    T::run(in, out);
#pragma GCC unroll 6
    for (int j = 0; j < T::kTo; ++j) to(i, j, out[j]);
  }
}

// The tiles of 4x4 outputs that cover a batch of images.
struct TileGrid {
  explicit TileGrid(const ct_conv_shape& shape)
      : s(shape), down(ceil_div(s.out_h, kTileOut)), across(ceil_div(s.out_w, kTileOut)), count(s.batch * down * across) {}

  const ct_conv_shape& s;
  int64_t down, across, count;

  struct Place {
    int64_t n, h, w;  // the tile's first output
  };
  Place at(int64_t index) const {
    return {index / (down * across), index / across % down * kTileOut, index % across * kTileOut};
  }

  // Where the Size x Size pixels from (h, w) on lie, for channel 0; those outside the image in `zeros`.
  template <int Size>
  static void pixels(const float* image, int64_t height, int64_t width, int64_t channels, int64_t h, int64_t w,
                     const float* zeros, const float** to) {
    for (int i = 0; i < Size; ++i) {
      const bool row_inside = h + i >= 0 && h + i < height;
      for (int j = 0; j < Size; ++j) {
        const bool inside = row_inside && w + j >= 0 && w + j < width;
        to[i * Size + j] = inside ? image + ((h + i) * width + w + j) * channels : zeros;
      }
    }
  }
};

// A row length, up to whole vectors, whose rows do not meet in the same cache sets.
inline int64_t spread_row(int64_t n) {
  const int64_t whole = round_up(n, W);
  return whole % 32 == 0 ? whole + 16 : whole;
}
// A distance between the points' matrices that does not make them meet either.
inline int64_t spread_point(int64_t floats) { return round_up(floats, 32) + 16; }

inline bool all_zero(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    uint32_t bits[16] = {}, some = 0;
    std::memcpy(bits, x + i, sizeof(float) * std::min<int64_t>(16, n - i));
    for (uint32_t b : bits) some |= b << 1;
    if (some) return false;
  }
  return true;
}

// The outputs (bit 6*row + column) whose whole window is 0: their sum is 0 to the bit, on which a RELU's gradient depends,
// and no difference of points.
inline uint32_t empty_outputs(const float* const* from, const float* zeros, int64_t channels) {
  const auto is_empty = [&](int p) { return from[p] == zeros || all_zero(from[p], channels); };
  // Each window has one of the four in the middle.
  constexpr int middle = 2 * kTileIn + 2;
  if (!is_empty(middle) && !is_empty(middle + 1) && !is_empty(middle + kTileIn) && !is_empty(middle + kTileIn + 1)) return 0;
  uint64_t empty = 0;
  for (int p = 0; p < kPoints; ++p) empty |= uint64_t(is_empty(p)) << p;
  const uint64_t across = empty & empty >> 1 & empty >> 2;
  return uint32_t(across & across >> kTileIn & across >> 2 * kTileIn);
}

// A tile's input at all points: channel c of point p goes to v[p*step + c]. Returns its empty outputs.
inline uint32_t input_to_points(const TileGrid& grid, const float* x, int64_t tile, const float* zeros, float* v, int64_t step) {
  const ct_conv_shape& s = grid.s;
  const TileGrid::Place at = grid.at(tile);
  const float* from[kPoints];
  grid.pixels<kTileIn>(x + at.n * s.in_h * s.in_w * s.in_c, s.in_h, s.in_w, s.in_c, at.h - s.pad_top, at.w - s.pad_left,
                       zeros, from);
  each_vector(s.in_c, [&](int64_t c, auto lanes) {
    transform_square<InputTransform>([&](int i, int j) { return load_some(from[i * kTileIn + j] + c, lanes); },
                                     [&](int i, int j, vf h) { store_some(v + (i * kTileIn + j) * step + c, h, lanes); });
  });
  return empty_outputs(from, zeros, s.in_c);
}

}  // namespace CT_TIER
}  // namespace ct
