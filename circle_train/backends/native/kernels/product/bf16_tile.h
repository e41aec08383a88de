// The register tile of products of bfloat16s summed as float32, and its operands: values of neighbouring k lie in pairs.
#pragma once

#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {

// Each 32-bit word holds the values of an even k (low) and the next (high); where k is odd, 0 is the last one's partner.
struct PairTile {
  const uint16_t* a;  // pairs of row r, step p at a + r*a_row + p*a_step
  int64_t a_row, a_step;
  const uint32_t* b;  // pairs of columns at b + p*b_row
  int64_t b_row;
  int64_t pairs;
  float* c;
  int64_t c_row;
  bool load_c;
};

using PairTileFunction = void (*)(const PairTile&);

// rows 1..kTileRows, vectors 1..kTileVectors; by the processor's own instruction where there is one, else the same bits by others.
PairTileFunction pair_tile_for(int rows, int vectors);

inline int64_t pairs_of(int64_t k) { return (k + 1) / 2; }

// dst[i] = (low[i], high[i]), i < n; `high` may be NULL for zeros. The sources are float32 (rounded here) or bfloat16.
void pair_rows(const float* low, const float* high, float scale, int64_t n, uint32_t* dst);
void pair_rows(const uint16_t* low, const uint16_t* high, int64_t n, uint32_t* dst);
// Panels of kTileRows columns as they are packed for float32, [k][kTileRows], in pairs: [pair][kTileRows].
void pair_panels(const float* panels, int64_t k, int64_t rows, uint32_t* dst);
// dst[0..n) = src rounded, dst[n] = 0 where n is odd.
void round_row(const float* src, float scale, int64_t n, uint16_t* dst);

}  // namespace CT_TIER
}  // namespace ct
