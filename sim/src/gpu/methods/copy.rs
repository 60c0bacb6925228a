//! Copy methods (class C7B5): linear and pitched copies, constant fills, semaphores.

use crate::defects::Defects;
use crate::findings::Checks;
use crate::gpu::context::{Context, Flow};
use crate::gpu::exception::{Exception, HubClient};
use crate::gpu::semaphore::{Reduce, Write};
use crate::gpu::sm::check::copies::Copied;
use crate::gpu::sm::launch::MemoryFault;
use crate::order::ledger::Visible;
use crate::order::work::{Work, WorkId};
use crate::pieces::seen::SeenWrites;
use nv_hw::class::c7b5::*;
use nv_hw::fault::{ce_launch_error, pbdma_intr_1};

use LAUNCH_DMA as Launch;

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
            NOP | PM_TRIGGER | PM_TRIGGER_END => {}
            SET_MONITORED_FENCE_TYPE..=SET_MONITORED_FENCE_SIGNAL_ADDR_BASE_LOWER => {}
            SET_SEMAPHORE_A => self.semaphore[1] = SET_SEMAPHORE_A::UPPER.of(value),
            SET_SEMAPHORE_B => self.semaphore[0] = value,
            SET_SEMAPHORE_PAYLOAD => self.payload[0] = value,
            SET_SEMAPHORE_PAYLOAD_UPPER => self.payload[1] = value,
            SET_RENDER_ENABLE_A | SET_RENDER_ENABLE_B => {}
            SET_RENDER_ENABLE_C if SET_RENDER_ENABLE_C::MODE.of(value) == SET_RENDER_ENABLE_C::MODE::TRUE => {
            }
            SET_RENDER_ENABLE_C => {
                return Err(Exception::CopyLaunch { code: ce_launch_error::INVALID_VALUE });
            }
            SET_SRC_PHYS_MODE | SET_DST_PHYS_MODE => {}
            LAUNCH_DMA => self.launch(context, value)?,
            OFFSET_IN_UPPER => self.source[1] = OFFSET_IN_UPPER::UPPER.of(value),
            OFFSET_IN_LOWER => self.source[0] = value,
            OFFSET_OUT_UPPER => self.destination[1] = OFFSET_OUT_UPPER::UPPER.of(value),
            OFFSET_OUT_LOWER => self.destination[0] = value,
            PITCH_IN => self.pitch_in = value,
            PITCH_OUT => self.pitch_out = value,
            LINE_LENGTH_IN => self.line_length = value,
            LINE_COUNT => self.line_count = value,
            SET_REMAP_CONST_A => self.constants[0] = value,
            SET_REMAP_CONST_B => self.constants[1] = value,
            SET_REMAP_COMPONENTS => self.components = value,
            // Block-linear geometry: only used by launches that LAUNCH_DMA refuses.
            SET_DST_BLOCK_SIZE..=SET_DST_ORIGIN
            | SET_SRC_BLOCK_SIZE..=SET_SRC_ORIGIN
            | SRC_ORIGIN_X..=DST_ORIGIN_Y => {}
            _ => return Err(Exception::pbdma(0, 1 << pbdma_intr_1::HCE_ILLEGAL_MTHD)),
        }
        Ok(Flow::Next)
    }

    fn launch(&mut self, context: &Context<'_>, value: u32) -> Result<(), Exception> {
        let refuse = |code| Exception::CopyLaunch { code };
        // Physical addresses are for privileged channels.
        if Launch::SRC_TYPE.of(value) | Launch::DST_TYPE.of(value) != 0 {
            return Err(Exception::pbdma(0, 1 << pbdma_intr_1::HCE_PRIV));
        }
        let transfer = Launch::DATA_TRANSFER_TYPE.of(value);
        let mut work = None;
        if transfer == 3 {
            return Err(refuse(ce_launch_error::INVALID_VALUE));
        }
        if transfer != 0 {
            if Launch::SRC_MEMORY_LAYOUT.of(value) & Launch::DST_MEMORY_LAYOUT.of(value) == 0 {
                // Block-linear layouts are not modelled.
                return Err(refuse(ce_launch_error::INVALID_CONFIG));
            }
            let multi_line = Launch::MULTI_LINE_ENABLE.of(value) != 0;
            let remap = Launch::REMAP_ENABLE.of(value) != 0;
            work =
                self.transfer(context, multi_line, remap, transfer == Launch::DATA_TRANSFER_TYPE::PIPELINED)?;
            let flushes = Launch::FLUSH_ENABLE.of(value) != 0;
            if let (Some(front), Some(work), true) = (&context.front, work, flushes) {
                front.end(work, Visible::System);
            }
        }
        let kind = Launch::SEMAPHORE_TYPE.of(value);
        if kind != Launch::SEMAPHORE_TYPE::NONE {
            let reduce = if Launch::SEMAPHORE_REDUCTION_ENABLE.of(value) != 0 {
                // The numbers above are invalid or floating point.
                let op = Reduce::BY_HOST.get(Launch::SEMAPHORE_REDUCTION.of(value) as usize);
                let op = op.ok_or(refuse(ce_launch_error::INVALID_VALUE))?;
                Some((*op, Launch::SEMAPHORE_REDUCTION_SIGN.of(value) == 0))
            } else {
                None
            };
            let write = Write {
                va: join(self.semaphore),
                payload: join(self.payload),
                wide: Launch::SEMAPHORE_PAYLOAD_SIZE.of(value) != 0,
                timestamp: kind == Launch::SEMAPHORE_TYPE::RELEASE_SEMAPHORE_WITH_TIMESTAMP,
                reduce,
            };
            if let Some(front) = &context.front {
                front.release(&context.memory, &write, work.map(|work| front.known_after(work)));
            }
            write.perform(&context.memory, &context.units.clock).map_err(fault)?;
        }
        if Launch::INTERRUPT_TYPE.of(value) != 0
            || kind == Launch::SEMAPHORE_TYPE::RELEASE_CONDITIONAL_INTR_SEMAPHORE
        {
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
                return Err(Exception::CopyLaunch { code: ce_launch_error::SRC_LINE_ECXEEDS_PITCH });
            }
            if out_length > u64::from(self.pitch_out) {
                return Err(Exception::CopyLaunch { code: ce_launch_error::DST_LINE_ECXEEDS_PITCH });
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
                None => {
                    note_copied(context, from, to, in_length)?;
                    context.memory.copy(from, to, in_length - missing).map_err(fault)?;
                }
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

/// The notes of what was seen to be written, where reads of what nothing wrote are searched for.
fn seen<'a>(context: &Context<'a>) -> Option<&'a SeenWrites> {
    let searched = context.units.executor.checks().contains(Checks::INIT);
    searched.then(|| context.memory.seen())
}

