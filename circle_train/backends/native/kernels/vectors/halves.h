// Vectors as two halves, for what fills only one.
#pragma once

#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {

#if defined(__AVX512F__)
constexpr bool kHasHalves = true;
inline vf low_halves(vf a, vf b) { return (vf)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0x44); }
inline vf high_halves(vf a, vf b) { return (vf)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0xee); }
inline vf load_twice(const float* p) { return (vf)_mm512_broadcast_f32x8(_mm256_loadu_ps(p)); }
#elif defined(__AVX2__)
constexpr bool kHasHalves = true;
inline vf low_halves(vf a, vf b) { return (vf)_mm256_permute2f128_ps((__m256)a, (__m256)b, 0x20); }
inline vf high_halves(vf a, vf b) { return (vf)_mm256_permute2f128_ps((__m256)a, (__m256)b, 0x31); }
inline vf load_twice(const float* p) { return (vf)_mm256_broadcast_ps(reinterpret_cast<const __m128*>(p)); }
#else
constexpr bool kHasHalves = false;  // two channels: not worth it
inline vf low_halves(vf a, vf b) { return vf{a[0], a[1], b[0], b[1]}; }
inline vf high_halves(vf a, vf b) { return vf{a[2], a[3], b[2], b[3]}; }
inline vf load_twice(const float* p) { return vf{p[0], p[1], p[0], p[1]}; }
#endif

}  // namespace CT_TIER
}  // namespace ct
