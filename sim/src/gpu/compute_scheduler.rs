//! The compute scheduler (SKED and the work distributor): descriptors (QMD) checked, run, and what follows them.

use crate::defects::Defects;
use crate::gpu::context::{Context, Flow};
use crate::gpu::exception::{Exception, HubClient};
use crate::gpu::flight::Flights;
use crate::gpu::semaphore::{Reduce, Write};
use crate::gpu::sm;
use crate::gpu::sm::executor::Running;
use crate::gpu::sm::grid::Turn;
use crate::gpu::sm::launch::Memory as _;
use crate::order::known::Before;
use crate::order::ledger::Visible;
use crate::order::work::{LaunchShape, Parts, Work, WorkId};
use crate::violations::Consequence;
use qmd::{DependentAction, Effect, Qmd, SkedCheck};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// State that methods set for the next launches.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComputeState {
    /// Base of the shared-memory window.
    pub(crate) shared_window: u64,
    /// Base of the local-memory window.
    pub(crate) local_window: u64,
    /// Memory that backs the local window.
    pub(crate) local_memory: u64,
    /// Bytes of it for each TPC.
    pub(crate) local_per_tpc: u64,
    /// SMs it is meant for.
    pub(crate) local_max_sms: u32,
    /// Errors of SMs are not reported.
    pub(crate) exceptions_masked: bool,
}

/// Launches of a chain after which other channels are served.
const TURN: u32 = 64;
/// Launches of a chain after which one that leads back into itself counts as one that does not end.
const LONGEST_CYCLE: u32 = 1 << 16;

/// A step of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// With a launch that has begun.
    GoOn(usize),
    /// With one that has not.
    Begin(usize),
}

/// Launches of a channel that run side by side where nothing orders them.
const SIDE_BY_SIDE: usize = 4;

/// A launch that has begun.
#[derive(Debug)]
struct Active {
    running: Running,
    order: Ordered,
    qmd: Qmd,
}

/// A launch as it is ordered.
#[derive(Clone, Debug)]
struct Ordered {
    /// Address of its descriptor.
    va: u64,
    /// State of the methods when it was handed over.
    state: ComputeState,
    /// Its number in the ledger.
    work: Option<WorkId>,
    /// Its parts there, if it began before the work ahead of it had ended.
    parts: Option<Parts>,
}

/// A descriptor to schedule.
#[derive(Debug)]
struct Next {
    va: u64,
    state: ComputeState,
    before: Before,
}

/// The scheduler of one channel.
#[derive(Debug, Default)]
pub(crate) struct ComputeScheduler {
    grids: u64,
    /// The launch that has the SMs when the channel has its turn; several in free order.
    running: Vec<Active>,
    /// Descriptors to schedule after it, or beside it in free order.
    next: VecDeque<Next>,
    /// Work that precedes descriptors with a dependence counter, by their addresses.
    counted: HashMap<u64, Before>,
    /// Latches that grids have arrived at, and no other has waited for since.
    latches: HashSet<u32>,
    flights: Flights,
    /// Launches since the method that began the chain.
    chain: u32,
    /// The chain's descriptor at the last power of two of them: a cycle comes back to it (Brent).
    landmark: u64,
    /// Whether the chain leads back to it.
    cyclic: bool,
    /// A launch has begun that makes no progress and does not end.
    stuck: bool,
    /// A launch without an end was reported.
    reported: bool,
}

impl ComputeScheduler {
    /// Schedules the descriptor at `va` and its dependents, by an action that copies it or not. Unless the
    /// order is free, they run now.
    pub(crate) fn launch(
        &mut self,
        context: &Context<'_>,
        state: &ComputeState,
        va: u64,
        copies: bool,
    ) -> Result<Flow, Exception> {
        let known = context.front.map(|front| front.ledger.state().front(front.line)).unwrap_or_default();
        let before = Before { known, early: None };
        if context.front.is_some() {
            self.flights.submit(&context.memory, context.units.chip.arch.version(), va);
        }
        if copies && copy_counter(context, va)? > 0 {
            // It starts when the last of those it depends on has ended.
            if context.front.is_some() {
                self.counted.entry(va).or_default().join(&before);
            }
            return Ok(Flow::Next);
        }
        self.next.push_back(Next { va, state: state.clone(), before });
        (self.chain, self.cyclic) = (0, false);
        match context.choices {
            Some(_) => Ok(Flow::Next),
            None => self.advance(context),
        }
    }

