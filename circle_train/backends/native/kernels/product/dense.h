// A matrix as it lies in memory, read through a mask when one is given.
#pragma once

#include "vectors/activation.h"
#include "vectors/bf16.h"
#include "product/gemm.h"

namespace ct {
namespace CT_TIER {

// x(i, k) = x[i*row + k] * act'(y)
struct DenseMatrix final : RowSource, PanelSource {
  const float* x = nullptr;
  const float* y = nullptr;
  int64_t row = 0;
  Clamp mask;
  bool half = false;  // x lies as bfloat16

  DenseMatrix() = default;
  DenseMatrix(const float* values, const float* outputs, int64_t row_length, int32_t act)
      : x(values), y(act == CT_ACT_NONE ? nullptr : outputs), row(row_length), mask(clamp_of(act)) {}

  template <class Lanes>
  vf at(int64_t i, Lanes lanes) const {
    const vf v = half ? load_bf16(reinterpret_cast<const uint16_t*>(x) + i, lanes) : load_some(x + i, lanes);
    return y ? masked(v, load_some(y + i, lanes), mask) : v;
  }

  void rows(int64_t m0, int64_t mc, int64_t k0, int64_t kc, float* dst, int64_t dst_row) const override {
    for (int64_t i = 0; i < mc; ++i)
      each_vector(kc, [&](int64_t k, auto lanes) { store_some(dst + i * dst_row + k, at((m0 + i) * row + k0 + k, lanes), lanes); });
  }

  void panels(int64_t k0, int64_t kc, int64_t c0, int64_t cols, int64_t width, float* dst) const override {
    for (int64_t k = 0; k < kc; ++k) {
      const int64_t from = (k0 + k) * row + c0;
      float* to = dst + k * width;
      for (int64_t j = 0; j < cols; j += width, to += kc * width) {
        const int64_t n = cols - j < width ? cols - j : width;
        each_vector(n, [&](int64_t i, auto lanes) { store_some(to + i, at(from + j + i, lanes), lanes); });
        for (int64_t i = n; i < width; ++i) to[i] = 0;
      }
    }
  }
};

}  // namespace CT_TIER
}  // namespace ct
