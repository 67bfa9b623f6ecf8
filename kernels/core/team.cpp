// See team.h. The word that is claimed from: generation << 32 | tasks left. Claiming is a compare-and-exchange of the
// whole word, so a task of one job is never taken for one of the next; and a job is written before the word, never
// while a task of the last is left.
#include "team.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace phloem::kernels {
namespace {

constexpr size_t LINE = 64;                 // bytes that move between processors at once
constexpr int64_t TASKS_LEFT = 0xFFFFFFFF;  // the bits of the word that count
constexpr int LOOKS = 4000;                 // for a job, before a helper sleeps: 0.1 to 0.2 ms
constexpr int PATIENCE = 400;               // looks at a task under way, before the caller yields its processor
constexpr int64_t TRIAL = 32;               // jobs after which help is judged,
constexpr int64_t LOSS = 2'000'000;         // or nanoseconds that it has cost
constexpr int64_t FIRST_REST = 64, LONGEST_REST = 1 << 14;  // jobs that are done alone where it was none

int64_t nanoseconds(clockid_t clock) {
  timespec moment;
  clock_gettime(clock, &moment);
  return moment.tv_sec * 1'000'000'000LL + moment.tv_nsec;
}

// A moment in a loop that waits for another thread.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// What this thread needs to throw. It is made when it is first touched, and without memory for it the process ends; so it
// is touched before a task runs out of memory.
void touch_exceptions() {
  [[maybe_unused]] volatile int num_uncaught = std::uncaught_exceptions();  // a pure function: unused, it is not called
}

}  // namespace

struct Team::State {
  // what different threads write lies on different lines
  alignas(LINE) std::atomic<int64_t> word{0};
  alignas(LINE) std::atomic<int64_t> done{0};
  alignas(LINE) std::atomic<Task> task{nullptr};
  std::atomic<const void*> job{nullptr};
  std::atomic<int64_t> num_tasks{0};
  std::atomic<int64_t> num_invited{0};
  alignas(LINE) std::atomic<int64_t> num_sleeping{0};
  std::atomic<int64_t> num_started{0};
  std::atomic<bool> is_over{false};
  // the caller's own
  alignas(LINE) std::atomic<bool> is_taken{false};
  int64_t took = 0, alone = 0, num_jobs = 0, rest = 0, last_rest = 0;
  std::mutex mutex;
  std::condition_variable condition;
  std::exception_ptr failure;  // of a task of the job under way, under the mutex
  std::vector<std::thread> helpers;

  int64_t claim(int64_t tasks);
  void do_task(Task own_task, const void* own_job, int64_t index) noexcept;
  void judge(int64_t job_took, int64_t job_alone);
  void help_out(int64_t index);
  void sleep(int64_t index);
};

// The next task of the job under way; -1 if there is none left.
int64_t Team::State::claim(int64_t tasks) {
  int64_t now = word;
  while (now & TASKS_LEFT) {
    if (word.compare_exchange_weak(now, now - 1)) return tasks - (now & TASKS_LEFT);
  }
  return -1;
}

// The caller must not leave a job while another thread is at it, so what a task throws is kept for the end.
void Team::State::do_task(Task own_task, const void* own_job, int64_t index) noexcept {
  try {
    own_task(own_job, index);
  } catch (...) {
    std::lock_guard lock(mutex);
    failure = std::current_exception();
  }
}

// After some jobs: whether they took less, by a tenth at least, than the caller alone would have taken.
void Team::State::judge(int64_t job_took, int64_t job_alone) {
  took += job_took, alone += job_alone, num_jobs++;
  if (num_jobs < TRIAL && took - alone <= LOSS) return;
  if (10 * took > 9 * alone) {
    rest = last_rest = std::min(LONGEST_REST, std::max(FIRST_REST, 2 * last_rest));
  } else {
    last_rest /= 4;
  }
  took = alone = num_jobs = 0;
}

// The loop of helper `index`: takes tasks, waits and sleeps until the team ends.
void Team::State::help_out(int64_t index) {
  touch_exceptions();
  num_started++;
  int looks = 0;
  while (!is_over) {
    int64_t now = word;
    const int64_t left = now & TASKS_LEFT;
    if (left && index < num_invited) {
      const Task own_task = task;
      const void* own_job = job;
      const int64_t tasks = num_tasks;
      if (word.compare_exchange_strong(now, now - 1)) {  // so all that was read is of this job
        do_task(own_task, own_job, tasks - left);
        done++;
      }
      looks = 0;
    } else if (looks < LOOKS) {
      pause();
      looks++;
    } else {
      sleep(index);
      looks = 0;
    }
  }
}

void Team::State::sleep(int64_t index) {
  std::unique_lock lock(mutex);
  num_sleeping++;  // from here on a job that is published wakes us
  condition.wait(lock, [&] { return is_over || ((word & TASKS_LEFT) && index < num_invited); });
  num_sleeping--;
}

Team::Team() : state_(new State) {}

Team::~Team() {
  {
    std::lock_guard lock(state_->mutex);
    state_->is_over = true;
  }
  state_->condition.notify_all();
  for (std::thread& helper : state_->helpers) helper.join();
  delete state_;
}

void Team::forget() { state_ = new State; }

int64_t Team::num_helpers() const { return state_->helpers.size(); }

bool Team::take(int64_t num_threads) noexcept {
  touch_exceptions();
  if (state_->is_taken.exchange(true)) return false;
  std::vector<std::thread>& helpers = state_->helpers;
  try {
    while ((int64_t)helpers.size() < num_threads - 1) {
      helpers.reserve(num_threads - 1);
      helpers.emplace_back(&State::help_out, state_, (int64_t)helpers.size());
    }
  } catch (...) {
    // there is no memory or no thread left for this process: go on with those that there are
  }
  while (state_->num_started < (int64_t)helpers.size()) sched_yield();
  state_->num_invited = std::min(num_threads - 1, (int64_t)helpers.size());
  return true;
}

void Team::give_back() noexcept { state_->is_taken = false; }

void Team::share(Task task, const void* job, int64_t num_tasks) {
  State& s = *state_;
  if (s.rest > 0 || !s.num_invited) {
    s.rest = std::max<int64_t>(0, s.rest - 1);
    for (int64_t index = 0; index < num_tasks; index++) task(job, index);
    return;
  }
  const int64_t begin = nanoseconds(CLOCK_MONOTONIC), own_begin = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  s.task = task, s.job = job, s.num_tasks = num_tasks, s.done = 0;
  s.word = (((s.word >> 32) + 1) & 0x3FFFFFFF) << 32 | num_tasks;
  if (s.num_sleeping > 0) {
    std::lock_guard lock(s.mutex);
    s.condition.notify_all();
  }
  int64_t num_own = 0;
  for (int64_t index = s.claim(num_tasks); index >= 0; index = s.claim(num_tasks)) {
    s.do_task(task, job, index);
    num_own++;
  }
  const int64_t worked = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - own_begin;
  for (int looks = 1; s.done < num_tasks - num_own; looks++) {
    looks < PATIENCE ? pause() : (void)sched_yield();
  }
  if (num_own > 0) s.judge(nanoseconds(CLOCK_MONOTONIC) - begin, worked * num_tasks / num_own);
  if (s.failure) std::rethrow_exception(std::exchange(s.failure, nullptr));
}

}  // namespace phloem::kernels