    /// Whether launches have begun that have not ended.
    pub(crate) fn is_working(&self) -> bool {
        !self.running.is_empty() || !self.next.is_empty() || self.stuck
    }

    /// Whether no block has begun that has not ended.
    pub(crate) fn is_between_blocks(&self) -> bool {
        !self.stuck && self.running.iter().all(|active| active.running.is_between_blocks())
    }

    /// Continues the launches that were preempted, and the work after them.
    pub(crate) fn advance(&mut self, context: &Context<'_>) -> Result<Flow, Exception> {
        if self.stuck {
            return Ok(Flow::Stuck);
        }
        let done = self.work(context);
        if !matches!(done, Ok(Flow::Preempted)) {
            self.next.clear();
            self.running.clear();
        }
        if !matches!(done, Ok(Flow::Preempted | Flow::Next)) {
            self.flights.clear();
        }
        done
    }

    fn work(&mut self, context: &Context<'_>) -> Result<Flow, Exception> {
        // In free order each step is a turn, and other channels and the front end go on in between.
        let steps = if context.choices.is_some() { 1 } else { TURN };
        for _ in 0..steps {
            let Some(step) = self.choose(context) else { return Ok(Flow::Next) };
            let ended = match step {
                Step::GoOn(i) => {
                    let active = self.running.remove(i);
                    self.grid(context, active)?
                }
                Step::Begin(i) => {
                    if context.channel.is_stopped() {
                        return Ok(Flow::Next);
                    }
                    match self.next.remove(i) {
                        Some(next) => self.begin(context, next)?,
                        None => Flow::Next,
                    }
                }
            };
            match ended {
                Flow::Preempted if context.choices.is_some() => {}
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(if self.is_working() { Flow::Preempted } else { Flow::Next })
    }

    /// Returns the next step: any of those that nothing orders, in free order.
    fn choose(&self, context: &Context<'_>) -> Option<Step> {
        let (running, next) = (self.running.len(), self.next.len());
        let Some(choices) = context.choices else {
            return match (running, next) {
                (0, 0) => None,
                (0, _) => Some(Step::Begin(0)),
                _ => Some(Step::GoOn(0)),
            };
        };
        let startable = if running < SIDE_BY_SIDE { next } else { 0 };
        if running + startable == 0 {
            return None;
        }
        let pick = choices.borrow_mut().pick(running + startable);
        Some(if pick < running { Step::GoOn(pick) } else { Step::Begin(pick - running) })
    }

    /// Schedules what depends on a descriptor whose launch has ended.
    fn schedule_dependents(
        &mut self,
        context: &Context<'_>,
        order: &Ordered,
        qmd: &Qmd,
    ) -> Result<(), Exception> {
        if context.units.defects.contains(Defects::DEPENDENTS) {
            return Ok(());
        }
        let before = || match (&context.front, order.work) {
            (Some(front), Some(work)) => {
                // Its blocks may have given way before they waited themselves.
                let first = order.parts.map_or(work, |parts| parts.early);
                let early = qmd.pre_exits().then(|| front.ledger.state().known_before(first));
                Before { known: front.known_after(work), early }
            }
            _ => Before::default(),
        };
        for slot in 0..qmd.dependents() {
            let Some(dependent) = qmd.dependent(slot) else { continue };
            let va = dependent.address;
            match dependent.action {
                DependentAction::Schedule | DependentAction::InvalidateCopySchedule => {
                    if dependent.action == DependentAction::InvalidateCopySchedule {
                        copy_counter(context, va)?;
                    }
                    self.next.push_back(Next { va, state: order.state.clone(), before: before() });
                }
                DependentAction::DecrementDependence => {
                    if context.front.is_some() {
                        self.counted.entry(va).or_default().join(&before());
                    }
                    if count_down(context, va)? {
                        let before = self.counted.remove(&va).unwrap_or_default();
                        self.next.push_back(Next { va, state: order.state.clone(), before });
                    }
                }
                DependentAction::IncrementPut => return Err(refused(SkedCheck::CircularQueueSize)),
            }
        }
        Ok(())
    }

    /// Lowers the counter of the descriptor at `va` and runs it when that was the last one.
    pub(crate) fn decrement(
        &mut self,
        context: &Context<'_>,
        state: &ComputeState,
        va: u64,
    ) -> Result<Flow, Exception> {
        if count_down(context, va)? { self.launch(context, state, va, false) } else { Ok(Flow::Next) }
    }

    /// Raises the counter of the descriptor at `va`.
    pub(crate) fn increment(&mut self, context: &Context<'_>, va: u64) -> Result<Flow, Exception> {
        let mut qmd = fetch(context, va)?;
        let count = counter(&qmd).wrapping_add(1);
        store_counter(context, va, &mut qmd, count)?;
        Ok(Flow::Next)
    }

    /// Notes a launch that leads back to an earlier one of its chain; an error if that continues.
    fn follow_chain(&mut self, context: &Context<'_>, va: u64) {
        self.cyclic |= self.chain > 0 && va == self.landmark;
        self.chain = self.chain.saturating_add(1);
        if self.chain.is_power_of_two() {
            self.landmark = va;
        }
        if self.cyclic && self.chain > LONGEST_CYCLE && !std::mem::replace(&mut self.reported, true) {
            let text = format!("hung: a chain of launches leads back into its descriptor at {va:#x}");
            report_hang(context, text, false);
        }
    }

    /// Begins the launch of a descriptor, and runs it for its first time slice.
    fn begin(&mut self, context: &Context<'_>, next: Next) -> Result<Flow, Exception> {
        let Next { va, state, before } = next;
        let qmd = fetch(context, va)?;
        if counter(&qmd) > 0 {
            // It starts when the last of those it depends on has ended.
            if context.front.is_some() {
                self.counted.entry(va).or_default().join(&before);
            }
            return Ok(Flow::Next);
        }
        self.follow_chain(context, va);
        // Dependents start when the grid before them has ended. That suffices: a latch that is not open
        // then is never opened.
        let closed = qmd.latch_wait().filter(|latch| !self.latches.remove(latch));
        let closed = closed.map(|latch| format!("waits for latch {latch:#x}, which no grid has arrived at"));
        if let Some(hang) = check(context, &state, &qmd)?.or(closed) {
            context.units.violations.record(Consequence::Hang, "SEND_PCAS", hang);
            self.stuck = true;
            return Ok(Flow::Stuck);
        }
        if qmd.invalidates().contains(qmd::Invalidate::INSTRUCTION) {
            context.units.executor.invalidate_code();
        }
        let work = context.front.map(|front| {
            let mut ledger = front.ledger.state();
            if qmd.invalidates().contains(qmd::Invalidate::SHADER_DATA) {
                ledger.empty_caches();
            }
            let shape = LaunchShape { program: qmd.program_address(), grid: qmd.grid(), block: qmd.block() };
            let work = Work::Launch(shape);
            match (before.early, qmd.latch_wait()) {
                (Some(known), Some(_)) => {
                    let launch = ledger.begin(front.line, work, before.known);
                    let invalidates = qmd.invalidates_at_latch();
                    let early = ledger.begin_early(launch, known);
                    (launch, Some(Parts { launch, early, invalidates }))
                }
                // It waits nowhere.
                (Some(known), None) => (ledger.begin(front.line, work, known), None),
                (None, _) => (ledger.begin(front.line, work, before.known), None),
            }
        });
        let (work, parts) = work.map_or((None, None), |(work, parts)| (Some(work), parts));
        let order = Ordered { va, state, work, parts };
        if !qmd.grid().iter().all(|&n| n > 0) {
            return self.end(context, &order, &qmd);
        }
        self.grids += 1;
        let launch = self.launch_of(context, &order.state, &qmd);
        let several = launch.blocks() * u64::from(launch.warps_per_block()) > 1;
        let watched = context.front.zip(work).map(|(front, work)| (Arc::clone(front.ledger), work, parts));
        match context.units.executor.start(&context.memory, launch, context.channel.stop_flag(), watched) {
            Ok(running) => self.grid(context, Active { running, order, qmd }),
            Err(fault) => self.failed(context, &order, fault, several, &qmd),
        }
    }

    /// Runs a launch until it ends or is preempted.
    fn grid(&mut self, context: &Context<'_>, mut active: Active) -> Result<Flow, Exception> {
        let stop = context.channel.stop_flag();
        let each_step = || true;
        let turn = match context.choices {
            Some(_) => Turn { wanted: &each_step, ..context.turn },
            None => context.turn,
        };
        match context.units.executor.advance(&mut active.running, &context.memory, stop, turn) {
            Ok(None) => {
                self.running.push(active);
                Ok(Flow::Preempted)
            }
            Ok(Some(counters)) => {
                context.units.count(|total| total.sm += counters);
                self.end(context, &active.order, &active.qmd)
            }
            Err(fault) if fault.code == sm::esr::NONE && !context.channel.is_stopped() => {
                if !std::mem::replace(&mut self.reported, true) {
                    let number = report_hang(context, fault.to_string(), fault.found);
                    context.units.stops.add(context.channel.number(), number, &fault);
                }
                self.stuck = !active.running.can_go_on();
                self.running.push(active);
                Ok(if self.stuck { Flow::Stuck } else { Flow::Preempted })
            }
            Err(fault) => {
                let launch = active.running.launch();
                let several = launch.blocks() * u64::from(launch.warps_per_block()) > 1;
                self.failed(context, &active.order, fault, several, &active.qmd)
            }
        }
    }

    fn failed(
        &mut self,
        context: &Context<'_>,
        order: &Ordered,
        fault: sm::Fault,
        several: bool,
        qmd: &Qmd,
    ) -> Result<Flow, Exception> {
        if context.channel.is_stopped() {
            return Ok(Flow::Next);
        }
        if order.state.exceptions_masked && fault.mmu.is_none() {
            tracing::warn!(%fault, "SM exceptions are masked by SET_SHADER_EXCEPTIONS: the error is not reported");
            return self.end(context, order, qmd);
        }
        Err(Exception::Sm { fault, several })
    }

    /// Ends a launch: releases, then dependents.
    fn end(&mut self, context: &Context<'_>, order: &Ordered, qmd: &Qmd) -> Result<Flow, Exception> {
        if context.channel.is_stopped() {
            // Stopped with its channel: the actions at a kernel's end do not happen.
            return Ok(Flow::Next);
        }
        let front = context.front.as_ref().zip(order.work);
        if let Some((front, work)) = front {
            let version = context.units.chip.arch.version();
            if let Some(change) = self.flights.end(&context.memory, version, order.va) {
                front.ledger.report(work, change.text(), change.address());
            }
            front.end(work, visible(qmd.membar()));
        }
        self.reported = self.cyclic && self.reported;
        for slot in 0..qmd::RELEASES {
            let Some(release) = qmd.release(slot) else { continue };
            let write = Write {
                va: release.address,
                payload: release.payload,
                wide: release.wide,
                timestamp: release.timestamp(),
                reduce: release.reduction.map(|r| (Reduce::BY_COMPUTE[r.op as usize], r.signed)),
            };
            if let Some((front, work)) = front {
                if release.membar {
                    front.end(work, Visible::System);
                }
                front.release(&context.memory, &write, Some(front.known_after(work)));
            }
            let done = write.perform(&context.memory, &context.units.clock);
            done.map_err(|f| Exception::hub(HubClient::Sked, f))?;
            if release.trap != qmd::Trap::None {
                context.interrupts.non_stalling();
            }
        }
        self.latches.extend(qmd.latch_arrival());
        if self_copies(qmd) {
            copy_counter(context, order.va)?;
        }
        self.schedule_dependents(context, order, qmd)?;
        Ok(Flow::Next)
    }

    fn launch_of(&self, context: &Context<'_>, state: &ComputeState, qmd: &Qmd) -> sm::Launch {
        sm::Launch {
            arch: context.units.chip.arch,
            program: qmd.program_address(),
            grid: qmd.grid(),
            block: qmd.block(),
            registers: qmd.registers().next_multiple_of(8).min(255),
            shared_bytes: qmd.shared_bytes(),
            local_bytes: qmd.local_low() + qmd.local_high(),
            barriers: qmd.barriers(),
            banks: std::array::from_fn(|i| {
                qmd.constant_buffer(i).map(|b| sm::ConstBank { va: b.address, len: b.len })
            }),
            windows: sm::Windows { shared_base: state.shared_window, local_base: state.local_window },
            grid_id: self.grids,
            sm_count: context.units.chip.sms,
            max_warps_per_sm: context.units.chip.arch.max_warps(),
            shared_bytes_per_sm: context.units.chip.arch.max_shared_bytes(),
        }
    }
}

/// Returns the scope in which the membar at a grid's end makes its writes visible.
fn visible(membar: Option<qmd::Membar>) -> Visible {
    match membar {
        Some(qmd::Membar::System) => Visible::System,
        Some(qmd::Membar::Device) => Visible::Device,
        Some(qmd::Membar::None) | None => Visible::Nowhere,
    }
}

/// Reports a fact that a real machine does not: why a launch has no end. Returns the number of the fault.
fn report_hang(context: &Context<'_>, text: String, found: bool) -> usize {
    tracing::error!("a kernel does not end: {text}");
    context.units.violations.record_fault(text, found, None)
}

fn refused(check: SkedCheck) -> Exception {
    Exception::Sked { esr: 1 << check.bit() }
}

fn fetch(context: &Context<'_>, va: u64) -> Result<Qmd, Exception> {
    let version = context.units.chip.arch.version();
    let mut bytes = vec![0; version.size()];
    context.memory.read(va, &mut bytes).map_err(|f| Exception::hub(HubClient::Sked, f))?;
    // Never shorter than a descriptor, so this is only ever refused for a bad length, which an MMU fault
    // cannot be.
    Qmd::from_bytes_as(version, &bytes).map_err(|_| refused(SkedCheck::TotalThreads))
}

/// The scheduler's checks. An error is an exception; a text is the reason why the launch would hang.
fn check(context: &Context<'_>, state: &ComputeState, qmd: &Qmd) -> Result<Option<String>, Exception> {
    let mut esr = 0;
    let mut hang = None;
    if qmd.is_queue() {
        return Err(refused(SkedCheck::CircularQueueSize));
    }
    let target = context.units.chip.arch;
    for problem in qmd.problems_on(target) {
        match problem.effect() {
            Effect::Refused(check) => {
                tracing::error!(%problem, "the scheduler refuses a launch");
                esr |= 1 << check.bit();
            }
            Effect::Hangs => hang = Some(format!("no block is ever placed: {problem}")),
            Effect::Undefined if matches!(problem, qmd::Problem::Version { .. }) => {
                hang = Some(format!("not a launch descriptor of version {}: {problem}", target.version()));
            }
            Effect::Undefined => tracing::warn!(%problem, "a launch with undefined behaviour"),
        }
    }
    if state.shared_window.abs_diff(state.local_window) < sm::Windows::LEN {
        tracing::error!(
            shared = state.shared_window,
            local = state.local_window,
            "the memory windows overlap: set compute methods 0x2a0/0x2a4 and 0x7b0/0x7b4 before the first launch"
        );
        esr |= 1 << SkedCheck::MemoryWindowOverlap.bit();
    }
    let local = u64::from(qmd.local_low()) + u64::from(qmd.local_high());
    if local > 0 {
        let per_warp = (local * 32).next_multiple_of(0x200);
        let needed = per_warp * u64::from(target.max_warps()) * 2;
        if state.local_memory == 0 || needed > state.local_per_tpc {
            esr |= 1 << SkedCheck::LocalMemoryTotalSize.bit();
        } else {
            check_local_memory(context, state)?;
        }
    }
    if esr != 0 {
        return Err(Exception::Sked { esr });
    }
    Ok(hang)
}

/// The memory that backs the local window must be mapped as far as the SMs use it.
fn check_local_memory(context: &Context<'_>, state: &ComputeState) -> Result<(), Exception> {
    let tpcs = u64::from(context.units.chip.tpcs());
    let end = state.local_memory.saturating_add(state.local_per_tpc.saturating_mul(tpcs));
    let mut at = state.local_memory;
    while at < end {
        let span = context.memory.translate(at, sm::Access::Write).map_err(|mmu| {
            let text = "local memory is not mapped".to_owned();
            let fault = sm::Fault {
                code: sm::esr::MMU_FAULT,
                pc: 0,
                block: [0; 3],
                sm: 0,
                warp: 0,
                lanes: u32::MAX,
                address: Some(at),
                mmu: Some(mmu),
                text,
                found: false,
                place: None,
                state: None,
            };
            Exception::Sm { fault, several: true }
        })?;
        at = span.va + span.len;
    }
    Ok(())
}

/// Name of the field that the scheduler counts in: its own, not the value of the descriptor's author.
const COUNTER: &str = "HW_ONLY_DEPENDENCE_COUNTER";

/// The scheduler's counter of a descriptor.
fn counter(qmd: &Qmd) -> u16 {
    qmd::field(qmd.version(), COUNTER).and_then(|field| qmd.get(field)).unwrap_or(0) as u16
}

/// Whether the scheduler's counter takes the descriptor's value again when the grid has ended.
fn self_copies(qmd: &Qmd) -> bool {
    qmd::field(qmd.version(), "SELF_COPY_ON_COMPLETION").and_then(|field| qmd.get(field)) == Some(1)
}

/// The scheduler's counter of the descriptor at `va` takes the descriptor's value, which is given back.
fn copy_counter(context: &Context<'_>, va: u64) -> Result<u16, Exception> {
    let mut qmd = fetch(context, va)?;
    let count = qmd.dependence_counter();
    if counter(&qmd) != count {
        store_counter(context, va, &mut qmd, count)?;
    }
    Ok(count)
}

/// Lowers the counter at `va`; true when it reached zero.
fn count_down(context: &Context<'_>, va: u64) -> Result<bool, Exception> {
    let mut qmd = fetch(context, va)?;
    let count = counter(&qmd).checked_sub(1).ok_or(refused(SkedCheck::DependenceCounterUnderflow))?;
    store_counter(context, va, &mut qmd, count)?;
    Ok(count == 0)
}

fn store_counter(context: &Context<'_>, va: u64, qmd: &mut Qmd, count: u16) -> Result<(), Exception> {
    let underflow = || refused(SkedCheck::DependenceCounterUnderflow);
    let field = qmd::field(qmd.version(), COUNTER).ok_or_else(underflow)?;
    qmd.set(field, count.into()).map_err(|_| underflow())?;
    context.memory.write(va, qmd.as_bytes()).map_err(|f| Exception::hub(HubClient::Sked, f))
}
