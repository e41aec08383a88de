// The micro-operations of a chain, each one pass over a tile.
#pragma once

#include <cstdint>

namespace ct {
namespace CT_TIER {

// y[0..n) = op(a, b, c, imm); y may be any of its operands. False for an unknown opcode.
bool run_chain_op(int32_t op, const float* a, const float* b, const float* c, float imm, float* y, int64_t n);

}  // namespace CT_TIER
}  // namespace ct
