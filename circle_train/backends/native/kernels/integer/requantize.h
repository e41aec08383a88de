// From sums of products back to bytes.
#pragma once

#include <algorithm>

#include "vectors/vecmath.h"

namespace ct {
namespace CT_TIER {

typedef uint8_t vb __attribute__((vector_size(W), may_alias));
typedef int16_t vs __attribute__((vector_size(W * 2), may_alias));

inline vi load_ints(const int32_t* p) {
  vi v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// The lanes' low bytes.
inline void store_bytes(uint8_t* p, vi v, int lanes) {
#if defined(__AVX512F__)
  _mm512_mask_cvtepi32_storeu_epi8(p, __mmask16((1u << lanes) - 1), (__m512i)v);
#else
  const vb bytes = __builtin_convertvector(v, vb);
  std::memcpy(p, &bytes, size_t(lanes));
#endif
}

inline vi load_bytes(const uint8_t* p, int lanes, int32_t flip) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(__mmask16((1u << lanes) - 1), p)) ^ flip;
#else
  vb bytes{};
  std::memcpy(&bytes, p, size_t(lanes));
  return __builtin_convertvector(bytes, vi) ^ flip;
#endif
}

inline void store_shorts(int16_t* p, vi v, int lanes) {
#if defined(__AVX512F__)
  _mm512_mask_cvtepi32_storeu_epi16(p, __mmask16((1u << lanes) - 1), (__m512i)v);
#else
  const vs shorts = __builtin_convertvector(v, vs);
  std::memcpy(p, &shorts, size_t(lanes) * sizeof(int16_t));
#endif
}

inline vi load_shorts(const int16_t* p, int lanes) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(__mmask16((1u << lanes) - 1), p));
#else
  vs shorts{};
  std::memcpy(&shorts, p, size_t(lanes) * sizeof(int16_t));
  return __builtin_convertvector(shorts, vi);
#endif
}

// What a byte may be, and what stands for 0.
struct Range {
  vf low, high;
  int32_t zero;

  template <class Args>
  explicit Range(const Args& t) : low(splat(float(t.low - t.y_zero))), high(splat(float(t.high - t.y_zero))), zero(t.y_zero) {}

  vi bytes_of(vf real) const { return round_to_int(at_most(real > low ? real : low, high)) + zero; }

  vi within(vi stored) const { return round_to_int(at_most(at_least(to_float(stored), low), high)) + zero; }

  // Halves away from 0, as LiteRT's pools have it.
  vi halves_away(vf real) const {
    const vf stored = at_most(real > low ? real : low, high) + float(zero);
    const vf half = (vf)(((vi)stored & INT32_MIN) | (vi)splat(0.5f));
    return __builtin_convertvector(stored + half, vi);
  }
};

// y = scale * (sums + bias - less)
inline void requantize(const int32_t* sums, const int32_t* bias, const float* scale, int64_t n, int32_t less, const Range& range,
                       uint8_t* y) {
  each_vector(n, [&](int64_t i, auto lanes) {
    const vf real = to_float(load_ints(sums + i) + load_ints(bias + i) - less) * load(scale + i);
    store_bytes(y + i, range.bytes_of(real), lanes);
  });
}

// Of int16: y = scale * (sums + bias) / 2^shift, halves up.
template <class Sum>
inline void to_shorts(const ct_int_conv_args& t, const Sum* sums, int64_t place, int64_t n, int64_t output, int64_t channel) {
  const int64_t* const bias = reinterpret_cast<const int64_t*>(t.bias) + place;
  const int32_t *const factor = reinterpret_cast<const int32_t*>(t.scale) + place, *const shift = t.shift + place;
  int16_t* const y = reinterpret_cast<int16_t*>(t.y) + output * t.shape.out_c + channel;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t scaled = ((sums[i] + bias[i]) * factor[i] + (int64_t(1) << (shift[i] - 1))) >> shift[i];
    y[i] = int16_t(std::min<int64_t>(std::max<int64_t>(scaled, t.low), t.high));
  }
}

}  // namespace CT_TIER
}  // namespace ct
