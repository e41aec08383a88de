// One vector type per tier and the few operations compilers' vector extensions lack. CT_TIER names the namespace.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float vf __attribute__((vector_size(W * 4), may_alias));
typedef float vf_loose __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(W * 4), may_alias));

inline vf load(const float* p) { return *reinterpret_cast<const vf_loose*>(p); }
inline void store(float* p, vf v) { *reinterpret_cast<vf_loose*>(p) = v; }
// Past the caches: for results too large to stay in them. p is aligned to the vector.
inline void store_past(float* p, vf v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX2__)
  _mm256_stream_ps(p, (__m256)v);
#else
  store(p, v);
#endif
}
inline void finish_stores_past() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}
inline vf splat(float s) { return s - vf{}; }

// The first n < W lanes; the others read as 0 and are not written.
inline vf load_n(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return (vf)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
#else
  vf v{};
  std::memcpy(&v, p, size_t(n) * sizeof(float));
  return v;
#endif
}
inline void store_n(float* p, vf v, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)v);
#else
  std::memcpy(p, &v, size_t(n) * sizeof(float));
#endif
}

// NaN passes through from `a`.
inline vf at_least(vf a, vf low) { return low > a ? low : a; }
inline vf at_most(vf a, vf high) { return high < a ? high : a; }
// NaN passes through from either.
inline vf maximum(vf a, vf b) { return ((a > b) | (a != a)) ? a : b; }
inline vf minimum(vf a, vf b) { return ((a < b) | (a != a)) ? a : b; }
inline vf abs(vf a) { return (vf)((vi)a & 0x7fffffff); }

inline vf sqrt(vf a) {
#if defined(__AVX512F__)
  return (vf)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__)
  return (vf)_mm256_sqrt_ps((__m256)a);
#elif defined(__SSE2__)
  return (vf)_mm_sqrt_ps((__m128)a);
#elif defined(__aarch64__)
  return (vf)vsqrtq_f32((float32x4_t)a);
#else
  for (int i = 0; i < W; ++i) a[i] = std::sqrt(a[i]);
  return a;
#endif
}

inline float sum(vf v) {
#if defined(__AVX512F__)
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#elif defined(__AVX2__)
  const __m256 half = (__m256)v;
#endif
#if defined(__AVX2__)
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  q = _mm_add_ss(q, _mm_shuffle_ps(q, q, 1));
  return _mm_cvtss_f32(q);
#else
  return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}
inline float largest(vf v) {
#if defined(__AVX512F__)
  if (!_mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q)) return _mm512_reduce_max_ps((__m512)v);
#endif
  float best = v[0];
  for (int i = 1; i < W; ++i) best = (v[i] > best || v[i] != v[i]) ? v[i] : best;
  return best;
}

// The lanes of a whole vector, as a type: what is known when compiling costs nothing in the loop.
struct Whole {
  constexpr operator int() const { return W; }
};

// f(i, lanes) over n elements: whole vectors (lanes is a Whole), then one short one (lanes is an int).
template <class F>
inline void each_vector(int64_t n, F f) {
  int64_t i = 0;
  for (; i + W <= n; i += W) f(i, Whole());
  if (i < n) f(i, int(n - i));
}
inline vf load_some(const float* p, Whole) { return load(p); }
inline vf load_some(const float* p, int lanes) { return lanes == W ? load(p) : load_n(p, lanes); }
inline void store_some(float* p, vf v, Whole) { store(p, v); }
inline void store_some(float* p, vf v, int lanes) { lanes == W ? store(p, v) : store_n(p, v, lanes); }

}  // namespace CT_TIER
}  // namespace ct
