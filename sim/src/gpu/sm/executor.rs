//! Runs launches.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::{Clock, Time};
use crate::defects::Defects;
use crate::findings::{Checks, Finding, Findings};
use crate::gpu::sm::check::Watch;
use crate::gpu::sm::check::copies::{Copied, check_copy};
use crate::gpu::sm::check::in_ledger::Watched;
use crate::gpu::sm::code::{Code, CodeKey};
use crate::gpu::sm::counters::Counters;
use crate::gpu::sm::environment::Environment;
use crate::gpu::sm::fault::{Fault, esr};
use crate::gpu::sm::grid::{Grid, Progress, Turn};
use crate::gpu::sm::l2::L2;
use crate::gpu::sm::lanes::Isa;
use crate::gpu::sm::launch::{Config, Launch, Memory, Schedule};
use crate::gpu::sm::target::Target;
use crate::gpu::sm::translate::extend;
use crate::gpu::sm::worker::Worker;

/// Runs launches and keeps the programs it has lowered.
pub struct Executor {
    config: Config,
    defects: Defects,
    isa: Isa,
    pool: Option<rayon::ThreadPool>,
    programs: Mutex<HashMap<CodeKey, Arc<Code>>>,
    /// Number of invalidations of the programs: a launch that began before the last keeps nothing.
    invalidations: AtomicU64,
    l2: Option<L2>,
    findings: Arc<Findings>,
    clock: Clock,
}

/// A launch that has begun, between its time slices.
pub(crate) struct Running {
    launch: Launch,
    target: Target,
    key: CodeKey,
    /// The program as it was found.
    before: Arc<Code>,
    invalidations: u64,
    progress: Progress,
    counters: Counters,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("launch", &self.launch).finish_non_exhaustive()
    }
}

impl Running {
    /// Returns the launch that runs.
    pub(crate) fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Whether no block of it is on an SM, or waits to go on there.
    pub(crate) fn is_between_blocks(&self) -> bool {
        self.progress.is_between_blocks()
    }

    /// Whether it can go on after the fault that stopped it: a launch that takes too long can, one whose
    /// warps wait for each other cannot.
    pub(crate) fn can_go_on(&self) -> bool {
        self.progress.is_intact()
    }
}

