// exp, log, tanh, erf over vectors. Errors against float64 are asserted in tests/test_kernels.py.
#pragma once

#include <limits>

#include "simd.h"

namespace ct {
namespace CT_TIER {

inline vf power_of_two(vi n) { return (vf)((n + 127) << 23); }

inline vi round_to_int(vf a) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtps_epi32((__m512)a);
#elif defined(__AVX2__)
  return (vi)_mm256_cvtps_epi32((__m256)a);
#elif defined(__SSE2__)
  return (vi)_mm_cvtps_epi32((__m128)a);
#elif defined(__aarch64__)
  return (vi)vcvtnq_s32_f32((float32x4_t)a);
#else
  vi r{};
  for (int i = 0; i < W; ++i) r[i] = int32_t(std::nearbyint(a[i]));
  return r;
#endif
}
inline vf to_float(vi a) { return __builtin_convertvector(a, vf); }

// 2^n e^r with |r| <= ln2/2; the power in two factors, so that results overflow and underflow gradually.
inline vf exp(vf x) {
  vf c = at_most(at_least(x, splat(-104.0f)), splat(89.0f));
  const vi n = round_to_int(c * 1.44269504088896341f);
  const vf k = to_float(n);
  const vf r = (c - k * 0.693359375f) + k * 2.12194440e-4f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const vi half = n >> 1;
  const vf y = p * power_of_two(half) * power_of_two(n - half);
  return x != x ? x : y;
}

inline vf log(vf x) {
  const vi tiny = x < splat(1.17549435e-38f);
  const vf scaled = tiny ? x * 8388608.0f : x;
  const vi bits = (vi)scaled;
  vf e = to_float(((bits >> 23) & 0xff) - 126) - (tiny ? splat(23.0f) : vf{});
  vf m = (vf)((bits & 0x007fffff) | 0x3f000000);
  const vi low = m < splat(0.707106781186547524f);
  e = low ? e - 1.0f : e;
  m = (low ? m + m : m) - 1.0f;
  const vf z = m * m;
  vf p = splat(7.0376836292e-2f);
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  vf y = p * m * z + e * -2.12194440e-4f - 0.5f * z;
  y = m + y + e * 0.693359375f;
  constexpr float inf = std::numeric_limits<float>::infinity();
  y = x == splat(inf) ? x : y;
  y = x == vf{} ? splat(-inf) : y;
  return ((x < vf{}) | (x != x)) ? splat(std::numeric_limits<float>::quiet_NaN()) : y;
}

// A rational minimax fit on |x| <= 7.9, beyond which float32 tanh is +-1.
inline vf tanh(vf x) {
  const vf c = at_most(at_least(x, splat(-7.90531110763549805f)), splat(7.90531110763549805f));
  const vf s = c * c;
  vf p = splat(-2.76076847742355e-16f);
  p = p * s + 2.00018790482477e-13f;
  p = p * s - 8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  vf q = splat(1.19825839466702e-06f);
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return abs(x) < splat(0.0004f) ? x : c * p / q;
}

// A rational minimax fit on |x| <= 4, beyond which float32 erf is +-1.
inline vf erf(vf x) {
  const vf c = at_most(at_least(x, splat(-4.0f)), splat(4.0f));
  const vf s = c * c;
  vf p = splat(-2.72614225801306e-10f);
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  vf q = splat(-1.45660718464996e-05f);
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return c * p / q;
}

// 1 / (1 + e^-x), from the side that cannot overflow.
inline vf logistic(vf x) {
  const vf e = exp(-abs(x));
  return (x >= vf{} ? splat(1.0f) : e) / (1.0f + e);
}

}  // namespace CT_TIER
}  // namespace ct
