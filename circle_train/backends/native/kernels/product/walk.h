// Sums over the pixels of two images that are walked side by side: c(r, j) += sum of a(pixel, r) b(pixel, j).
#pragma once

#include <utility>

#include "product/tile.h"

namespace ct {
namespace CT_TIER {

// How many pixels, and how those of either image follow each other.
struct Walk {
  int64_t rows, cols;
  int64_t a_row, a_col;
  int64_t b_row, b_col;
};

// A pixel's products are added to sums of its own among so many, where a sum would wait for the one before.
constexpr int walk_sums(int tile) { return tile >= kTileRows / 2 ? 1 : tile >= 3 ? 2 : 4; }

template <int MR, int NV>
inline void add_pixel(const float* a, const float* b, vf (&acc)[MR][NV]) {
  vf bv[NV];
#pragma GCC unroll 2
  for (int v = 0; v < NV; ++v) bv[v] = load(b + v * W);
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
    const vf av = splat(a[r]);
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[r][v] += av * bv[v];
  }
}

template <int MR, int NV>
void add_walk(const float* a, const float* b, const Walk& walk, float* c, int64_t c_row) {
  constexpr int kSums = walk_sums(MR * NV);
  vf acc[kSums][MR][NV];
  for (int p = 0; p < kSums; ++p)
    for (int r = 0; r < MR; ++r)
      for (int v = 0; v < NV; ++v) acc[p][r][v] = vf{};
  for (int64_t h = 0; h < walk.rows; ++h, a += walk.a_row, b += walk.b_row) {
    const float *at = a, *bt = b;
    int64_t w = 0;
    for (; w + kSums <= walk.cols; w += kSums) {
#pragma GCC unroll 4
      for (int p = 0; p < kSums; ++p, at += walk.a_col, bt += walk.b_col) add_pixel<MR, NV>(at, bt, acc[p]);
    }
    for (; w < walk.cols; ++w, at += walk.a_col, bt += walk.b_col) add_pixel<MR, NV>(at, bt, acc[0]);
  }
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      vf total = acc[0][r][v];
#pragma GCC unroll 4
      for (int p = 1; p < kSums; ++p) total += acc[p][r][v];
      store(c + r * c_row + v * W, load(c + r * c_row + v * W) + total);
    }
  }
}

using WalkTile = void (*)(const float*, const float*, const Walk&, float*, int64_t);
struct WalkTiles {
  WalkTile of[kTileVectors][kTileRows];
};
template <int... R>
constexpr WalkTiles all_walks(std::integer_sequence<int, R...>) {
  return WalkTiles{{{add_walk<R + 1, 1>...}, {add_walk<R + 1, 2>...}}};
}

// rows 1..kTileRows, vectors 1..kTileVectors
inline WalkTile walk_tile(int rows, int vectors) {
  static constexpr WalkTiles tiles = all_walks(std::make_integer_sequence<int, kTileRows>());
  return tiles.of[vectors - 1][rows - 1];
}

// parts[0] += the others, in order
inline void add_parts(float* parts, int64_t count, int64_t n) {
  for (int64_t p = 1; p < count; ++p)
    each_vector(n, [&](int64_t i, auto lanes) {
      store_some(parts + i, load_some(parts + i, lanes) + load_some(parts + p * n + i, lanes), lanes);
    });
}

}  // namespace CT_TIER
}  // namespace ct
