//! Inline-to-memory (I2M): data words of the pushbuffer written to memory.

use crate::gpu::context::Context;
use crate::gpu::exception::{Exception, HubClient};
use crate::gpu::semaphore::Write;
use crate::order::ledger::Visible;
use crate::order::work::Work;

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
            0x180 => self.line_length = value,
            0x184 => self.line_count = value,
            0x188 => self.offset[1] = value & 0x1_ffff,
            0x18c => self.offset[0] = value,
            0x190 => self.pitch = value,
            // Block-linear geometry: only pitch destinations are modelled, see LAUNCH_DMA below.
            0x194..=0x1ac => {}
            0x1b0 => {
                if value & 1 == 0 {
                    return Err(error(4));
                }
                let bytes = u64::from(self.line_length) * u64::from(self.line_count);
                if bytes > MAX_BYTES || self.transfer.as_ref().is_some_and(|t| t.expected > 0) {
                    return Err(Exception::MemoryFormat { esr: 2 });
                }
                self.transfer = Some(Transfer {
                    data: Vec::with_capacity(bytes as usize),
                    expected: bytes as usize,
                    completion: value >> 4 & 3,
                    wide_structure: value >> 12 & 1 == 0,
                });
                if bytes == 0 {
                    self.finish(context)?;
                }
            }
            0x1b4 => {
                let Some(transfer) = &mut self.transfer else {
                    return Err(Exception::MemoryFormat { esr: 1 });
                };
                transfer.data.extend_from_slice(&value.to_le_bytes());
                if transfer.data.len() >= transfer.expected {
                    self.finish(context)?;
                }
            }
            0x1dc => self.semaphore[1] = value & 0xff,
            0x1e0 => self.semaphore[0] = value,
            0x1e4 => self.semaphore[2] = value,
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
        if transfer.completion == 2 {
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
