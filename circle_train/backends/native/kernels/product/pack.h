// Bringing operands into the order the tiles read.
#pragma once

#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {

// dst[c*dst_row + r] = src[r*src_row + c]
void transpose(const float* src, int64_t src_row, int64_t rows, int64_t cols, float* dst, int64_t dst_row);

// Columns n0..n0+cols of B(k,n) = b[k*b_row + n*b_col], times alpha, as dst[k][width], padded with zeros.
void pack_panel(const float* b, int64_t b_row, int64_t b_col, int64_t k, int64_t cols, int64_t width, float alpha, float* dst);

// Panels are kTileCols wide; the last one only W when that is enough.
int64_t panel_width(int64_t n, int64_t n0);
int64_t packed_size(int64_t k, int64_t n);

}  // namespace CT_TIER
}  // namespace ct
