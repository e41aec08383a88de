#include "product/bf16_tile.h"

#include <utility>

#include "vectors/bf16.h"
#include "product/tile.h"
#include "run/processor.h"

namespace ct {
namespace CT_TIER {
namespace {

inline uint32_t pair_at(const uint16_t* p) {
  uint32_t pair;
  std::memcpy(&pair, p, sizeof(pair));
  return pair;
}

// sum + high*high, then + low*low: the order in which the instruction adds; products of bfloat16s are exact.
template <int MR, int NV>
void emulated(const PairTile& t) {
  vf acc[MR][NV];
  for (int r = 0; r < MR; ++r)
    for (int v = 0; v < NV; ++v) acc[r][v] = t.load_c ? load(t.c + r * t.c_row + v * W) : vf{};
  for (int64_t p = 0; p < t.pairs; ++p) {
    vf low[NV], high[NV];
    for (int v = 0; v < NV; ++v) {
      const vu pair = (vu)load(reinterpret_cast<const float*>(t.b + p * t.b_row + v * W));
      low[v] = (vf)(pair << 16), high[v] = (vf)(pair & 0xffff0000u);
    }
    for (int r = 0; r < MR; ++r) {
      const vu pair = pair_at(t.a + r * t.a_row + p * t.a_step) + vu{};
      const vf a_low = (vf)(pair << 16), a_high = (vf)(pair & 0xffff0000u);
      for (int v = 0; v < NV; ++v) {
        acc[r][v] += a_high * high[v];
        acc[r][v] += a_low * low[v];
      }
    }
  }
  for (int r = 0; r < MR; ++r)
    for (int v = 0; v < NV; ++v) store(t.c + r * t.c_row + v * W, acc[r][v]);
}

#if defined(__AVX512F__)
template <int MR, int NV>
__attribute__((target("avx512bf16"))) void by_instruction(const PairTile& t) {
  __m512 acc[MR][NV];
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[r][v] = t.load_c ? _mm512_loadu_ps(t.c + r * t.c_row + v * W) : _mm512_setzero_ps();
  // One pointer for three rows keeps all addresses in registers.
  constexpr int P = (MR + 2) / 3;
  const uint16_t* row[P];
  for (int p = 0; p < P; ++p) row[p] = t.a + 3 * p * t.a_row;
  const uint32_t* b = t.b;
  const int64_t a_row = t.a_row, a_step = t.a_step, b_row = t.b_row;
  for (int64_t i = 0; i < t.pairs; ++i) {
    __m512bh bv[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) bv[v] = (__m512bh)_mm512_loadu_ps(b + v * W);
#pragma GCC unroll 12
    for (int r = 0; r < MR; ++r) {
      const __m512bh av = (__m512bh)_mm512_set1_epi32(int(pair_at(row[r / 3] + (r % 3) * a_row)));
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], av, bv[v]);
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) row[p] += a_step;
    b += b_row;
  }
#pragma GCC unroll 12
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) _mm512_storeu_ps(t.c + r * t.c_row + v * W, acc[r][v]);
}
#endif

struct Tiles {
  PairTileFunction of[kTileVectors][kTileRows];
};

template <int... R>
constexpr Tiles emulated_tiles(std::integer_sequence<int, R...>) {
  return Tiles{{{emulated<R + 1, 1>...}, {emulated<R + 1, 2>...}}};
}
constexpr Tiles by_others = emulated_tiles(std::make_integer_sequence<int, kTileRows>());

#if defined(__AVX512F__)
template <int... R>
constexpr Tiles instruction_tiles(std::integer_sequence<int, R...>) {
  return Tiles{{{by_instruction<R + 1, 1>...}, {by_instruction<R + 1, 2>...}}};
}
constexpr Tiles by_its_own = instruction_tiles(std::make_integer_sequence<int, kTileRows>());
#endif

}  // namespace

PairTileFunction pair_tile_for(int rows, int vectors) {
#if defined(__AVX512F__)
  if (processor().avx512_bf16) return by_its_own.of[vectors - 1][rows - 1];
#endif
  return by_others.of[vectors - 1][rows - 1];
}

void pair_rows(const float* low, const float* high, float scale, int64_t n, uint32_t* dst) {
  each_vector(n, [&](int64_t i, auto lanes) {
    const vu a = rounded_halves(load_some(low + i, lanes) * scale);
    const vu b = high ? rounded_bits(load_some(high + i, lanes) * scale) : vu{};
    store_some(reinterpret_cast<float*>(dst + i), (vf)(a | b), lanes);
  });
}

void pair_rows(const uint16_t* low, const uint16_t* high, int64_t n, uint32_t* dst) {
  each_vector(n, [&](int64_t i, auto lanes) {
    const vu a = (vu)load_bf16(low + i, lanes);
    const vu b = high ? (vu)load_bf16(high + i, lanes) : vu{};
    store_some(reinterpret_cast<float*>(dst + i), (vf)((a >> 16) | b), lanes);
  });
}

void pair_panels(const float* panels, int64_t k, int64_t rows, uint32_t* dst) {
  for (int64_t i = 0; i < rows; i += kTileRows, panels += k * kTileRows, dst += pairs_of(k) * kTileRows)
    for (int64_t p = 0; p < pairs_of(k); ++p) {
      const float* const low = panels + 2 * p * kTileRows;
      pair_rows(low, 2 * p + 1 < k ? low + kTileRows : nullptr, 1, kTileRows, dst + p * kTileRows);
    }
}

void round_row(const float* src, float scale, int64_t n, uint16_t* dst) {
  each_vector(n, [&](int64_t i, auto lanes) { store_bf16(dst + i, load_some(src + i, lanes) * scale, lanes); });
  if (n % 2) dst[n] = 0;
}

}  // namespace CT_TIER
}  // namespace ct
