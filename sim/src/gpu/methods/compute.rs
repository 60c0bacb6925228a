//! Compute methods (class C7C0): memory windows, launches, report semaphores, cache control, inline data.

use crate::defects::Defects;
use crate::gpu::compute_scheduler::{ComputeScheduler, ComputeState};
use crate::gpu::context::{Context, Flow};
use crate::gpu::exception::{Exception, HubClient};
use crate::gpu::methods::inline_data::InlineData;
use crate::gpu::semaphore::{Acquire, Compare, Reduce, Write};
use nv_hw::class::c7c0::*;
use nv_hw::class::subchannel;
use nv_hw::fault::{class_error, mme_esr};

use REPORT_SEMAPHORE_EXECUTE as Execute;
use SEND_SIGNALING_PCAS2_B::PCAS_ACTION as Action;
use SET_REPORT_SEMAPHORE_D as Report;

/// Words of an inline launch descriptor.
const INLINE_QMD_WORDS: usize = 64;
/// The end of the methods that take it.
const INLINE_QMD_END: u32 = LOAD_INLINE_QMD_DATA + 4 * INLINE_QMD_WORDS as u32;

/// Method state of the compute class for one channel.
#[derive(Debug)]
pub(crate) struct ComputeMethods {
    state: ComputeState,
    scheduler: ComputeScheduler,
    inline_data: InlineData,
    qmd_address: u32,
    inline_qmd_address: u64,
    inline_qmd: Box<[u32; INLINE_QMD_WORDS]>,
    report: [u32; 4],
    new_report: [u32; 4],
}

impl Default for ComputeMethods {
    fn default() -> Self {
        Self {
            state: ComputeState::default(),
            scheduler: ComputeScheduler::default(),
            inline_data: InlineData::default(),
            qmd_address: 0,
            inline_qmd_address: 0,
            inline_qmd: Box::new([0; INLINE_QMD_WORDS]),
            report: [0; 4],
            new_report: [0; 4],
        }
    }
}

impl ComputeMethods {
    /// Whether no block has begun that has not ended.
    pub(crate) fn is_between_blocks(&self) -> bool {
        self.scheduler.is_between_blocks()
    }

