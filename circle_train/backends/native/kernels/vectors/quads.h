// Four vectors as matrices of 4 x 4, one in every four lanes.
#pragma once

#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {

constexpr int kQuad = 4;

// In every group of four lanes: lane i of vector j becomes lane j of vector i.
inline void transpose_quads(vf (&v)[kQuad]) {
#if defined(__AVX512F__)
  const __m512 a = _mm512_unpacklo_ps((__m512)v[0], (__m512)v[1]), b = _mm512_unpackhi_ps((__m512)v[0], (__m512)v[1]);
  const __m512 c = _mm512_unpacklo_ps((__m512)v[2], (__m512)v[3]), d = _mm512_unpackhi_ps((__m512)v[2], (__m512)v[3]);
  v[0] = (vf)_mm512_shuffle_ps(a, c, 0x44), v[1] = (vf)_mm512_shuffle_ps(a, c, 0xee);
  v[2] = (vf)_mm512_shuffle_ps(b, d, 0x44), v[3] = (vf)_mm512_shuffle_ps(b, d, 0xee);
#elif defined(__AVX2__)
  const __m256 a = _mm256_unpacklo_ps((__m256)v[0], (__m256)v[1]), b = _mm256_unpackhi_ps((__m256)v[0], (__m256)v[1]);
  const __m256 c = _mm256_unpacklo_ps((__m256)v[2], (__m256)v[3]), d = _mm256_unpackhi_ps((__m256)v[2], (__m256)v[3]);
  v[0] = (vf)_mm256_shuffle_ps(a, c, 0x44), v[1] = (vf)_mm256_shuffle_ps(a, c, 0xee);
  v[2] = (vf)_mm256_shuffle_ps(b, d, 0x44), v[3] = (vf)_mm256_shuffle_ps(b, d, 0xee);
#else
  for (int i = 0; i < kQuad; ++i)
    for (int j = i + 1; j < kQuad; ++j) {
      const float other = v[i][j];
      v[i][j] = v[j][i], v[j][i] = other;
    }
#endif
}

// Quad q of the vector.
template <int Q>
inline void store_quad(float* to, vf v) {
#if defined(__AVX512F__)
  _mm_storeu_ps(to, _mm512_extractf32x4_ps((__m512)v, Q));
#elif defined(__AVX2__)
  _mm_storeu_ps(to, _mm256_extractf128_ps((__m256)v, Q));
#else
  store(to, v);
#endif
}

template <int Q>
inline void store_quads(const vf (&v)[kQuad], int64_t count, float* to, int64_t step) {
  if constexpr (Q < W / kQuad) {
    if (count >= kQuad) {
#pragma GCC unroll 4
      for (int i = 0; i < kQuad; ++i) store_quad<Q>(to + i * step, v[i]);
      return store_quads<Q + 1>(v, count - kQuad, to + kQuad * step, step);
    }
#pragma GCC unroll 3
    for (int i = 0; i < kQuad - 1; ++i)
      if (i < count) store_quad<Q>(to + i * step, v[i]);
  }
}

// to[i * step + j] = v[j][i] for the first `count` lanes i.
inline void store_columns(vf (&v)[kQuad], int64_t count, float* to, int64_t step) {
  transpose_quads(v);
  store_quads<0>(v, count, to, step);
}

// v[j][i] = from[i * step + j] for the first `count` lanes i, else 0.
inline void load_columns(const float* from, int64_t count, int64_t step, vf (&v)[kQuad]) {
  float lines[kQuad][W] = {};
  for (int64_t i = 0; i < count; ++i, from += step) std::memcpy(lines[i % kQuad] + i / kQuad * kQuad, from, kQuad * sizeof(float));
  for (int j = 0; j < kQuad; ++j) v[j] = load(lines[j]);
  transpose_quads(v);
}

}  // namespace CT_TIER
}  // namespace ct
