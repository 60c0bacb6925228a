//! The model's time: every time-out, PTIMER read, patience and stall budget goes through a [`Clock`].
//!
//! A machine's clock follows the host's, or it is virtual ([`Time`], chosen in
//! [`SimConfig::time`](crate::SimConfig::time)). Virtual time advances by three things only:
//!
//! - work of the GPU: each warp instruction takes [`VirtualClock::instruction_time`];
//! - waiting in the model: when the GPU has nothing to do, time jumps to the next deadline that something
//!   waits for;
//! - [`VirtualClock::advance`].
//!
//! So a time-out of seconds passes in a test without waiting, and only after the GPU has done its pending
//! work. The clock does not know the next action of a program on the CPU: a wait that only such a program
//! ends times out.
//!
//! Not part of the model's time, and always real: how often the model's threads poll the doorbell and closed
//! descriptors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time since boot that a machine starts with, as one that has been up for a moment.
const UPTIME: Duration = Duration::from_secs(60);
/// Wall clock of a virtual machine's boot: 2024-01-01, in nanoseconds since 1970.
const VIRTUAL_BOOT: u64 = 1_704_067_200_000_000_000;
/// Passes without work after which the GPU is idle: one may have begun before its last command was there.
const QUIET_PASSES: u64 = 2;
/// Time that a wait in virtual time sleeps until it checks its condition again.
const RECHECK: Duration = Duration::from_micros(200);

/// Time of a machine: the host's or virtual.
#[derive(Clone, Debug, Default)]
pub enum Time {
    /// The host's clock.
    #[default]
    Host,
    /// Virtual time. Machines that share the clock share the time.
    Virtual(VirtualClock),
}

/// Virtual time, held by a test and by the machine that lives in it. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Nanoseconds that a warp instruction takes.
    instruction: u64,
    /// Nanoseconds since boot.
    now: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Pending deadlines, in nanoseconds since boot.
    deadlines: Vec<u64>,
    /// Passes of the GPU without work in a row.
    quiet: u64,
}

impl State {
    /// The next pending deadline after `now`.
    fn next_after(&self, now: u64) -> Option<u64> {
        self.deadlines.iter().copied().filter(|at| *at > now).min()
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new(Duration::from_micros(1))
    }
}

impl VirtualClock {
    /// A clock on which every warp instruction takes `instruction`, one after the other on whichever SM it
    /// runs. The default is 1 µs, with which a kernel that does not end reaches a time-out of seconds
    /// within millions of instructions.
    pub fn new(instruction: Duration) -> Self {
        let shared = Shared {
            instruction: nanoseconds(instruction),
            now: AtomicU64::new(nanoseconds(UPTIME)),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Duration of a warp instruction.
    pub fn instruction_time(&self) -> Duration {
        Duration::from_nanos(self.shared.instruction)
    }

    /// Time since the machine's boot.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now.load(Ordering::Acquire))
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.shared.now.fetch_add(nanoseconds(by), Ordering::AcqRel);
        self.shared.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as [`Clock::wait`].
    fn wait(&self, deadline: Option<&Deadline>, done: &mut dyn FnMut() -> bool) -> bool {
        self.state().quiet = 0;
        loop {
            if done() {
                return true;
            }
            if deadline.is_some_and(Deadline::is_over) {
                return false;
            }
            let mut state = self.state();
            if state.quiet >= QUIET_PASSES
                && let Some(next) = state.next_after(self.shared.now.load(Ordering::Acquire))
            {
                // The jump triggers work of the GPU, which has to be done before the next one.
                self.shared.now.fetch_max(next, Ordering::AcqRel);
                state.quiet = 0;
                continue;
            }
            drop(self.shared.changed.wait_timeout(state, RECHECK));
        }
    }
}

/// The clock of a machine. Clones are the same clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Host { boot: Instant },
    Virtual(VirtualClock),
}

/// A moment of the model's time. While it exists, virtual time jumps to it rather than past it.
#[derive(Debug)]
pub(crate) struct Deadline {
    clock: Clock,
    /// Nanoseconds since boot.
    at: u64,
}

impl Clock {
    /// The clock of a machine that boots now.
    pub(crate) fn new(time: &Time) -> Self {
        let source = match time {
            Time::Host => {
                let now = Instant::now();
                Source::Host { boot: now.checked_sub(UPTIME).unwrap_or(now) }
            }
            Time::Virtual(clock) => Source::Virtual(clock.clone()),
        };
        Self { source }
    }

