// The register tile of products of bytes: neighbouring outputs of a row, times panels of 16 channels.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

constexpr int kDotRows = 14, kDotPanels = 4;
constexpr int64_t kShortFours = 127;  // 4 * 127 * 2^15 * 2^7 < 2^31

struct DotTile {
  const char* x;  // output r's window at x + r*x_step bytes
  int64_t x_step;
  const int64_t* runs;  // where each run begins, in bytes from a window's own begin
  int64_t run_count;
  int64_t fours;  // of a run
  const int8_t* w;
  int64_t w_panel;
  int32_t* sums;  // [row][panels * 16]
};

using DotTileFunction = void (*)(const DotTile&);

struct DotTiles {
  int cell_bytes;  // of the unsigned cells
  int panels;      // at most at a time
  int rows[kDotPanels];  // at most, with so many panels + 1
  DotTileFunction of[kDotPanels][kDotRows];
};

// By the processor's own instruction where there is one; all give the same sums.
const DotTiles& dot_tiles();
// The same for cells of int16, whose sums leave 32 bits behind kShortFours fours.
const DotTiles& short_tiles();

}  // namespace CT_TIER
}  // namespace ct
