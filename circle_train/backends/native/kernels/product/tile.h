// The register tile every product is made of: C(MR x NV*W) += A B over one block of k.
#pragma once

#include "vectors/activation.h"

namespace ct {
namespace CT_TIER {

// Rows and vectors of the largest tile: as many accumulators as the registers hold.
#if defined(__AVX512F__)
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif
constexpr int kTileVectors = 2;
constexpr int kTileCols = kTileVectors * W;

// What happens to a tile's sums: c = masked(clamp(sum + (load_c ? c : 0) + bias + add), y); add and y lie as c.
struct TileEnd {
  float* c;
  int64_t c_row;
  const float* bias;
  float low, high;
  bool load_c;
  bool clamp;
  bool past;  // store past the caches
  const float* add = nullptr;
  const float* y = nullptr;
  Clamp mask = {};
  int64_t tail = 0;  // columns of the last vector, where they are fewer than its lanes (only where More)
  // Asked for while summing, `ask_step` bytes (one cache line, or none) at each k.
  const char* ask = nullptr;
  int64_t ask_step = 0;
};

// What a tile does most often to its sums, without a test for each: short sums feel those.
template <int MR, int NV, bool Biased, bool Added, bool Clamped>
inline void finish(vf (&acc)[MR][NV], const TileEnd& end) {
  const vf low = splat(end.low), high = splat(end.high);
  const int64_t row = end.c_row;
  float* c = end.c;
  const float* add = end.add;
  vf bias[NV];
  if (Biased)
    for (int v = 0; v < NV; ++v) bias[v] = load(end.bias + v * W);
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      vf s = acc[r][v];
      if (Biased) s += bias[v];
      if (Added) s += load(add + v * W);
      store(c + v * W, Clamped ? at_most(at_least(s, low), high) : s);
    }
    c += row;
    if (Added) add += row;
  }
}

template <int MR, int NV, bool More>
inline bool finished(vf (&acc)[MR][NV], const TileEnd& end) {
  const bool added = More && end.add;
  if (end.load_c || end.past || (More && (end.y || end.tail)) || (!end.bias && (end.clamp || added))) return false;
  if (!end.bias) return finish<MR, NV, false, false, false>(acc, end), true;
  if (More && added) {
    end.clamp ? finish<MR, NV, true, More, true>(acc, end) : finish<MR, NV, true, More, false>(acc, end);
    return true;
  }
  end.clamp ? finish<MR, NV, true, false, true>(acc, end) : finish<MR, NV, true, false, false>(acc, end);
  return true;
}

// Everything that may happen to the sums `at` of one column vector.
template <class Lanes>
inline void finish_vector(vf s, const TileEnd& end, int64_t at, int64_t column, bool more, Lanes lanes) {
  if (end.load_c) s += load_some(end.c + at, lanes);
  if (end.bias) s += load_some(end.bias + column, lanes);
  if (more && end.add) s += load_some(end.add + at, lanes);
  if (end.clamp) s = at_most(at_least(s, splat(end.low)), splat(end.high));
  if (more && end.y) s = masked_by_range(s, load_some(end.y + at, lanes), end.mask);
  end.past && lanes == W ? store_past(end.c + at, s) : store_some(end.c + at, s, lanes);
}

// For tiles whose last vector is short.
void finish_tail(const vf* sums, int rows, int vectors, const TileEnd& end);

// More: whether `add`, `y` and `ask` are looked at; short sums feel what their tests cost.
template <int MR, int NV, bool More>
void tile(const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t b_row, int64_t k, const TileEnd& end) {
  vf acc[MR][NV];
  for (int r = 0; r < MR; ++r)
    for (int v = 0; v < NV; ++v) acc[r][v] = vf{};
  // One pointer for three rows keeps all addresses in registers.
  constexpr int P = (MR + 2) / 3;
  const float* row[P];
  for (int p = 0; p < P; ++p) row[p] = a + 3 * p * a_row;
  const char* ask = end.ask;
  for (int64_t i = 0; i < k; ++i) {
    if (More) {
      __builtin_prefetch(ask, 0, 2);
      ask += end.ask_step;
    }
    vf bv[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * W);
#pragma GCC unroll 12
    for (int r = 0; r < MR; ++r) {
      const vf av = splat(row[r / 3][(r % 3) * a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) acc[r][v] += av * bv[v];
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) row[p] += a_col;
    b += b_row;
  }
  if (finished<MR, NV, More>(acc, end)) return;
  if (More && end.tail) {
    vf sums[MR * NV];
#pragma GCC unroll 24
    for (int i = 0; i < MR * NV; ++i) sums[i] = acc[i / NV][i % NV];
    return finish_tail(sums, MR, NV, end);
  }
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) finish_vector(acc[r][v], end, r * end.c_row + v * W, v * W, More, Whole());
  }
}

using TileFunction = void (*)(const float*, int64_t, int64_t, const float*, int64_t, int64_t, const TileEnd&);

// tile_for(rows 1..kTileRows, vectors 1..kTileVectors)
TileFunction tile_for(int rows, int vectors, bool more = false);

}  // namespace CT_TIER
}  // namespace ct