/// The code at `program`. Where a warp claims more registers than the launch gives, code may name those.
fn translated(memory: &dyn Memory, target: Target, program: u64) -> Code {
    let with = |registers: u32| {
        let mut code = Code::new(registers);
        extend(&mut code, memory, Target { registers, ..target }, program);
        code
    };
    let code = with(target.registers);
    if code.claimed > target.registers { with(code.claimed.min(255)) } else { code }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("config", &self.config)
            .field("isa", &self.isa)
            .finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor with its own worker threads, on the host's clock.
    pub fn new(config: Config) -> Self {
        Self::with_time(config, &Time::Host)
    }

    /// An executor with its own worker threads. The time its kernels read begins now, or is that of the
    /// virtual clock.
    pub fn with_time(config: Config, time: &Time) -> Self {
        Self::on(config, Defects::empty(), Clock::new(time), Arc::default())
    }

    /// An executor of a machine with `defects` whose clock is `clock`, and which keeps what checks find in
    /// `findings`.
    pub(crate) fn on(config: Config, defects: Defects, clock: Clock, findings: Arc<Findings>) -> Self {
        let workers = match (config.schedule, config.workers) {
            _ if !config.checks.is_empty() => 1,
            (Schedule::Deterministic | Schedule::Shuffled(_), _) => 1,
            (Schedule::Parallel, 0) => std::thread::available_parallelism().map_or(1, usize::from),
            (Schedule::Parallel, n) => n,
        };
        // Without a second thread to be had, the caller's does all the work.
        let pool = (workers > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(workers)
                .thread_name(|i| format!("sm-worker-{i}"))
                .build()
                .ok()
        });
        let isa = if config.host_simd { Isa::detect() } else { Isa::Baseline };
        Executor {
            config,
            defects,
            isa,
            pool: pool.flatten(),
            programs: Mutex::default(),
            invalidations: AtomicU64::new(0),
            l2: config.l2.map(L2::new),
            findings,
            clock,
        }
    }

    /// Runs a launch to its end, on the caller's thread and the workers.
    ///
    /// Setting `stop` ends it early, without an error, at the end of the current time slices.
    ///
    /// # Errors
    /// The first [`Fault`] that a warp raised. Memory then holds what had been written by that time.
    pub fn run(&self, memory: &dyn Memory, launch: &Launch, stop: &AtomicBool) -> Result<Counters, Fault> {
        let mut running = self.start(memory, launch.clone(), stop, None)?;
        loop {
            if let Some(counters) = self.advance(&mut running, memory, stop, Turn::WHOLE)? {
                return Ok(counters);
            }
        }
    }

    /// Begins a launch, of which nothing has run yet; `work` is its number in a ledger.
    ///
    /// # Errors
    /// A launch that the hardware's front end would not let through.
    pub(crate) fn start(
        &self,
        memory: &dyn Memory,
        launch: Launch,
        stop: &AtomicBool,
        work: Option<Watched>,
    ) -> Result<Running, Fault> {
        self.check(&launch)?;
        self.findings.begin_launch(launch.arch.sm(), self.config.checks);
        if let (false, Some(pieces)) = (self.config.checks.is_empty(), memory.pieces()) {
            pieces.begin_launch();
        }
        let mut target = Target {
            arch: launch.arch,
            isa: self.isa,
            registers: launch.registers.min(255),
            barriers: launch.barriers,
            exact_mma: self.config.exact_mma,
            defects: self.defects,
        };
        let key = CodeKey {
            program: launch.program,
            arch_sm: launch.arch.sm(),
            registers: target.registers,
            barriers: target.barriers,
        };
        let known = self.programs().get(&key).cloned();
        let code = known.unwrap_or_else(|| Arc::new(translated(memory, target, launch.program)));
        target.registers = code.layout.registers.into();
        let invalidations = self.invalidations.load(Relaxed);
        let progress = {
            let env = self.environment(&launch, memory, target, stop);
            let watch = (!self.config.checks.is_empty())
                .then(|| Box::new(Watch::new(&self.config, Arc::clone(&self.findings), work)));
            Progress::new(&env, &self.config, code.clone(), watch)
        };
        Ok(Running {
            key,
            target,
            progress,
            before: code,
            invalidations,
            counters: Counters::default(),
            launch,
        })
    }

    /// Runs a launch until it ends, which gives its counters, or until it has had a time slice and `wanted`
    /// returns that something else waits.
    ///
    /// # Errors
    /// As those of [`run`](Self::run); the launch has ended then.
    pub(crate) fn advance(
        &self,
        running: &mut Running,
        memory: &dyn Memory,
        stop: &AtomicBool,
        turn: Turn<'_>,
    ) -> Result<Option<Counters>, Fault> {
        let Running { launch, target, progress, counters, .. } = running;
        let grid = Grid::new(self.environment(launch, memory, *target, stop), progress, &self.config, turn);
        let mut add = |part: Counters| {
            let busiest = counters.busiest_block_instructions.max(part.busiest_block_instructions);
            *counters += part;
            counters.busiest_block_instructions = busiest;
        };
        match &self.pool {
            Some(pool) if launch.blocks() > 1 => {
                pool.broadcast(|_| Worker::new(&grid).run()).into_iter().for_each(&mut add);
            }
            _ => add(Worker::new(&grid).run()),
        }
        counters.launches = 1;
        let stopped = grid.env.is_stopping();
        let fault = grid.into_fault();
        if fault.is_none() && !stopped && !progress.is_complete(launch) {
            return Ok(None);
        }
        let code = progress.code();
        self.findings.tell_counts();
        // One that does not get on goes on, and one that was stopped has not ended.
        if fault.as_ref().map_or(progress.is_complete(launch), |fault| fault.code != esr::NONE) {
            self.findings.end_launch();
        }
        let grown = !Arc::ptr_eq(&running.before, &code);
        if (fault.is_none() || grown) && running.invalidations == self.invalidations.load(Relaxed) {
            self.programs().insert(running.key, code);
        }
        match fault {
            Some(fault) => Err(fault),
            None => Ok(Some(running.counters)),
        }
    }

    /// The seed of the order in which work runs that nothing orders; `None` where it runs in the order of
    /// submission.
    pub(crate) fn free_order(&self) -> Option<u64> {
        match self.config.schedule {
            Schedule::Shuffled(seed) if self.config.checks.contains(Checks::ORDER) => Some(seed),
            _ => None,
        }
    }

    /// Returns the findings of [`Config::checks`] so far, in the order in which they were noticed first.
    pub fn findings(&self) -> Vec<Finding> {
        self.findings.all()
    }

    /// Mistakes that are searched for.
    pub(crate) fn checks(&self) -> Checks {
        self.config.checks
    }

    /// Compares a copy of the copy engine with the program's notes on its memory.
    pub(crate) fn check_copy(&self, memory: &dyn Memory, copy: &Copied) {
        if self.config.checks.contains(Checks::MEMORY) {
            check_copy(&self.findings, memory, copy);
        }
    }

    /// Forgets lowered programs: the next launch fetches its code from memory again.
    pub fn invalidate_code(&self) {
        let mut programs = self.programs();
        self.invalidations.fetch_add(1, Relaxed);
        programs.clear();
    }

    fn environment<'a>(
        &'a self,
        launch: &'a Launch,
        memory: &'a dyn Memory,
        target: Target,
        stop: &'a AtomicBool,
    ) -> Environment<'a> {
        Environment {
            launch,
            memory,
            target,
            l2: self.l2.as_ref(),
            checks: self.config.checks,
            clock: &self.clock,
            stop,
            failed: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
        }
    }

    fn programs(&self) -> std::sync::MutexGuard<'_, HashMap<CodeKey, Arc<Code>>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses launches that the hardware's front end would not let through.
    fn check(&self, launch: &Launch) -> Result<(), Fault> {
        let threads = launch.threads_per_block();
        let why = if threads == 0 || threads > 1024 {
            format!("{threads} threads per block; 1 to 1024 are possible")
        } else if launch.blocks() == 0 {
            "a grid without blocks".to_owned()
        } else if launch.local_bytes > 1 << 24 {
            format!("{} bytes of local memory per thread; the window holds 16 MiB", launch.local_bytes)
        } else if launch.shared_bytes > 1 << 24 {
            format!("{} bytes of shared memory; the window holds 16 MiB", launch.shared_bytes)
        } else {
            return Ok(());
        };
        Err(Fault {
            code: esr::ILLEGAL_INSTR_PARAM,
            pc: launch.program,
            block: [0; 3],
            sm: 0,
            warp: 0,
            lanes: 0,
            address: None,
            mmu: None,
            text: why,
            found: false,
            place: None,
            state: None,
        })
    }
}
