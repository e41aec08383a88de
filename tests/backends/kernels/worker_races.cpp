// Drives the pool from several threads; built with the thread sanitizer, which reports where two threads touch the same memory
// unordered. Plain (not atomic) cells are written by whoever takes a unit and read by the caller afterwards. With an argument
// all units share one cell: where that goes unnoticed, the sanitizer is not at work.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "run/workers.h"

namespace {

std::atomic<bool> wrong{false};

void count(void* cells, int, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) ++(*static_cast<std::vector<int>*>(cells))[i];
}

void count_in_one(void* cells, int, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) ++(*static_cast<std::vector<int>*>(cells))[0];
}

// Every unit once, also where workers have fallen asleep in between.
void drive(ct::Workers& pool, int runs) {
  for (int run = 0; run < runs; ++run) {
    if (!pool.try_acquire()) {
      std::this_thread::yield();
      continue;
    }
    std::vector<int> cells(1 + run * 37 % 500, 0);
    pool.run(count, &cells, static_cast<int64_t>(cells.size()));
    for (int cell : cells)
      if (cell != 1) wrong = true;
    pool.release();
    if (run % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int words, char**) {
  if (words > 1) {
    ct::Workers pool(4);
    std::vector<int> cell(1, 0);
    for (int run = 0; run < 100; ++run) pool.run(count_in_one, &cell, 5000);
    return 0;
  }
  for (int threads : {1, 2, 3, 8}) {
    ct::Workers shared(threads), own(threads);
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) callers.emplace_back([&shared] { drive(shared, 2000); });
    callers.emplace_back([&own] { drive(own, 2000); });
    for (std::thread& caller : callers) caller.join();
  }
  std::puts(wrong ? "units were lost or taken twice" : "every unit once");
  return wrong ? 1 : 0;
}