    /// Executes one method that arrived on the compute (1) or inline (2) subchannel.
    pub(crate) fn method(
        &mut self,
        context: &Context<'_>,
        class: u32,
        subchannel: u32,
        address: u32,
        value: u32,
    ) -> Result<Flow, Exception> {
        let error = |code| Exception::ClassError { class, subchannel, address, value, code };
        if self.inline_data.method(context, class, subchannel, address, value)? {
            return Ok(Flow::Next);
        }
        // The inline class has a few more methods, none of which has an effect here.
        let nothing = [NO_OPERATION, WAIT_FOR_IDLE, SEND_GO_IDLE, PM_TRIGGER];
        if subchannel == subchannel::INLINE_TO_MEMORY && nothing.contains(&address) {
            return Ok(Flow::Next);
        }
        if subchannel != subchannel::COMPUTE || !is_compute_method(address) {
            return Err(Exception::IllegalMethod { class, subchannel, address, value });
        }
        let state = &mut self.state;
        match address {
            SET_SHADER_SHARED_MEMORY_WINDOW_B | SET_SHADER_LOCAL_MEMORY_WINDOW_B
                if context.units.defects.contains(Defects::WINDOWS) =>
            {
                return Err(Exception::Sked { esr: 1 << qmd::SkedCheck::MemoryWindowOverlap.bit() });
            }
            SET_SHADER_EXCEPTIONS => state.exceptions_masked = SET_SHADER_EXCEPTIONS::ENABLE.of(value) == 0,
            WAIT_FOR_IDLE
            | INVALIDATE_SAMPLER_CACHE
            | INVALIDATE_TEXTURE_HEADER_CACHE
            | INVALIDATE_TEXTURE_DATA_CACHE => wait_idle(context, false),
            INVALIDATE_SHADER_CACHES | INVALIDATE_SHADER_CACHES_NO_WFI => invalidate(context, address, value),
            SEND_PCAS_A => self.qmd_address = value,
            SEND_SIGNALING_PCAS_B => {
                use SEND_SIGNALING_PCAS_B::{INVALIDATE, SCHEDULE};
                let schedules = SCHEDULE.of(value) != 0;
                return self.signal(context, if schedules { Action::SCHEDULE } else { INVALIDATE.of(value) });
            }
            SEND_SIGNALING_PCAS2_B => {
                return self.signal(context, SEND_SIGNALING_PCAS2_B::PCAS_ACTION.of(value));
            }
            SET_INLINE_QMD_ADDRESS_A => {
                self.inline_qmd_address = u64::from(value) << 40 | self.inline_qmd_address & 0xff_ffff_ffff
            }
            SET_INLINE_QMD_ADDRESS_B => {
                self.inline_qmd_address = self.inline_qmd_address & !0xff_ffff_ffff | u64::from(value) << 8;
            }
            LOAD_INLINE_QMD_DATA..INLINE_QMD_END => {
                let index = ((address - LOAD_INLINE_QMD_DATA) / 4) as usize;
                self.inline_qmd[index] = value;
                if index == INLINE_QMD_WORDS - 1 {
                    return self.inline_launch(context);
                }
            }
            SET_REPORT_SEMAPHORE_A..=SET_REPORT_SEMAPHORE_C => {
                self.report[((address - SET_REPORT_SEMAPHORE_A) / 4) as usize] = value;
            }
            SET_REPORT_SEMAPHORE_D => self.report_semaphore(context, value)?,
            SET_REPORT_SEMAPHORE_PAYLOAD_LOWER..=SET_REPORT_SEMAPHORE_ADDRESS_UPPER => {
                self.new_report[((address - SET_REPORT_SEMAPHORE_PAYLOAD_LOWER) / 4) as usize] = value;
            }
            REPORT_SEMAPHORE_EXECUTE => return self.execute_report(context, value),
            // Conditional rendering: launches are only done unconditionally here.
            SET_GLOBAL_RENDER_ENABLE_C | SET_RENDER_ENABLE_C
                if SET_RENDER_ENABLE_C::MODE.of(value) != SET_RENDER_ENABLE_C::MODE::TRUE =>
            {
                return Err(error(class_error::INVALID_VALUE));
            }
            SET_RENDER_ENABLE_OVERRIDE
                if SET_RENDER_ENABLE_OVERRIDE::MODE.of(value)
                    > SET_RENDER_ENABLE_OVERRIDE::MODE::ALWAYS_RENDER =>
            {
                return Err(error(class_error::INVALID_VALUE));
            }
            // Methods that the context firmware serves.
            SET_FALCON00..=SET_FALCON15 => return Err(Exception::FirmwareMethod { class, address, value }),
            // Macros and their memory: nothing is ever loaded.
            CALL_MME_MACRO.. => return Err(Exception::Macro { esr: 1 << mme_esr::ILLEGAL_OPCODE }),
            MME_DMA_READ..=MME_DMA_REDUCTION => {
                return Err(Exception::Macro { esr: 1 << mme_esr::ILLEGAL_MME_METHOD });
            }
            // A trap handler would run code that is not part of a launch.
            SET_TRAP_HANDLER_A | SET_TRAP_HANDLER_B if value != 0 => {
                return Err(error(class_error::INVALID_VALUE));
            }
            _ => place_memory(state, address, value),
        }
        Ok(Flow::Next)
    }

    /// Whether launches have begun that have not ended.
    pub(crate) fn is_working(&self) -> bool {
        self.scheduler.is_working()
    }

    /// Goes on with them.
    pub(crate) fn advance(&mut self, context: &Context<'_>) -> Result<Flow, Exception> {
        self.scheduler.advance(context)
    }

