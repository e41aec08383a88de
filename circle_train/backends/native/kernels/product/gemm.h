// Products blocked for the caches, over operands that are read in place or gathered block by block.
//
// RowsProduct: many rows against one B (forward passes, input gradients): rows are split, k is summed in one place.
// SumProduct: a small result summed over many rows (weight gradients): k is split into fixed parts added in order.
#pragma once

#include "vectors/activation.h"
#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

// Fills dst[i*dst_row + k] with A(m0+i, k0+k), i < mc, k < kc.
struct RowSource {
  virtual void rows(int64_t m0, int64_t mc, int64_t k0, int64_t kc, float* dst, int64_t dst_row) const = 0;
};

// Receives finished rows that do not lie at c + i*c_row.
struct RowSink {
  virtual void rows(int64_t m0, int64_t mc, const float* src, int64_t src_row) const = 0;
};

struct RowsProduct {
  int64_t m, n, k;
  int64_t first = 0;               // the first row's number for source and sink; 0 where bf16 is set
  const float* a = nullptr;        // A(i,k) = a[i*a_row + k] ...
  int64_t a_row = 0;
  const RowSource* source = nullptr;  // ... or gathered
  const float* b = nullptr;        // B(k,j) = b[k*b_row + j*b_col] (times alpha)
  int64_t b_row = 0, b_col = 1;
  const ct_int_widen_args* stored = nullptr;  // ... or integers, at the same steps
  const float* panels = nullptr;   // ... or B as keep_panels has left it
  float alpha = 1;
  float* c = nullptr;
  int64_t c_row = 0;
  const RowSink* sink = nullptr;   // when given, c is not used
  const float* bias = nullptr;
  const float* add = nullptr;      // lies as c
  const float* out_mask = nullptr; // lies as c
  int32_t act = CT_ACT_NONE;
  int32_t out_mask_act = CT_ACT_NONE;
  bool accumulate = false;
  int32_t bf16 = 0;              // see ct_bf16
};

int64_t rows_scratch(const RowsProduct& p, int workers);
void run_rows(Context& context, const RowsProduct& p, char* scratch);
// B in panels, for all products with this very one. Bytes: 0 where they are not used, or are little work beside the product.
int64_t panel_bytes(const RowsProduct& p);
void keep_panels(Context& context, const RowsProduct& p, float* panels);
// The same on one worker, for products that are themselves the units of a loop.
int64_t rows_alone_scratch(const RowsProduct& p);
void run_rows_alone(const RowsProduct& p, char* scratch);
// Of operands rounded to bfloat16; run_rows comes here by itself.
int64_t rounded_rows_scratch(const RowsProduct& p, int workers);
void run_rounded_rows(Context& context, const RowsProduct& p, char* scratch);

// Fills panels of `width` columns: dst[panel][k][width] with A(k0+k, c0 + panel*width ...), k < kc, zeros past c0+cols.
struct PanelSource {
  virtual void panels(int64_t k0, int64_t kc, int64_t c0, int64_t cols, int64_t width, float* dst) const = 0;
};

// result(i,j) = sum_k A(k,i) B(k,j), with the column sums of dy: of A, or of B when the result is the weights' transpose.
struct SumProduct {
  int64_t m, n, k;
  const PanelSource* a = nullptr;
  const RowSource* b = nullptr;
  const float* a_dense = nullptr;   // A(k,i) = a_dense[k*m + i], when it may be read in place
  const float* b_dense = nullptr;   // B(k,j) = b_dense[k*b_row + j], when it may be read in place
  int64_t b_row = 0;
  bool transposed = false;          // the weights are n x m
  const ct_update* w = nullptr;     // may be NULL
  const ct_update* bias = nullptr;  // may be NULL
  bool a_bf16 = false, b_bf16 = false;  // a_dense, b_dense lie as bfloat16
  int32_t bf16 = 0;               // see ct_bf16
};

// Few inputs for many outputs: the vectors should lie along the outputs.
bool suits_transposed(int64_t outputs, int64_t inputs);
int64_t sum_scratch(const SumProduct& p, int workers);
void run_sum(Context& context, const SumProduct& p, char* scratch);
// sums[j] += the sum of column j over rows of b
void add_row_sums(const float* b, int64_t b_row, int64_t rows, int64_t cols, float* sums);

}  // namespace CT_TIER
}  // namespace ct
