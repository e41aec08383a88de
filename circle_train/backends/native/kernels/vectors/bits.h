// Truth values as bits: element i is bit i % 8 of byte i / 8.
#pragma once

#include <algorithm>

#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {

// Elements that are read or written at one go: whole vectors, whole bytes.
constexpr int kBitGroup = W < 8 ? 8 : W;

inline vi bit_of_lane() {
  vi bits{};
  for (int i = 0; i < W; ++i) bits[i] = 1 << i;
  return bits;
}

// Bit i: whether lane i is not 0.
inline uint32_t bits_of(vf v) {
  const vi set = v != vf{};
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)set);
#elif defined(__AVX2__)
  return uint32_t(_mm256_movemask_ps((__m256)set));
#elif defined(__SSE2__)
  return uint32_t(_mm_movemask_ps((__m128)set));
#else
  const vi bits = set & bit_of_lane();
  int32_t all = 0;
  for (int i = 0; i < W; ++i) all |= bits[i];
  return uint32_t(all);
#endif
}

// The lanes as 1 where the bits are set, else 0.
inline vf lanes_of(uint32_t word) {
  const vi set = ((int32_t(word) - vi{}) & bit_of_lane()) != vi{};
  return set ? splat(1.0f) : vf{};
}

inline void spread_bits(const uint8_t* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kBitGroup) {
    const int count = int(std::min<int64_t>(kBitGroup, n - i));
    uint32_t word = 0;
    for (int b = 0; b * 8 < count; ++b) word |= uint32_t(from[i / 8 + b]) << (8 * b);
    for (int j = 0; j < count; j += W) store_some(to + i + j, lanes_of(word >> j), std::min(W, count - j));
  }
}

// The last byte's unused bits become 0.
inline void gather_bits(const float* from, int64_t n, uint8_t* to) {
  for (int64_t i = 0; i < n; i += kBitGroup) {
    const int count = int(std::min<int64_t>(kBitGroup, n - i));
    uint32_t word = 0;
    for (int j = 0; j < count; j += W) word |= bits_of(load_some(from + i + j, std::min(W, count - j))) << j;
    for (int b = 0; b * 8 < count; ++b) to[i / 8 + b] = uint8_t(word >> (8 * b));
  }
}

}  // namespace CT_TIER
}  // namespace ct
