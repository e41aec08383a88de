// exp, log, tanh, erf over vectors. Errors against float64 are asserted in tests/test_kernels.py.
#pragma once

#include <limits>

#include "vectors/simd.h"

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
// Halves to even; what is beyond 2^23, infinite or NaN stays.
inline vf round_even(vf a) {
#if defined(__AVX512F__)
  return (vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return (vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return (vf)vrndnq_f32((float32x4_t)a);
#else
  const vi sign = (vi)a & INT32_MIN;
  const vf large = (vf)((vi)splat(8388608.0f) | sign);
  const vf rounded = (vf)((vi)((a + large) - large) | sign);
  return (vf)((vi)a & INT32_MAX) < splat(8388608.0f) ? rounded : a;
#endif
}
inline vf to_float(vi a) { return __builtin_convertvector(a, vf); }

// e^x = 2^n e^r with |r| <= ln2/2
struct Power {
  vf mantissa;
  vi n;
};
inline Power power_of_e(vf x) {
  const vi n = round_to_int(x * 1.44269504088896341f);
  const vf k = to_float(n);
  const vf r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {p * (r * r) + r + 1.0f, n};
}

// The power in two factors, unless one instruction scales, so that results overflow and underflow gradually. NaN stays NaN. What
// is far below (a masked score) is not computed: processors are slow where results underflow.
inline vf exp(vf x) {
  const vi gone = x < splat(-104.0f);
  const Power p = power_of_e(at_most(gone ? vf{} : x, splat(89.0f)));
#if defined(__AVX512F__)
  const vf y = (vf)_mm512_scalef_ps((__m512)p.mantissa, (__m512)to_float(p.n));
  return gone ? vf{} : y;
#else
  const vi half = p.n >> 1;
  const vf y = p.mantissa * power_of_two(half) * power_of_two(p.n - half);
  return x != x ? x : gone ? vf{} : y;
#endif
}

// For |x| <= 87: nothing overflows.
inline vf exp_of_moderate(vf x) {
  const Power p = power_of_e(x);
  return (vf)((vi)p.mantissa + (p.n << 23));
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

inline vf with_sign_of(vf magnitude, vf x) { return (vf)((vi)magnitude | ((vi)x & INT32_MIN)); }

// Near 0 an odd minimax polynomial, else 1 - 2/(e^2|x| + 1), which is 1 where float32 tanh is.
inline vf tanh(vf x) {
  const vf s = x * x, t = at_most(abs(x), splat(10.0f));
  vf p = splat(-5.692296196e-3f);
  p = p * s + 2.062816732e-2f;
  p = p * s - 5.373651534e-2f;
  p = p * s + 1.333140582e-1f;
  p = p * s - 3.333328068e-1f;
  const vf far = 1.0f - 2.0f / (exp_of_moderate(t + t) + 1.0f);
  return t > splat(0.625f) ? with_sign_of(far, x) : (p * s) * x + x;
}

// Near 0 an odd minimax polynomial, else 1 - e^q(|x|), which is 1 where float32 erf is.
inline vf erf(vf x) {
  const vf s = x * x, t = at_most(abs(x), splat(4.0f));
  vf p = splat(-5.959577975e-4f);
  p = p * s + 4.987352062e-3f;
  p = p * s - 2.676296607e-2f;
  p = p * s + 1.128173098e-1f;
  p = p * s - 3.761248887e-1f;
  p = p * s + 1.283791512e-1f;
  vf q = splat(2.136473340e-4f);
  q = q * t - 3.212162061e-3f;
  q = q * t + 2.288096771e-2f;
  q = q * t - 1.052477434e-1f;
  q = q * t - 6.357290745e-1f;
  q = q * t - 1.285111606e-1f;
  const vf far = 1.0f - exp_of_moderate(q * t - t);
  return t > splat(0.93f) ? with_sign_of(far, x) : p * x + x;
}

// 1 / (1 + e^-x), from the side that cannot overflow.
inline vf logistic(vf x) {
  const vf e = exp(-abs(x));
  return (x >= vf{} ? splat(1.0f) : e) / (1.0f + e);
}

}  // namespace CT_TIER
}  // namespace ct