    /// Nanoseconds since boot.
    fn now(&self) -> u64 {
        match &self.source {
            Source::Host { boot } => nanoseconds(boot.elapsed()),
            Source::Virtual(clock) => clock.shared.now.load(Ordering::Acquire),
        }
    }

    /// PTIMER: nanoseconds, a multiple of 32 (the source runs at 31.25 MHz).
    pub(crate) fn ptimer(&self) -> u64 {
        self.now() & !31
    }

    /// Time since boot, as the kernel log prints it.
    pub(crate) fn uptime(&self) -> Duration {
        Duration::from_nanos(self.now())
    }

    /// Wall-clock nanoseconds, as the error notifier records them.
    pub(crate) fn wall(&self) -> u64 {
        match &self.source {
            Source::Host { .. } => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds),
            Source::Virtual(_) => VIRTUAL_BOOT + self.now(),
        }
    }

    /// The time as an instruction of a kernel reads it, in nanoseconds.
    pub(crate) fn read_by_kernel(&self) -> u64 {
        // The read is an instruction too, so that a kernel that only polls the time sees it pass.
        self.worked(1);
        self.now()
    }

    /// The moment `after` from now.
    pub(crate) fn deadline(&self, after: Duration) -> Deadline {
        let at = self.now().saturating_add(nanoseconds(after));
        if let Source::Virtual(clock) = &self.source {
            clock.state().deadlines.push(at);
        }
        Deadline { clock: self.clone(), at }
    }

    /// Waits until `done` or until the deadline, where there is one; false when the deadline came first. On
    /// the host's clock `done` is polled every `step`. The GPU's own thread must not wait: it is what
    /// makes conditions come true.
    pub(crate) fn wait(
        &self,
        deadline: Option<&Deadline>,
        step: Duration,
        mut done: impl FnMut() -> bool,
    ) -> bool {
        if let Source::Virtual(clock) = &self.source {
            return clock.wait(deadline, &mut done);
        }
        while !done() {
            if deadline.is_some_and(Deadline::is_over) {
                return false;
            }
            std::thread::sleep(step);
        }
        true
    }

    /// Charges `time` for the model's next action.
    pub(crate) fn spend(&self, time: Duration) {
        match &self.source {
            Source::Host { .. } => std::thread::sleep(time),
            Source::Virtual(clock) => clock.advance(time),
        }
    }

    /// The SMs executed warp instructions. On the host's clock they have taken their time already.
    pub(crate) fn worked(&self, instructions: u64) {
        if let Source::Virtual(clock) = &self.source {
            let time = instructions.saturating_mul(clock.shared.instruction);
            clock.shared.now.fetch_add(time, Ordering::AcqRel);
        }
    }

    /// The GPU's thread polled all channels; `worked` if any of them had work.
    pub(crate) fn pass(&self, worked: bool) {
        if let Source::Virtual(clock) = &self.source {
            let mut state = clock.state();
            state.quiet = if worked { 0 } else { state.quiet + 1 };
            drop(state);
            clock.shared.changed.notify_all();
        }
    }

    /// A budget of `instructions` without progress; 0 for no limit.
    pub(crate) fn stall_budget(&self, instructions: u64) -> StallBudget {
        let (idle, spent) = (AtomicU64::new(0), AtomicU64::new(0));
        StallBudget { clock: self.clone(), limit: instructions, idle, spent }
    }
}

impl Deadline {
    /// Whether the deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.clock.now() >= self.at
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Source::Virtual(clock) = &self.clock.source {
            let mut state = clock.state();
            if let Some(i) = state.deadlines.iter().position(|at| *at == self.at) {
                state.deadlines.swap_remove(i);
            }
        }
    }
}

/// Budgets without stores are shorter than those with stores by this factor.
const STORING: u64 = 8;

/// Warp instructions that a launch may execute without progress. It counts work and not time, so that a slow
/// host shortens nothing. A launch that stores gets further in general, so it may run longer until a block
/// ends.
#[derive(Debug)]
pub(crate) struct StallBudget {
    clock: Clock,
    limit: u64,
    /// Since something was stored.
    idle: AtomicU64,
    /// Since a block ended.
    spent: AtomicU64,
}

