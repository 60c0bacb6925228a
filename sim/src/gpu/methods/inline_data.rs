//! Inline-to-memory (I2M): data words of the pushbuffer written to memory.

use crate::gpu::context::Context;
use crate::gpu::exception::{Exception, HubClient};
use crate::gpu::semaphore::Write;
use crate::order::ledger::Visible;
use crate::order::work::Work;
use nv_hw::class::c7c0::*;
use nv_hw::fault::{class_error, memfmt_esr};

/// Method state of I2M.
#[derive(Debug, Default)]
pub(crate) struct InlineData {
    line_length: u32,
    line_count: u32,
    offset: [u32; 2],
    pitch: u32,
    semaphore: [u32; 3],
    transfer: Option<Transfer>,
}

#[derive(Debug)]
struct Transfer {
    data: Vec<u8>,
    expected: usize,
    completion: u32,
    wide_structure: bool,
}

/// Data words whose length was announced, at most: more than any real pushbuffer holds.
const MAX_BYTES: u64 = 1 << 23;

impl InlineData {
    /// Executes one method; false when it is not one of these.
    pub(crate) fn method(
        &mut self,
        context: &Context<'_>,
        class: u32,
        subchannel: u32,
        address: u32,
        value: u32,
    ) -> Result<bool, Exception> {
        let error = |code| Exception::ClassError { class, subchannel, address, value, code };
        match address {
            LINE_LENGTH_IN => self.line_length = value,
            LINE_COUNT => self.line_count = value,
            OFFSET_OUT_UPPER => self.offset[1] = OFFSET_OUT_UPPER::VALUE.of(value),
            OFFSET_OUT => self.offset[0] = value,
            PITCH_OUT => self.pitch = value,
            // Block-linear geometry: only pitch destinations are modelled, see LAUNCH_DMA below.
            SET_DST_BLOCK_SIZE..=SET_DST_ORIGIN_SAMPLES_Y => {}
            LAUNCH_DMA => {
                use LAUNCH_DMA::{COMPLETION_TYPE, DST_MEMORY_LAYOUT, SEMAPHORE_STRUCT_SIZE};
                if DST_MEMORY_LAYOUT.of(value) == DST_MEMORY_LAYOUT::BLOCKLINEAR {
                    return Err(error(class_error::INVALID_VALUE));
                }
                let bytes = u64::from(self.line_length) * u64::from(self.line_count);
                if bytes > MAX_BYTES || self.transfer.as_ref().is_some_and(|t| t.expected > 0) {
                    return Err(Exception::MemoryFormat { esr: 1 << memfmt_esr::MISSING_INLINE_DATA });
                }
                self.transfer = Some(Transfer {
                    data: Vec::with_capacity(bytes as usize),
                    expected: bytes as usize,
                    completion: COMPLETION_TYPE.of(value),
                    wide_structure: SEMAPHORE_STRUCT_SIZE.of(value) == SEMAPHORE_STRUCT_SIZE::FOUR_WORDS,
                });
                if bytes == 0 {
                    self.finish(context)?;
                }
            }
            LOAD_INLINE_DATA => {
                let Some(transfer) = &mut self.transfer else {
                    return Err(Exception::MemoryFormat { esr: 1 << memfmt_esr::EXTRA_INLINE_DATA });
                };
                transfer.data.extend_from_slice(&value.to_le_bytes());
                if transfer.data.len() >= transfer.expected {
                    self.finish(context)?;
                }
            }
            SET_I2M_SEMAPHORE_A => self.semaphore[1] = SET_I2M_SEMAPHORE_A::OFFSET_UPPER.of(value),
            SET_I2M_SEMAPHORE_B => self.semaphore[0] = value,
            SET_I2M_SEMAPHORE_C => self.semaphore[2] = value,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(&mut self, context: &Context<'_>) -> Result<(), Exception> {
        let Some(transfer) = self.transfer.take() else { return Ok(()) };
        let fault = |f| Exception::hub(HubClient::FrontEnd, f);
        let start = u64::from(self.offset[1]) << 32 | u64::from(self.offset[0]);
        let length = self.line_length as usize;
        for line in 0..self.line_count {
            let from = line as usize * length;
            let to = start.wrapping_add(u64::from(line) * u64::from(self.pitch));
            if let Some(front) = &context.front {
                let work = front.begin_transfer(Work::Inline { to: start, len: length as u64 }, false);
                front.transfers(&context.memory, work, to, length as u64, true);
                front.end(work, Visible::System);
            }
            context.memory.write(to, &transfer.data[from..from + length]).map_err(fault)?;
        }
        if transfer.completion == LAUNCH_DMA::COMPLETION_TYPE::RELEASE_SEMAPHORE {
            let write = Write {
                va: u64::from(self.semaphore[1]) << 32 | u64::from(self.semaphore[0]),
                payload: self.semaphore[2].into(),
                wide: false,
                timestamp: transfer.wide_structure,
                reduce: None,
            };
            if let Some(front) = &context.front {
                front.release(&context.memory, &write, None);
            }
            write.perform(&context.memory, &context.units.clock).map_err(fault)?;
        }
        Ok(())
    }
}
