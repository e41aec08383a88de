// What this processor can do, asked of itself: compilers' own answers lie in run-time libraries that not every linker brings along.
#pragma once

namespace ct {

struct Processor {
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool neon_dot = false;
};

// Defined once, outside the tiers: code that may run anywhere must be compiled for any processor.
const Processor& processor();

}  // namespace ct
