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
  for (int r = 0; r < rows; ++r, sums += vectors) {
    const int64_t at = r * end.c_row, last = (vectors - 1) * W;
    if (vectors > 1) finish_vector(sums[0], end, at, 0, true, Whole());
    finish_vector(sums[vectors - 1], end, at + last, last, true, int(end.tail));
  }
}

TileFunction tile_for(int rows, int vectors, bool more) { return tiles.of[more][vectors - 1][rows - 1]; }

}  // namespace CT_TIER
}  // namespace ct