/// Notes a line of a copy that is about to be done: what nothing wrote stays so where it is copied to.
fn note_copied(context: &Context<'_>, from: u64, to: u64, len: u64) -> Result<(), Exception> {
    const CHUNK: u64 = 1 << 16;
    let Some(seen) = seen(context) else { return Ok(()) };
    for at in (0..len).step_by(CHUNK as usize) {
        let mut data = vec![0; CHUNK.min(len - at) as usize];
        let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
        context.memory.read(from, &mut data).map_err(fault)?;
        seen.copy(from, to, &data, |word| context.memory.word_at(word));
    }
    Ok(())
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
        use SET_REMAP_COMPONENTS::*;
        let count = NUM_DST_COMPONENTS.of(components) as usize + 1;
        Self {
            size: COMPONENT_SIZE.of(components) as usize + 1,
            sources: NUM_SRC_COMPONENTS.of(components) as usize + 1,
            targets: [DST_X, DST_Y, DST_Z, DST_W][..count].iter().map(|d| d.of(components)).collect(),
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
                                return Err(Exception::CopyLaunch {
                                    code: ce_launch_error::BAD_SRC_PIXEL_COMP_REF,
                                });
                            }
                            let start = (i * self.sources + c as usize) * self.size;
                            bytes.copy_from_slice(&source[start..start + self.size]);
                        }
                        c @ (4 | 5) => {
                            let constant = self.constants[c as usize - 4].to_le_bytes();
                            bytes.copy_from_slice(&constant[..self.size]);
                        }
                        6 => {}
                        _ => return Err(Exception::CopyLaunch { code: ce_launch_error::INVALID_VALUE }),
                    }
                }
            }
            if let (false, Some(seen)) = (keeps, seen(context)) {
                seen.store(target, &out, |word| context.memory.word_at(word));
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
