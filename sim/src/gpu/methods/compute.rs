//! Compute methods (class C7C0): memory windows, launches, report semaphores, cache control, inline data.

use crate::defects::Defects;
use crate::gpu::compute_scheduler::{ComputeScheduler, ComputeState};
use crate::gpu::context::{Context, Flow};
use crate::gpu::exception::{Exception, HubClient};
use crate::gpu::methods::inline_data::InlineData;
use crate::gpu::methods::table::is_compute_method;
use crate::gpu::semaphore::{Acquire, Compare, Reduce, Write};

/// Words of an inline launch descriptor.
const INLINE_QMD_WORDS: usize = 64;

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
        if subchannel == 2 && matches!(address, 0x100 | 0x110 | 0x13c | 0x140) {
            return Ok(Flow::Next);
        }
        if subchannel != 1 || !is_compute_method(address) {
            return Err(Exception::IllegalMethod { class, subchannel, address, value });
        }
        let state = &mut self.state;
        match address {
            0x2a4 | 0x7b4 if context.units.defects.contains(Defects::WINDOWS) => {
                return Err(Exception::Sked { esr: 1 << qmd::SkedCheck::MemoryWindowOverlap.bit() });
            }
            0x2a0 => set_high(&mut state.shared_window, value & 0x1_ffff),
            0x2a4 => set_low(&mut state.shared_window, value),
            0x7b0 => set_high(&mut state.local_window, value & 0x1_ffff),
            0x7b4 => set_low(&mut state.local_window, value),
            0x790 => set_high(&mut state.local_memory, value & 0x1_ffff),
            0x794 => set_low(&mut state.local_memory, value),
            0x2e4 => set_high(&mut state.local_per_tpc, value & 0xff),
            0x2e8 => set_low(&mut state.local_per_tpc, value),
            0x2ec => state.local_max_sms = value & 0x1ff,
            0x1528 => state.exceptions_masked = value & 1 == 0,
            0x110 | 0x1330 | 0x1334 | 0x1338 => wait_idle(context, false),
            0x21c | 0x1698 => invalidate(context, address, value),
            0x2b4 => self.qmd_address = value,
            0x2bc => return self.signal(context, if value & 2 != 0 { 2 } else { value & 1 }),
            0x2c0 => return self.signal(context, value & 0xf),
            0x318 => {
                self.inline_qmd_address = u64::from(value) << 40 | self.inline_qmd_address & 0xff_ffff_ffff
            }
            0x31c => {
                self.inline_qmd_address = self.inline_qmd_address & !0xff_ffff_ffff | u64::from(value) << 8;
            }
            0x320..=0x41c => {
                let index = ((address - 0x320) / 4) as usize;
                self.inline_qmd[index] = value;
                if index == INLINE_QMD_WORDS - 1 {
                    return self.inline_launch(context);
                }
            }
            0x1b00..=0x1b08 => self.report[((address - 0x1b00) / 4) as usize] = value,
            0x1b0c => self.report_semaphore(context, value)?,
            0x158..=0x164 => self.new_report[((address - 0x158) / 4) as usize] = value,
            0x168 => return self.execute_report(context, value),
            // Conditional rendering: launches are only done unconditionally here.
            0x138 | 0x1558 if value & 7 != 1 => return Err(error(4)),
            0x1944 if value & 3 > 1 => return Err(error(4)),
            // Methods that the context firmware serves.
            0x500..=0x53c => return Err(Exception::FirmwareMethod { class, address, value }),
            // Macros and their memory: nothing is ever loaded.
            0x3800.. => return Err(Exception::Macro { esr: 1 << 2 }),
            0x55c..=0x568 => return Err(Exception::Macro { esr: 1 << 7 }),
            // A trap handler would run code that is not part of a launch.
            0x25f8 | 0x25fc if value != 0 => return Err(error(4)),
            _ => {}
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
            2 | 9 => self.scheduler.launch(context, &self.state, va, false),
            3 | 0xa | 0xb => self.scheduler.launch(context, &self.state, va, true),
            7 => self.scheduler.decrement(context, &self.state, va),
            0xc => self.scheduler.increment(context, va),
            // Queues: their circular buffers are not modelled.
            6 => Err(Exception::Sked { esr: 1 << qmd::SkedCheck::CircularQueueSize.bit() }),
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
        if value & 3 == 0 {
            let [high, low, payload, _] = self.report;
            let write = Write {
                va: u64::from(high & 0xff) << 32 | u64::from(low),
                payload: payload.into(),
                wide: false,
                timestamp: value >> 28 & 1 == 0,
                reduce: (value >> 3 & 1 != 0)
                    .then_some((Reduce::BY_COMPUTE[(value >> 9 & 7) as usize], value >> 17 & 3 == 1)),
            };
            release(context, write, value >> 2 & 1 == 0)?;
        }
        if value & 3 == 3 || value >> 20 & 1 != 0 {
            context.interrupts.non_stalling();
        }
        Ok(())
    }

    fn execute_report(&mut self, context: &Context<'_>, value: u32) -> Result<Flow, Exception> {
        let [payload_low, payload_high, low, high] = self.new_report;
        let va = u64::from(high & 0xff) << 32 | u64::from(low);
        let payload = u64::from(payload_high) << 32 | u64::from(payload_low);
        let wide = value >> 12 & 1 != 0;
        match value & 3 {
            0 => {
                let reduce = (value >> 6 & 1 != 0)
                    .then_some((Reduce::BY_COMPUTE[(value >> 7 & 7) as usize], value >> 10 & 3 == 1));
                release(context, Write { va, payload, wide, timestamp: value >> 3 & 3 == 0, reduce }, true)?;
            }
            1 => {
                let acquire = Acquire { va, payload, wide, compare: Compare::CircularGeq };
                return Ok(Flow::Acquire(acquire));
            }
            _ => {}
        }
        if value & 3 == 3 || value >> 13 & 3 != 0 || value >> 2 & 1 != 0 {
            context.interrupts.non_stalling();
        }
        Ok(Flow::Next)
    }
}

/// Whether a method of the compute subchannel waits until the engine is idle.
pub(crate) fn waits_for_engine(address: u32, value: u32) -> bool {
    match address {
        0x110 | 0x21c | 0x1330 | 0x1334 | 0x1338 => true,
        // Unless FLUSH_DISABLE is set.
        0x1b0c => value & 3 == 0 && value >> 2 & 1 == 0,
        0x168 => value & 3 == 0,
        _ => false,
    }
}

/// `INVALIDATE_SHADER_CACHES`, and the form of it that does not wait.
fn invalidate(context: &Context<'_>, address: u32, value: u32) {
    if value & 1 != 0 {
        context.units.executor.invalidate_code();
    }
    if address == 0x21c {
        wait_idle(context, false);
    }
    if let (Some(front), true) = (&context.front, value >> 4 & 1 != 0) {
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