    /// `SEND_SIGNALING_PCAS*`: what to do with the launch descriptor at `qmd_address`.
    fn signal(&mut self, context: &Context<'_>, action: u32) -> Result<Flow, Exception> {
        let va = u64::from(self.qmd_address) << 8;
        match action {
            Action::SCHEDULE | Action::PREFETCH_SCHEDULE => {
                self.scheduler.launch(context, &self.state, va, false)
            }
            Action::INVALIDATE_COPY_SCHEDULE
            | Action::INVALIDATE_PREFETCH_COPY_SCHEDULE
            | Action::INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING => {
                self.scheduler.launch(context, &self.state, va, true)
            }
            Action::DECREMENT_DEPENDENCE => self.scheduler.decrement(context, &self.state, va),
            Action::INCREMENT_DEPENDENCE => self.scheduler.increment(context, va),
            // Queues: their circular buffers are not modelled.
            Action::INCREMENT_PUT => {
                Err(Exception::Sked { esr: 1 << qmd::SkedCheck::CircularQueueSize.bit() })
            }
            // Nothing, invalidate, prefetch, reference counter: descriptors are always read from memory.
            _ => Ok(Flow::Next),
        }
    }

    /// The last word of an inline descriptor arrived: it is stored at its address and scheduled.
    fn inline_launch(&mut self, context: &Context<'_>) -> Result<Flow, Exception> {
        let va = self.inline_qmd_address & 0xffff_ffff_ffff;
        let bytes: Vec<u8> = self.inline_qmd.iter().flat_map(|w| w.to_le_bytes()).collect();
        context.memory.write(va, &bytes).map_err(|f| Exception::hub(HubClient::Sked, f))?;
        self.scheduler.launch(context, &self.state, va, true)
    }

    fn report_semaphore(&mut self, context: &Context<'_>, value: u32) -> Result<(), Exception> {
        if Report::OPERATION.of(value) == Report::OPERATION::RELEASE {
            let [high, low, payload, _] = self.report;
            let write = Write {
                va: u64::from(high & 0xff) << 32 | u64::from(low),
                payload: payload.into(),
                wide: false,
                timestamp: Report::STRUCTURE_SIZE.of(value) == Report::STRUCTURE_SIZE::FOUR_WORDS,
                reduce: (Report::REDUCTION_ENABLE.of(value) != 0).then_some((
                    Reduce::BY_COMPUTE[Report::REDUCTION_OP.of(value) as usize],
                    Report::REDUCTION_FORMAT.of(value) == Report::REDUCTION_FORMAT::SIGNED_32,
                )),
            };
            release(context, write, Report::FLUSH_DISABLE.of(value) == 0)?;
        }
        let traps = Report::OPERATION.of(value) == Report::OPERATION::TRAP;
        if traps || Report::AWAKEN_ENABLE.of(value) != 0 {
            context.interrupts.non_stalling();
        }
        Ok(())
    }

    fn execute_report(&mut self, context: &Context<'_>, value: u32) -> Result<Flow, Exception> {
        let [payload_low, payload_high, low, high] = self.new_report;
        let va = u64::from(high & 0xff) << 32 | u64::from(low);
        let payload = u64::from(payload_high) << 32 | u64::from(payload_low);
        let wide = Execute::PAYLOAD_SIZE64.of(value) != 0;
        let operation = Execute::OPERATION.of(value);
        match operation {
            Execute::OPERATION::RELEASE => {
                let reduce = (Execute::REDUCTION_ENABLE.of(value) != 0).then_some((
                    Reduce::BY_COMPUTE[Execute::REDUCTION_OP.of(value) as usize],
                    Execute::REDUCTION_FORMAT.of(value) == Execute::REDUCTION_FORMAT::SIGNED,
                ));
                let timestamp =
                    Execute::STRUCTURE_SIZE.of(value) == Execute::STRUCTURE_SIZE::SEMAPHORE_FOUR_WORDS;
                release(context, Write { va, payload, wide, timestamp, reduce }, true)?;
            }
            Execute::OPERATION::ACQUIRE => {
                let acquire = Acquire { va, payload, wide, compare: Compare::CircularGeq };
                return Ok(Flow::Acquire(acquire));
            }
            _ => {}
        }
        if operation == Execute::OPERATION::TRAP
            || Execute::TRAP_TYPE.of(value) != 0
            || Execute::AWAKEN_ENABLE.of(value) != 0
        {
            context.interrupts.non_stalling();
        }
        Ok(Flow::Next)
    }
}

