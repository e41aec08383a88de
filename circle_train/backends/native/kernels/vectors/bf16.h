// Bfloat16 in memory, float32 in registers.
#pragma once

#include "run/processor.h"
#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {

typedef uint32_t vu __attribute__((vector_size(W * 4), may_alias));

#if defined(__AVX512F__)
// What rounded_bits says, where `rounds_at_once`: of the instruction no intrinsic may be inlined into code for this tier.
inline __m256i rounded_at_once(vf v) {
  __m256i narrow;
  __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(v));
  return narrow;
}
#endif

// The nearest bfloat16s in the upper halves of the lanes, ties to even; subnormals become 0, NaN stays.
inline vu rounded_bits(vf v) {
#if defined(__AVX512F__)
  if (rounds_at_once) return (vu)_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded_at_once(v)), 16);
#endif
  const vu bits = (vu)v;
  const vu nearest = (bits + (0x7fff + ((bits >> 16) & 1u))) & 0xffff0000u;
  const vu is_small = (vu)((bits & 0x7f800000u) == 0u);
  const vu is_nan = (vu)(v != v);
  return is_nan ? (bits | 0x400000u) & 0xffff0000u : (is_small ? bits & 0x80000000u : nearest);
}

// The same in the lower halves.
inline vu rounded_halves(vf v) {
#if defined(__AVX512F__)
  if (rounds_at_once) return (vu)_mm512_cvtepu16_epi32(rounded_at_once(v));
#endif
  return rounded_bits(v) >> 16;
}

inline vf round_bf16(vf v) { return (vf)rounded_bits(v); }

inline vf load_bf16(const uint16_t* p, Whole) {
#if defined(__AVX512F__)
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
#elif defined(__AVX2__)
  return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16);
#else
  vu v{};
  for (int i = 0; i < W; ++i) v[i] = uint32_t(p[i]) << 16;
  return (vf)v;
#endif
}

inline vf load_bf16(const uint16_t* p, int lanes) {
#if defined(__AVX512F__)
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(__mmask16((1u << lanes) - 1), p)), 16);
#else
  uint16_t some[W] = {};
  for (int i = 0; i < lanes; ++i) some[i] = p[i];
  return load_bf16(some, Whole());
#endif
}

inline void store_bf16(uint16_t* p, vf v, Whole) {
#if defined(__AVX512F__)
  const __m256i narrow = rounds_at_once ? rounded_at_once(v) : _mm512_cvtepi32_epi16((__m512i)(rounded_bits(v) >> 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow);
#elif defined(__AVX2__)
  const __m256i upper = (__m256i)(rounded_bits(v) >> 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
#else
  const vu upper = rounded_bits(v) >> 16;
  for (int i = 0; i < W; ++i) p[i] = uint16_t(upper[i]);
#endif
}

inline void store_bf16(uint16_t* p, vf v, int lanes) {
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(p, __mmask16((1u << lanes) - 1), _mm512_cvtepi32_epi16((__m512i)(rounded_bits(v) >> 16)));
#else
  const vu upper = rounded_bits(v) >> 16;
  for (int i = 0; i < lanes; ++i) p[i] = uint16_t(upper[i]);
#endif
}

}  // namespace CT_TIER
}  // namespace ct
