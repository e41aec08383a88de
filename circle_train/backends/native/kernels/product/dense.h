// Operands: a matrix as it lies in memory, and one that is made as it is read.
#pragma once

#include <algorithm>

#include "vectors/bf16.h"
#include "product/gemm.h"
#include "vectors/vecmath.h"

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

// The gradient of a cross-entropy by its logits: over many classes it is larger than all else (see ct_labels).
struct LossRows final : RowSource, PanelSource {
  const float* logits;
  int64_t cols;
  const ct_labels& of;

  LossRows(const float* z, int64_t columns, const ct_labels& labels) : logits(z), cols(columns), of(labels) {}

  // Columns j..j+n of a row.
  void piece(int64_t row, int64_t j, int64_t n, float* to) const {
    const float* const z = logits + row * cols + j;
    const float top = of.top[row], rate = of.rate[row];
    if (rate == 0) return void(std::fill_n(to, n, 0.0f));
    each_vector(n, [&](int64_t i, auto lanes) { store_some(to + i, exp(load_some(z + i, lanes) - top) * rate, lanes); });
    const int64_t at = of.label[row] - j;
    if (at >= 0 && at < n) to[at] -= of.scale;
  }

  void rows(int64_t m0, int64_t mc, int64_t k0, int64_t kc, float* dst, int64_t dst_row) const override {
    for (int64_t i = 0; i < mc; ++i) piece(m0 + i, k0, kc, dst + i * dst_row);
  }

  void panels(int64_t k0, int64_t kc, int64_t c0, int64_t columns, int64_t width, float* dst) const override {
    for (int64_t j = 0; j < columns; j += width) {
      const int64_t n = columns - j < width ? columns - j : width;
      for (int64_t k = 0; k < kc; ++k) {
        float* const to = dst + j * kc + k * width;
        piece(k0 + k, c0 + j, n, to);
        for (int64_t i = n; i < width; ++i) to[i] = 0;
      }
    }
  }
};

}  // namespace CT_TIER
}  // namespace ct