/// Memory windows and local memory; other methods have no effect.
fn place_memory(state: &mut ComputeState, address: u32, value: u32) {
    match address {
        SET_SHADER_SHARED_MEMORY_WINDOW_A => set_high(&mut state.shared_window, value & 0x1_ffff),
        SET_SHADER_SHARED_MEMORY_WINDOW_B => set_low(&mut state.shared_window, value),
        SET_SHADER_LOCAL_MEMORY_WINDOW_A => set_high(&mut state.local_window, value & 0x1_ffff),
        SET_SHADER_LOCAL_MEMORY_WINDOW_B => set_low(&mut state.local_window, value),
        SET_SHADER_LOCAL_MEMORY_A => set_high(&mut state.local_memory, value & 0x1_ffff),
        SET_SHADER_LOCAL_MEMORY_B => set_low(&mut state.local_memory, value),
        SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A => set_high(&mut state.local_per_tpc, value & 0xff),
        SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B => set_low(&mut state.local_per_tpc, value),
        SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C => state.local_max_sms = value & 0x1ff,
        _ => {}
    }
}

/// Whether a method of the compute subchannel waits until the engine is idle.
pub(crate) fn waits_for_engine(address: u32, value: u32) -> bool {
    match address {
        WAIT_FOR_IDLE
        | INVALIDATE_SHADER_CACHES
        | INVALIDATE_SAMPLER_CACHE
        | INVALIDATE_TEXTURE_HEADER_CACHE
        | INVALIDATE_TEXTURE_DATA_CACHE => true,
        SET_REPORT_SEMAPHORE_D => {
            Report::OPERATION.of(value) == Report::OPERATION::RELEASE && Report::FLUSH_DISABLE.of(value) == 0
        }
        REPORT_SEMAPHORE_EXECUTE => Execute::OPERATION.of(value) == Execute::OPERATION::RELEASE,
        _ => false,
    }
}

/// `INVALIDATE_SHADER_CACHES`, and the form of it that does not wait.
fn invalidate(context: &Context<'_>, address: u32, value: u32) {
    // The same bits in both methods.
    use INVALIDATE_SHADER_CACHES::{DATA, INSTRUCTION};
    if INSTRUCTION.of(value) != 0 {
        context.units.executor.invalidate_code();
    }
    if address == INVALIDATE_SHADER_CACHES {
        wait_idle(context, false);
    }
    if let (Some(front), true) = (&context.front, DATA.of(value) != 0) {
        front.empty_caches();
    }
}

fn wait_idle(context: &Context<'_>, flushes: bool) {
    if let Some(front) = &context.front {
        front.wait_idle(flushes);
    }
}

fn release(context: &Context<'_>, write: Write, after_idle: bool) -> Result<(), Exception> {
    if after_idle {
        wait_idle(context, true);
    }
    if let Some(front) = &context.front {
        front.release(&context.memory, &write, None);
    }
    let done = write.perform(&context.memory, &context.units.clock);
    done.map_err(|f| Exception::hub(HubClient::FrontEnd, f))
}

fn set_high(target: &mut u64, value: u32) {
    *target = *target & 0xffff_ffff | u64::from(value) << 32;
}

fn set_low(target: &mut u64, value: u32) {
    *target = *target & !0xffff_ffff | u64::from(value);
}

/// Whether the compute class has a method at this offset.
fn is_compute_method(offset: u32) -> bool {
    // The header does not say where this array ends.
    let is_past = (INLINE_QMD_END..SET_FALCON00).contains(&offset);
    !is_past && CLASS.method(offset).is_some()
}
