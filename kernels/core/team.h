// A team of threads that share the tasks of a loop (self-scheduling), useful on a busy machine too.
//
//     caller      publish - task - task - task ----------- wait - next loop, a microsecond later
//     helper 1         `- task - task - task - task - done
//     helper 2               (has no processor now: claims nothing, and is not waited for)
//
// Tasks are claimed one by one, from one word that all threads see; the caller claims as helpers do, so a helper
// that is not running delays nothing: at the end the caller waits only for tasks that are under way. Teams with a fixed
// share for each thread (OpenMP's) wait at the end of every loop for the slowest, which on a busy machine has often not
// even begun: a decode step of some hundred loops then takes ten times as long as alone.
//
// A helper without a task spins for some hundred microseconds and then sleeps. Whether helpers help is measured all
// the time: what jobs took, against what the caller alone would have taken on a processor of its own, at the pace of
// its own tasks. If they do not, it works alone for a number of jobs, twice as many each time, and then tries again
// (exponential backoff).
//
// Which thread does a task never changes what it computes; the tasks see to that.
#pragma once
#include <cstdint>

namespace phloem::kernels {

// A task of a job: reads the job, and writes where no other task does. May throw if memory runs out.
using Task = void (*)(const void* job, int64_t index);

// One job at a time. Helpers are started when they are first needed, and end with the team.
class Team {
 public:
  Team();
  // Ends the helpers, each after its present task.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Whether the team was free, and is the caller's now, until `give_back`; ready for that many threads, the caller's
  // included, or for fewer if memory or threads run out. Never throws.
  bool take(int64_t num_threads) noexcept;
  void give_back() noexcept;
  // Does tasks 0 ... num_tasks - 1, by the caller and the helpers that are free, and returns when all are done. If some
  // throw, the others are done all the same, and one of the exceptions is thrown then. Only between `take` and
  // `give_back`.
  void share(Task task, const void* job, int64_t num_tasks);
  // Begins anew, without threads: after a fork the process has none of them, and their locks stay locked for ever.
  void forget();
  // Helpers that there are.
  int64_t num_helpers() const;

  int64_t num_threads = 0;  // that loops may use, the caller's included; 0: not set

 private:
  struct State;
  State* state_;
};

// The team for the time of one loop: the caller's if it is free and there is more than one thread to share with.
class Lease {
 public:
  Lease(Team* team, int64_t num_threads) : team_(num_threads > 1 && team->take(num_threads) ? team : nullptr) {}
  ~Lease() {
    if (team_) team_->give_back();
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  explicit operator bool() const { return team_; }
  void share(Task task, const void* job, int64_t num_tasks) const {
    if (team_ && num_tasks > 1) return team_->share(task, job, num_tasks);
    for (int64_t index = 0; index < num_tasks; index++) task(job, index);
  }

 private:
  Team* team_;
};

}  // namespace phloem::kernels
