// Threads whose result cannot depend on who did what: work is cut into units by the problem alone, each thread owns a
// contiguous range of them and helps others when its own is done. The calling thread is worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace ct {

class Workers {
 public:
  using Body = void (*)(void* context, int worker, int64_t begin, int64_t end);

  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return threads_; }

  // A caller holds the workers while it runs a program; false when another thread holds them (then run alone).
  bool try_acquire();
  void release();

  // body(context, worker, begin, end) over sub-ranges that cover 0..units once.
  void run(Body body, void* context, int64_t units);

 private:
  struct Team;
  void start();

  int threads_;
  std::unique_ptr<Team> team_;
  std::atomic<uint32_t> fork_count_;
  std::atomic<bool> held_{false};
};

}  // namespace ct
