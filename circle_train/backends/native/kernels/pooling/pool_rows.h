// One row of a MAX_POOL's outputs and the rows of the image below its windows, for kernels that make those rows or use them up.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

// Rows are counted over the batch.
struct RowsBelow {
  int64_t first, count;
};
RowsBelow rows_below(const ct_conv_shape& s, int64_t out_row);

// y and index from the rows below.
void max_pool_row(const ct_pool_args& t, int64_t out_row, const float* rows);
// The rows' gradient from dy, index and, for act, y. Windows do not overlap.
void scatter_row(const ct_pool_args& t, int64_t out_row, float* rows);

}  // namespace CT_TIER
}  // namespace ct
