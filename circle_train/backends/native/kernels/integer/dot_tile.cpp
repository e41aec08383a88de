#include "integer/dot_tile.h"

#include <utility>

#include "run/processor.h"
#include "vectors/simd.h"

#if defined(__aarch64__) && (!defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD))
#define CT_DOTPROD  // the compiler knows the instruction, whatever it compiles for
#endif

namespace ct {
namespace CT_TIER {
namespace {

constexpr int P = CT_INT_PANEL;

#if defined(__AVX512F__)
inline int four_at(const char* p) {
  int four;
  std::memcpy(&four, p, sizeof(four));
  return four;
}

// One pointer for three rows keeps all addresses in registers.
template <int MR, int NP>
__attribute__((target("avx512vnni"))) void by_instruction(const DotTile& t) {
  __m512i acc[MR][NP];
#pragma GCC unroll 14
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < NP; ++p) acc[r][p] = _mm512_setzero_si512();
  constexpr int kPointers = (MR + 2) / 3;
  const int8_t* w = t.w;
  const int64_t x_step = t.x_step, w_panel = t.w_panel, fours = t.fours;
  for (int64_t run = 0; run < t.run_count; ++run) {
    const char* row[kPointers];
#pragma GCC unroll 5
    for (int p = 0; p < kPointers; ++p) row[p] = t.x + t.runs[run] + 3 * p * x_step;
    for (int64_t i = 0; i < fours; ++i, w += 4 * P) {
      __m512i wv[NP];
#pragma GCC unroll 4
      for (int p = 0; p < NP; ++p) wv[p] = _mm512_loadu_si512(w + p * w_panel);
#pragma GCC unroll 14
      for (int r = 0; r < MR; ++r) {
        const __m512i xv = _mm512_set1_epi32(four_at(row[r / 3] + (r % 3) * x_step));
#pragma GCC unroll 4
        for (int p = 0; p < NP; ++p) acc[r][p] = _mm512_dpbusd_epi32(acc[r][p], xv, wv[p]);
      }
#pragma GCC unroll 5
      for (int p = 0; p < kPointers; ++p) row[p] += 4;
    }
  }
#pragma GCC unroll 14
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < NP; ++p) _mm512_storeu_si512(t.sums + (r * NP + p) * P, acc[r][p]);
}

template <int NP, int... R>
constexpr void name_rows(DotTiles& tiles, std::integer_sequence<int, R...>) {
  tiles.rows[NP - 1] = sizeof...(R);
  ((tiles.of[NP - 1][R] = by_instruction<R + 1, NP>), ...);
}

constexpr DotTiles instruction_tiles() {
  DotTiles tiles{1, kDotPanels, {}, {}};
  name_rows<1>(tiles, std::make_integer_sequence<int, 14>());
  name_rows<2>(tiles, std::make_integer_sequence<int, 12>());
  name_rows<3>(tiles, std::make_integer_sequence<int, 8>());
  name_rows<4>(tiles, std::make_integer_sequence<int, 6>());
  return tiles;
}
constexpr DotTiles by_its_own = instruction_tiles();

// Cells and weights as int16: a channel's four products are two sums of 32 bits side by side, added at the end.
template <int MR>
__attribute__((target("avx512vnni"))) void shorts_by_instruction(const DotTile& t) {
  __m512i acc[MR][2];
#pragma GCC unroll 8
  for (int r = 0; r < MR; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_si512();
  constexpr int kPointers = (MR + 2) / 3;
  const int8_t* w = t.w;
  const int64_t x_step = t.x_step, fours = t.fours;
  for (int64_t run = 0; run < t.run_count; ++run) {
    const char* row[kPointers];
#pragma GCC unroll 3
    for (int p = 0; p < kPointers; ++p) row[p] = t.x + t.runs[run] + 3 * p * x_step;
    for (int64_t i = 0; i < fours; ++i, w += 4 * P) {
      const __m512i low = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
      const __m512i high = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32)));
#pragma GCC unroll 8
      for (int r = 0; r < MR; ++r) {
        int64_t four;
        std::memcpy(&four, row[r / 3] + (r % 3) * x_step, sizeof(four));
        const __m512i xv = _mm512_set1_epi64(four);
        acc[r][0] = _mm512_dpwssd_epi32(acc[r][0], xv, low), acc[r][1] = _mm512_dpwssd_epi32(acc[r][1], xv, high);
      }
#pragma GCC unroll 3
      for (int p = 0; p < kPointers; ++p) row[p] += 8;
    }
  }
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
#pragma GCC unroll 8
  for (int r = 0; r < MR; ++r) {
    const __m512i first = _mm512_permutex2var_epi32(acc[r][0], even, acc[r][1]);
    _mm512_storeu_si512(t.sums + r * P, _mm512_add_epi32(first, _mm512_permutex2var_epi32(acc[r][0], odd, acc[r][1])));
  }
}