impl StallBudget {
    /// Instructions were executed, among them stores or not; gives their number since the last progress once
    /// that is more than the budget.
    pub(crate) fn spend(&self, instructions: u64, stored: bool) -> Option<u64> {
        self.clock.worked(instructions);
        let spent = self.spent.fetch_add(instructions, Ordering::Relaxed) + instructions;
        let stalled = if stored {
            self.idle.store(0, Ordering::Relaxed);
            (self.limit != 0 && spent > self.limit.saturating_mul(STORING)).then_some(spent)
        } else {
            let idle = self.idle.fetch_add(instructions, Ordering::Relaxed) + instructions;
            (self.limit != 0 && idle > self.limit).then_some(idle)
        };
        // A launch that makes progress after that has the whole budget again.
        if stalled.is_some() {
            self.spent.store(0, Ordering::Relaxed);
            self.idle.store(0, Ordering::Relaxed);
        }
        stalled
    }

    /// The launch made progress with the last of those instructions.
    pub(crate) fn progress(&self, instructions: u64) {
        self.clock.worked(instructions);
        self.spent.store(0, Ordering::Relaxed);
        self.idle.store(0, Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn virtual_clock() -> (VirtualClock, Clock) {
        let handle = VirtualClock::new(Duration::from_nanos(32));
        (handle.clone(), Clock::new(&Time::Virtual(handle)))
    }

    #[test]
    fn virtual_time_passes_by_work_and_by_advancing_only() {
        let (handle, clock) = virtual_clock();
        let start = clock.ptimer();
        assert_eq!(start, 60_000_000_000);
        clock.worked(10);
        handle.advance(Duration::from_nanos(32));
        clock.spend(Duration::from_nanos(64));
        assert_eq!(clock.ptimer() - start, 13 * 32);
        assert_eq!(clock.read_by_kernel() - start, 14 * 32);
        assert_eq!(clock.wall() - VIRTUAL_BOOT, clock.now());
    }

    #[test]
    fn a_wait_jumps_to_the_next_deadline_once_the_gpu_is_idle() {
        let (handle, clock) = virtual_clock();
        let start = handle.now();
        let (late, early) = (clock.deadline(2 * HOUR), clock.deadline(HOUR));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| clock.wait(Some(&early), HOUR, || false));
            while !waiter.is_finished() {
                clock.pass(false);
                std::thread::yield_now();
            }
            assert!(!waiter.join().unwrap());
        });
        assert!(early.is_over() && !late.is_over());
        assert_eq!(handle.now() - start, HOUR);
    }

    #[test]
    fn a_wait_ends_when_its_condition_holds_however_long_the_gpu_works() {
        let (handle, clock) = virtual_clock();
        let start = handle.now();
        let deadline = clock.deadline(HOUR);
        let passes = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| clock.wait(Some(&deadline), HOUR, || passes.load(Ordering::Acquire) > 100));
            while !waiter.is_finished() {
                clock.pass(true);
                passes.fetch_add(1, Ordering::AcqRel);
                std::thread::yield_now();
            }
            assert!(waiter.join().unwrap());
        });
        assert_eq!(handle.now(), start);
    }

    #[test]
    fn a_deadline_that_nobody_has_any_more_is_no_reason_to_jump() {
        let (_, clock) = virtual_clock();
        drop(clock.deadline(HOUR));
        let Source::Virtual(inner) = &clock.source else { panic!("a virtual clock") };
        assert!(inner.state().deadlines.is_empty());
    }

    #[test]
    fn the_host_s_clock_reaches_its_deadlines_by_itself() {
        let clock = Clock::new(&Time::Host);
        let deadline = clock.deadline(Duration::from_micros(50));
        assert!(!clock.wait(Some(&deadline), Duration::from_micros(10), || false));
        assert!(deadline.is_over() && clock.uptime() > UPTIME);
    }

    #[test]
    fn a_stall_budget_counts_from_the_last_progress() {
        let (handle, clock) = virtual_clock();
        let start = handle.now();
        let budget = clock.stall_budget(100);
        assert_eq!((budget.spend(60, false), budget.spend(41, false)), (None, Some(101)));
        budget.progress(9);
        assert_eq!(budget.spend(100, false), None);
        assert_eq!(handle.now() - start, Duration::from_nanos(32 * 210));
        assert_eq!(clock.stall_budget(0).spend(1 << 40, false), None);
    }

    #[test]
    fn a_launch_that_stores_may_run_eight_times_as_long_until_a_block_ends() {
        let (_, clock) = virtual_clock();
        let budget = clock.stall_budget(100);
        assert_eq!(
            (budget.spend(90, false), budget.spend(90, true), budget.spend(90, false)),
            (None, None, None)
        );
        assert_eq!(budget.spend(530, true), None);
        assert_eq!(budget.spend(1, true), Some(801));
    }
}
