//! Copy methods (class C7B5): linear and pitched copies, constant fills, semaphores.

use crate::defects::Defects;
use crate::gpu::context::{Context, Flow};
use crate::gpu::exception::{Exception, HubClient, intr1};
use crate::gpu::semaphore::{Reduce, Write};
use crate::gpu::sm::check::copies::Copied;
use crate::gpu::sm::launch::MemoryFault;
use crate::order::ledger::Visible;
use crate::order::work::{Work, WorkId};

/// Launch error codes (`NV_CE_LAUNCHERR`).
mod code {
    /// A value that the field does not take.
    pub(super) const INVALID_VALUE: u32 = 9;
    /// A source component that the source does not have.
    pub(super) const BAD_COMPONENT: u32 = 8;
    /// A source line longer than its pitch.
    pub(super) const SOURCE_LINE: u32 = 4;
    /// A destination line longer than its pitch.
    pub(super) const DESTINATION_LINE: u32 = 6;
    /// A combination that is not modelled (block-linear layouts) or not allowed.
    pub(super) const CONFIG: u32 = 0xd;
}

/// `DATA_TRANSFER_TYPE` of a transfer that may overlap with the one before.
const PIPELINED: u32 = 1;

/// Method state of the copy engine for one channel.
#[derive(Debug, Default)]
pub(crate) struct CopyMethods {
    source: [u32; 2],
    destination: [u32; 2],
    pitch_in: u32,
    pitch_out: u32,
    line_length: u32,
    line_count: u32,
    semaphore: [u32; 2],
    payload: [u32; 2],
    constants: [u32; 2],
    components: u32,
}

impl CopyMethods {
    /// Executes one method.
    pub(crate) fn method(
        &mut self,
        context: &Context<'_>,
        address: u32,
        value: u32,
    ) -> Result<Flow, Exception> {
        match address {
            0x100 | 0x140 | 0x21c..=0x224 | 0x1114 => {}
            0x240 => self.semaphore[1] = value & 0x1_ffff,
            0x244 => self.semaphore[0] = value,
            0x248 => self.payload[0] = value,
            0x24c => self.payload[1] = value,
            0x254 | 0x258 => {}
            0x25c if value & 7 == 1 => {}
            0x25c => return Err(Exception::CopyLaunch { code: code::INVALID_VALUE }),
            0x260 | 0x264 => {}
            0x300 => self.launch(context, value)?,
            0x400 => self.source[1] = value & 0x1_ffff,
            0x404 => self.source[0] = value,
            0x408 => self.destination[1] = value & 0x1_ffff,
            0x40c => self.destination[0] = value,
            0x410 => self.pitch_in = value,
            0x414 => self.pitch_out = value,
            0x418 => self.line_length = value,
            0x41c => self.line_count = value,
            0x700 => self.constants[0] = value,
            0x704 => self.constants[1] = value,
            0x708 => self.components = value,
            // Block-linear geometry: only used by launches that LAUNCH_DMA refuses.
            0x70c..=0x720 | 0x728..=0x73c | 0x744..=0x750 => {}
            _ => return Err(Exception::pbdma(0, intr1::HCE_ILLEGAL_METHOD)),
        }
        Ok(Flow::Next)
    }

    fn launch(&mut self, context: &Context<'_>, value: u32) -> Result<(), Exception> {
        let refuse = |code| Exception::CopyLaunch { code };
        // Physical addresses are for privileged channels.
        if value >> 12 & 3 != 0 {
            return Err(Exception::pbdma(0, 1 << 2));
        }
        let transfer = value & 3;
        let mut work = None;
        if transfer == 3 {
            return Err(refuse(code::INVALID_VALUE));
        }
        if transfer != 0 {
            if value >> 7 & 3 != 3 {
                return Err(refuse(code::CONFIG));
            }
            let multi_line = value >> 9 & 1 != 0;
            let remap = value >> 10 & 1 != 0;
            work = self.transfer(context, multi_line, remap, transfer == PIPELINED)?;
            // FLUSH_ENABLE.
            if let (Some(front), Some(work), true) = (&context.front, work, value >> 2 & 1 != 0) {
                front.end(work, Visible::System);
            }
        }
        let kind = value >> 3 & 3;
        if kind != 0 {
            let reduce = if value >> 19 & 1 != 0 {
                // The numbers above are invalid or floating point.
                let op =
                    Reduce::BY_HOST.get((value >> 14 & 0xf) as usize).ok_or(refuse(code::INVALID_VALUE))?;
                Some((*op, value >> 18 & 1 == 0))
            } else {
                None
            };
            let write = Write {
                va: join(self.semaphore),
                payload: join(self.payload),
                wide: value >> 27 & 1 != 0,
                timestamp: kind == 2,
                reduce,
            };
            if let Some(front) = &context.front {
                front.release(&context.memory, &write, work.map(|work| front.known_after(work)));
            }
            write.perform(&context.memory, &context.units.clock).map_err(fault)?;
        }
        if value >> 5 & 3 != 0 || kind == 3 {
            context.interrupts.non_stalling();
        }
        Ok(())
    }