template <int... R>
constexpr DotTiles named(std::integer_sequence<int, R...>) {
  return {2, 1, {sizeof...(R)}, {{shorts_by_instruction<R + 1>...}}};
}
constexpr DotTiles shorts_by_its_own = named(std::make_integer_sequence<int, 8>());
#endif

#if defined(CT_DOTPROD)
// Arm's instruction multiplies signed by signed: cells less 128, and what the weights make of that is added again.
template <int MR>
__attribute__((target("arch=armv8.2-a+dotprod"))) void by_instruction(const DotTile& t) {
  int32x4_t acc[MR][4], less[4];
  for (int q = 0; q < 4; ++q) {
    less[q] = vdupq_n_s32(0);
    for (int r = 0; r < MR; ++r) acc[r][q] = vdupq_n_s32(0);
  }
  const int8_t* w = t.w;
  const int8x16_t ones = vdupq_n_s8(1);
  for (int64_t run = 0; run < t.run_count; ++run) {
    const char* const x = t.x + t.runs[run];
    for (int64_t i = 0; i < t.fours; ++i, w += 4 * P) {
      int8x16_t wv[4];
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        wv[q] = vld1q_s8(w + 16 * q);
        less[q] = vdotq_s32(less[q], wv[q], ones);
      }
#pragma GCC unroll 5
      for (int r = 0; r < MR; ++r) {
        int32_t four;
        std::memcpy(&four, x + r * t.x_step + i * 4, sizeof(four));
        const int8x16_t xv = vreinterpretq_s8_s32(vdupq_n_s32(four ^ int32_t(0x80808080)));
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) acc[r][q] = vdotq_s32(acc[r][q], wv[q], xv);
      }
    }
  }
  for (int r = 0; r < MR; ++r)
    for (int q = 0; q < 4; ++q) vst1q_s32(t.sums + r * P + 4 * q, vaddq_s32(acc[r][q], vshlq_n_s32(less[q], 7)));
}
constexpr DotTiles by_its_own = {
    1, 1, {5}, {{by_instruction<1>, by_instruction<2>, by_instruction<3>, by_instruction<4>, by_instruction<5>}}};
#endif

#if defined(__AVX2__)
// Cells and weights as int16: four of a channel in one half of 128 bits, their products added in pairs, the pairs at the end.
template <int MR>
void in_pairs(const DotTile& t) {
  __m256i acc[MR][4];
#pragma GCC unroll 2
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) acc[r][q] = _mm256_setzero_si256();
  const int8_t* w = t.w;
  for (int64_t run = 0; run < t.run_count; ++run) {
    const char* const x = t.x + t.runs[run];
    for (int64_t i = 0; i < t.fours; ++i, w += 4 * P)
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const __m256i wv = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 16 * q)));
#pragma GCC unroll 2
        for (int r = 0; r < MR; ++r) {
          int64_t four;
          std::memcpy(&four, x + r * t.x_step + i * 8, sizeof(four));
          acc[r][q] = _mm256_add_epi32(acc[r][q], _mm256_madd_epi16(_mm256_set1_epi64x(four), wv));
        }
      }
  }
  for (int r = 0; r < MR; ++r)
    for (int q = 0; q < 4; q += 2) {
      const __m256i sums = _mm256_permute4x64_epi64(_mm256_hadd_epi32(acc[r][q], acc[r][q + 1]), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.sums + r * P + q * 4), sums);
    }
}
constexpr DotTiles by_others = {2, 1, {2}, {{in_pairs<1>, in_pairs<2>}}};
#else
void one_by_one(const DotTile& t) {
  int32_t sums[P] = {};
  const int8_t* w = t.w;
  for (int64_t run = 0; run < t.run_count; ++run) {
    const char* x = t.x + t.runs[run];
    for (int64_t i = 0; i < t.fours; ++i, w += 4 * P, x += 8) {
      int16_t four[4];
      std::memcpy(four, x, sizeof(four));
      for (int o = 0; o < P; ++o)
        sums[o] += four[0] * w[4 * o] + four[1] * w[4 * o + 1] + four[2] * w[4 * o + 2] + four[3] * w[4 * o + 3];
    }
  }
  std::memcpy(t.sums, sums, sizeof(sums));
}
constexpr DotTiles by_others = {2, 1, {1}, {{one_by_one}}};
#endif

}  // namespace

const DotTiles& dot_tiles() {
#if defined(__AVX512F__)
  if (processor().avx512_vnni) return by_its_own;
#elif defined(CT_DOTPROD)
  if (processor().neon_dot) return by_its_own;
#endif
  return by_others;
}

const DotTiles& short_tiles() {
#if defined(__AVX512F__)
  if (processor().avx512_vnni) return shorts_by_its_own;
#endif
  return by_others;
}

}  // namespace CT_TIER
}  // namespace ct
