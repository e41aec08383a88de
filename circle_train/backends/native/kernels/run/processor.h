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

// Whether one instruction rounds a vector to bfloat16: asked once a vector, so that it must be no call.
extern const bool rounds_at_once;

}  // namespace ct
