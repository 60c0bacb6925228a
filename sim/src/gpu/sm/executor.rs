//! Runs launches.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::{Clock, Time};
use crate::gpu::sm::code::{Code, CodeKey};
use crate::gpu::sm::counters::Counters;
use crate::gpu::sm::environment::Environment;
use crate::gpu::sm::fault::{Fault, esr};
use crate::gpu::sm::grid::Grid;
use crate::gpu::sm::l2::L2;
use crate::gpu::sm::lanes::Isa;
use crate::gpu::sm::launch::{Config, Launch, Memory, Schedule};
use crate::gpu::sm::target::Target;
use crate::gpu::sm::translate::extend;
use crate::gpu::sm::worker::Worker;

/// Runs launches and keeps the programs it has lowered.
pub struct Executor {
    config: Config,
    isa: Isa,
    pool: Option<rayon::ThreadPool>,
    programs: Mutex<HashMap<CodeKey, Arc<Code>>>,
    l2: Option<L2>,
    clock: Clock,
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
        Self::on(config, Clock::new(time))
    }

    /// An executor of a machine whose clock is `clock`.
    pub(crate) fn on(config: Config, clock: Clock) -> Self {
        let workers = match (config.schedule, config.workers) {
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
            isa,
            pool: pool.flatten(),
            programs: Mutex::default(),
            l2: config.l2.map(L2::new),
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
        self.check(launch)?;
        let target = Target {
            arch: launch.arch,
            isa: self.isa,
            registers: launch.registers.min(255),
            barriers: launch.barriers,
            exact_mma: self.config.exact_mma,
        };
        let key = CodeKey {
            program: launch.program,
            arch_sm: launch.arch.sm(),
            registers: target.registers,
            barriers: target.barriers,
        };
        let known = self.programs().get(&key).cloned();
        let code = known.unwrap_or_else(|| {
            let mut code = Code::new(target.registers);
            extend(&mut code, memory, target, launch.program);
            Arc::new(code)
        });
        let before = code.clone();
        let env = Environment {
            launch,
            memory,
            target,
            l2: self.l2.as_ref(),
            clock: &self.clock,
            stop,
            failed: AtomicBool::new(false),
        };
        let grid = Grid::new(env, &self.config, code);
        let mut counters = match &self.pool {
            Some(pool) if launch.blocks() > 1 => {
                let mut total = Counters::default();
                for part in pool.broadcast(|_| Worker::new(&grid).run()) {
                    let busiest = total.busiest_block_instructions.max(part.busiest_block_instructions);
                    total += part;
                    total.busiest_block_instructions = busiest;
                }
                total
            }
            _ => Worker::new(&grid).run(),
        };
        counters.launches = 1;
        let (fault, code) = grid.into_fault();
        if fault.is_none() || !Arc::ptr_eq(&before, &code) {
            self.programs().insert(key, code);
        }
        match fault {
            Some(fault) => Err(fault),
            None => Ok(counters),
        }
    }

    /// Forgets lowered programs: the next launch fetches its code from memory again.
    pub fn invalidate_code(&self) {
        self.programs().clear();
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
        })
    }
}
