#include "product/tile.h"

#include <utility>

namespace ct {
namespace CT_TIER {
namespace {

struct Tiles {
  TileFunction of[2][kTileVectors][kTileRows];
};

template <int... R>
constexpr Tiles all_tiles(std::integer_sequence<int, R...>) {
  return Tiles{{{{tile<R + 1, 1, false>...}, {tile<R + 1, 2, false>...}}, {{tile<R + 1, 1, true>...}, {tile<R + 1, 2, true>...}}}};
}

constexpr Tiles tiles = all_tiles(std::make_integer_sequence<int, kTileRows>());

}  // namespace

void finish_tail(const vf* sums, int rows, int vectors, const TileEnd& end) {
  const int tail = int(end.tail);
  if (vectors == 1 && !end.load_c && !end.add && !end.y) {  // what happens to most, without a test for each row
    const vf bias = end.bias ? load_some(end.bias, tail) : vf{};
    const vf low = splat(end.clamp ? end.low : -__builtin_inff()), high = splat(end.clamp ? end.high : __builtin_inff());
    for (int r = 0; r < rows; ++r) store_some(end.c + r * end.c_row, at_most(at_least(sums[r] + bias, low), high), tail);
    return;
  }
  for (int r = 0; r < rows; ++r, sums += vectors) {
    const int64_t at = r * end.c_row, last = (vectors - 1) * W;
    if (vectors > 1) finish_vector(sums[0], end, at, 0, true, Whole());
    finish_vector(sums[vectors - 1], end, at + last, last, true, tail);
  }
}

TileFunction tile_for(int rows, int vectors, bool more) { return tiles.of[more][vectors - 1][rows - 1]; }

}  // namespace CT_TIER
}  // namespace ct
