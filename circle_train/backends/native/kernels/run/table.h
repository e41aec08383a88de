// Every kernel of a tier, as CT_KERNELS lists them.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

int64_t no_scratch(const void*, int);
#define CT_DECLARE(id, run, scratch, args)  \
  int32_t run(Context&, const void* opaque); \
  int64_t scratch(const void* opaque, int threads);
CT_KERNELS(CT_DECLARE)
#undef CT_DECLARE

}  // namespace CT_TIER
}  // namespace ct
