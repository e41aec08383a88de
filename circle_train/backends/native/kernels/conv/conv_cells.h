// Weight gradients of convolutions, cell by cell of the window: tiles read images and dy where they lie, nothing is gathered, and
// pixels whose cell is padding are no work.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

bool suits_cells(const ct_conv_grad_w_args& t);
int64_t cells_scratch(const ct_conv_grad_w_args& t, int workers);
void run_cells(Context& context, const ct_conv_grad_w_args& t);

}  // namespace CT_TIER
}  // namespace ct