    fn transfer(
        &self,
        context: &Context<'_>,
        multi_line: bool,
        remap: bool,
        pipelined: bool,
    ) -> Result<Option<WorkId>, Exception> {
        let lines = if multi_line { self.line_count } else { 1 };
        let remap = remap.then(|| Remap::new(self.components, self.constants));
        let (in_element, out_element) =
            remap.as_ref().map_or((1, 1), |r| (r.source_size(), r.element_size()));
        let in_length = u64::from(self.line_length) * in_element;
        let out_length = u64::from(self.line_length) * out_element;
        if multi_line && lines > 1 {
            let reads = remap.as_ref().is_none_or(Remap::reads_source);
            if reads && in_length > u64::from(self.pitch_in) {
                return Err(Exception::CopyLaunch { code: code::SOURCE_LINE });
            }
            if out_length > u64::from(self.pitch_out) {
                return Err(Exception::CopyLaunch { code: code::DESTINATION_LINE });
            }
        }
        let reads = remap.as_ref().is_none_or(Remap::reads_source);
        let work = context.front.map(|front| {
            let (from, to) = (join(self.source), join(self.destination));
            let len = out_length * u64::from(lines);
            front.begin_transfer(Work::Copy { from: reads.then_some(from), to, len }, pipelined)
        });
        let missing = u64::from(context.units.defects.contains(Defects::COPIES)).min(in_length);
        for line in 0..u64::from(lines) {
            let from = join(self.source).wrapping_add(line * u64::from(self.pitch_in));
            let to = join(self.destination).wrapping_add(line * u64::from(self.pitch_out));
            let copied = Copied { from: reads.then_some(from), read: in_length, to, bytes: out_length };
            context.units.executor.check_copy(&context.memory, &copied);
            if let (Some(front), Some(work)) = (&context.front, work) {
                if reads {
                    front.transfers(&context.memory, work, from, in_length, false);
                }
                front.transfers(&context.memory, work, to, out_length, true);
            }
            match &remap {
                None => context.memory.copy(from, to, in_length - missing).map_err(fault)?,
                Some(remap) => remap.line(context, from, to, self.line_length)?,
            }
        }
        context.units.count(|total| {
            total.copies += 1;
            total.copied_bytes += out_length * u64::from(lines);
        });
        Ok(work)
    }
}

/// A component-wise copy.
#[derive(Debug)]
struct Remap {
    size: usize,
    sources: usize,
    targets: Vec<u32>,
    constants: [u32; 2],
}

impl Remap {
    fn new(components: u32, constants: [u32; 2]) -> Self {
        let field = |at: u32| components >> at & 7;
        let count = (components >> 24 & 3) + 1;
        Self {
            size: (components >> 16 & 3) as usize + 1,
            sources: (components >> 20 & 3) as usize + 1,
            targets: (0..count).map(|i| field(i * 4)).collect(),
            constants,
        }
    }

    fn reads_source(&self) -> bool {
        self.targets.iter().any(|&t| t < 4)
    }

    fn source_size(&self) -> u64 {
        (self.size * self.sources) as u64
    }

    fn element_size(&self) -> u64 {
        (self.size * self.targets.len()) as u64
    }

    fn line(&self, context: &Context<'_>, from: u64, to: u64, elements: u32) -> Result<(), Exception> {
        const CHUNK: u64 = 4096;
        let keeps = self.targets.contains(&6);
        let mut at = 0;
        while at < u64::from(elements) {
            let count = CHUNK.min(u64::from(elements) - at);
            let target = to.wrapping_add(at * self.element_size());
            let mut out = vec![0; (count * self.element_size()) as usize];
            if keeps {
                context.memory.read(target, &mut out).map_err(fault)?;
            }
            let mut source =
                vec![0; if self.reads_source() { (count * self.source_size()) as usize } else { 0 }];
            context.memory.read(from.wrapping_add(at * self.source_size()), &mut source).map_err(fault)?;
            for (i, element) in out.chunks_exact_mut(self.element_size() as usize).enumerate() {
                for (component, bytes) in self.targets.iter().zip(element.chunks_exact_mut(self.size)) {
                    match *component {
                        c @ 0..4 => {
                            if c as usize >= self.sources {
                                return Err(Exception::CopyLaunch { code: code::BAD_COMPONENT });
                            }
                            let start = (i * self.sources + c as usize) * self.size;
                            bytes.copy_from_slice(&source[start..start + self.size]);
                        }
                        c @ (4 | 5) => {
                            let constant = self.constants[c as usize - 4].to_le_bytes();
                            bytes.copy_from_slice(&constant[..self.size]);
                        }
                        6 => {}
                        _ => return Err(Exception::CopyLaunch { code: code::INVALID_VALUE }),
                    }
                }
            }
            context.memory.write(target, &out).map_err(fault)?;
            at += count;
        }
        Ok(())
    }
}

fn join([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn fault(fault: MemoryFault) -> Exception {
    Exception::hub(HubClient::CopyEngine, fault)
}
