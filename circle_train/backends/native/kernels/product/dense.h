// A matrix as it lies in memory.
#pragma once

#include "vectors/bf16.h"
#include "product/gemm.h"

namespace ct {
namespace CT_TIER {

// x(i, k) = x[i*row + k]
struct DenseMatrix final : RowSource, PanelSource {
  const float* x = nullptr;
  int64_t row = 0;
  bool bf16 = false;  // x lies as bfloat16

  DenseMatrix(const float* values, int64_t row_length) : x(values), row(row_length) {}

  template <class Lanes>
  vf at(int64_t i, Lanes lanes) const {
    return bf16 ? load_bf16(reinterpret_cast<const uint16_t*>(x) + i, lanes) : load_some(x + i, lanes);
  }

  void rows(int64_t m0, int64_t mc, int64_t k0, int64_t kc, float* dst, int64_t dst_row) const override {
    for (int64_t i = 0; i < mc; ++i)
      each_vector(kc, [&](int64_t k, auto lanes) { store_some(dst + i * dst_row + k, at((m0 + i) * row + k0 + k, lanes), lanes); });
  }

  // One row's columns j..stop, a panel's after the other.
  void panel_row(int64_t from, int64_t j, int64_t stop, int64_t width, float* to, int64_t panel) const {
    for (; j < stop; j += width, to += panel) {
      const int64_t n = stop - j < width ? stop - j : width;
      each_vector(n, [&](int64_t i, auto lanes) { store_some(to + i, at(from + j + i, lanes), lanes); });
      for (int64_t i = n; i < width; ++i) to[i] = 0;
    }
  }

  void panels(int64_t k0, int64_t kc, int64_t c0, int64_t cols, int64_t width, float* dst) const override {
    // A few rows and panels at a time: whole lines are read, and the panels' lines do not meet in the cache's sets.
    constexpr int64_t kRows = 32, kPanels = 4;
    for (int64_t k1 = 0; k1 < kc; k1 += kRows) {
      const int64_t k2 = k1 + kRows < kc ? k1 + kRows : kc;
      for (int64_t j = 0; j < cols; j += kPanels * width) {
        const int64_t stop = j + kPanels * width < cols ? j + kPanels * width : cols;
        for (int64_t k = k1; k < k2; ++k) panel_row((k0 + k) * row + c0, j, stop, width, dst + j * kc + k * width, kc * width);
      }
    }
  }
};

}  // namespace CT_TIER
}  // namespace ct
