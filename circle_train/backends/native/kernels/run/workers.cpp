#include "run/workers.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include "run/core.h"

namespace ct {
namespace {

// Threads do not survive a fork: the child sees its count change and starts a new team.
std::atomic<uint32_t> fork_counter{0};

#if !defined(_WIN32)
struct ForkWatch {
  ForkWatch() { pthread_atfork(nullptr, nullptr, [] { fork_counter.fetch_add(1); }); }
} fork_watch;
#endif

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits for `ready` awake, but only this long: a core that someone else wants is given up.
constexpr std::chrono::microseconds kSpin{60};

template <class Ready>
bool spin_until(Ready ready) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

// A worker's range in one word, so that taking from it is one compare-and-swap that fails once its job is over.
constexpr uint64_t kField = (1u << 24) - 1;
uint64_t pack(uint64_t job, uint64_t next, uint64_t end) { return job << 48 | next << 24 | end; }

struct alignas(128) Range {
  std::atomic<uint64_t> word{0};
};

struct Member {
  std::thread thread;
  std::atomic<int> core{-1};  // where it last fell asleep
};

}  // namespace

struct Workers::Team {
  // Where the system starts no more threads those that it did share all ranges: who does what changes no result.
  explicit Team(int threads) : ranges(threads), members(threads - 1) {
    try {
      for (int worker = 1; worker < threads; ++worker)
        members[worker - 1].thread = std::thread([this, worker] { serve(worker); });
    } catch (const std::exception&) {
    }
  }

  void run(Body new_body, void* new_context, int64_t units) {
    const int threads = static_cast<int>(ranges.size());
    const int64_t grain = units / (int64_t(kField) / 2) + 1;
    const int64_t chunks = (units + grain - 1) / grain;
    job = job + 1;
    body.store(new_body, std::memory_order_relaxed);
    context.store(new_context, std::memory_order_relaxed);
    chunk_units.store(grain, std::memory_order_relaxed);
    all_units.store(units, std::memory_order_relaxed);
    pending.store(chunks, std::memory_order_relaxed);
    for (int t = 0; t < threads; ++t) {
      const uint64_t begin = chunks * t / threads, end = chunks * (t + 1) / threads;
      ranges[t].word.store(pack(job & 0xffff, begin, end), std::memory_order_release);
    }
    published.store(job);
    if (sleepers.load() > 0) wake_up();
    work(0);
    const auto done = [this] { return pending.load(std::memory_order_acquire) == 0; };
    if (done() || spin_until(done)) return;
    std::unique_lock<std::mutex> lock(mutex);
    caller_waits = true;
    finished.wait(lock, done);
    caller_waits = false;
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping.store(true);
    }
    wake.notify_all();
    for (Member& member : members)
      if (member.thread.joinable()) member.thread.join();
  }

 private:
  void wake_up() {
    const int here = this_core();
    for (Member& member : members) {
      if (here < 0 || member.core.load(std::memory_order_relaxed) != here) continue;
      keep_off(member.thread, here);
      member.core.store(-1, std::memory_order_relaxed);
    }
    std::lock_guard<std::mutex> lock(mutex);
    wake.notify_all();
  }

  void serve(int worker) {
    uint32_t seen = 0;
    const auto news = [this, &seen] { return published.load() != seen || stopping.load(); };
    for (;;) {
      if (!spin_until(news)) {
        std::unique_lock<std::mutex> lock(mutex);
        members[worker - 1].core.store(this_core(), std::memory_order_relaxed);
        sleepers.fetch_add(1);
        wake.wait(lock, news);
        sleepers.fetch_sub(1);
      }
      if (stopping.load()) return;
      seen = published.load();
      work(worker);
    }
  }

  void work(int worker) {
    const int threads = static_cast<int>(ranges.size());
    for (int i = 0; i < threads; ++i) {
      const int victim = worker + i < threads ? worker + i : worker + i - threads;
      while (take(worker, victim)) {
      }
    }
  }

  // Runs a piece of victim's range; false when nothing is left. The job's fields are read before the swap: if it succeeds the
  // job was live all the while, as it cannot end before this piece does.
  bool take(int worker, int victim) {
    std::atomic<uint64_t>& word = ranges[victim].word;
    uint64_t old = word.load(std::memory_order_acquire);
    for (;;) {
      const int64_t next = old >> 24 & kField, end = old & kField;
      if (next >= end) return false;
      const Body current = body.load(std::memory_order_relaxed);
      void* const current_context = context.load(std::memory_order_relaxed);
      const int64_t grain = chunk_units.load(std::memory_order_relaxed);
      const int64_t units = all_units.load(std::memory_order_relaxed);
      const int64_t count = (end - next + 3) / 4;
      const uint64_t taken = pack(old >> 48, next + count, end);
      if (!word.compare_exchange_weak(old, taken, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      const int64_t stop = (next + count) * grain;
      current(current_context, worker, next * grain, stop < units ? stop : units);
      finish(count);
      return true;
    }
  }

  void finish(int64_t count) {
    if (pending.fetch_sub(count, std::memory_order_acq_rel) != count) return;
    std::lock_guard<std::mutex> lock(mutex);
    if (caller_waits) finished.notify_one();
  }

  std::vector<Range> ranges;
  std::vector<Member> members;
  std::atomic<Body> body{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<int64_t> chunk_units{1};
  std::atomic<int64_t> all_units{0};
  alignas(128) std::atomic<int64_t> pending{0};
  alignas(128) std::atomic<uint32_t> published{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stopping{false};
  uint32_t job = 0;
  bool caller_waits = false;
  std::mutex mutex;
  std::condition_variable wake, finished;
};

Workers::Workers(int threads) : threads_(threads < 1 ? 1 : threads), fork_count_(fork_counter.load()) {}

Workers::~Workers() {
  if (!team_) return;
  if (fork_count_.load() == fork_counter.load()) {
    team_->stop();
  } else {
    team_.release();
  }
}

bool Workers::try_acquire() {
  const uint32_t forks = fork_counter.load();
  if (fork_count_.load() != forks) {
    // The old team's threads and locks belong to the parent; its memory is left alone.
    team_.release();
    fork_count_.store(forks);
    held_.store(false);
  }
  return !held_.exchange(true);
}

void Workers::release() { held_.store(false); }

// Without memory for a team the caller works alone: no exception may cross the C ABI.
void Workers::start() {
  try {
    team_.reset(new Team(threads_));
  } catch (const std::bad_alloc&) {
  }
}

void Workers::run(Body body, void* context, int64_t units) {
  if (!team_) start();
  team_ ? team_->run(body, context, units) : body(context, 0, 0, units);
}

}  // namespace ct
