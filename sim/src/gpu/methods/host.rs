//! Host methods (class C76F): semaphores, waits, memory operations.

use crate::gpu::context::{Context, Flow};
use crate::gpu::exception::{Exception, HubClient, intr};
use crate::gpu::semaphore::{Acquire, Compare, Reduce, Write};
use crate::gpu::syncpoint::SYNCPOINT_STRIDE;

/// Method state of the host for one channel.
#[derive(Debug, Default)]
pub(crate) struct HostMethods {
    address: [u32; 2],
    payload: [u32; 2],
    execute: u32,
    legacy: [u32; 3],
    mem_op: [u32; 3],
    waiting: Option<Acquire>,
}

/// Operations of `SEM_EXECUTE`.
fn compare(operation: u32) -> Option<Compare> {
    Some(match operation {
        0 => Compare::Equal,
        2 => Compare::StrictGeq,
        3 => Compare::CircularGeq,
        4 => Compare::And,
        5 => Compare::Nor,
        _ => return None,
    })
}

/// Bits of `SEM_EXECUTE` that mean something.
const EXECUTE_BITS: u32 = 0xfb10_1007;

impl HostMethods {
    /// Address, payload and operation of the last semaphore.
    pub(crate) fn semaphore(&self) -> (u64, u64, u32) {
        (join(self.address), join(self.payload), self.execute)
    }

    /// Stops the channel until the condition holds.
    pub(crate) fn wait_for(&mut self, acquire: Acquire) {
        self.waiting = Some(acquire);
    }

    /// Polls the semaphore the channel waits for; true when it waits for none.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Result<bool, Exception> {
        let Some(acquire) = self.waiting else { return Ok(true) };
        let met = acquire.is_met(&context.memory).map_err(|f| Exception::hub(HubClient::Host, f))?;
        if met {
            self.waiting = None;
            if let Some(front) = &context.front {
                front.acquired(&context.memory, acquire.va);
            }
        }
        Ok(met)
    }

    /// Executes one method.
    pub(crate) fn method(
        &mut self,
        context: &Context<'_>,
        address: u32,
        value: u32,
    ) -> Result<Flow, Exception> {
        match address {
            0x08 | 0x24 => {}
            0x10 => self.legacy[0] = value & 0xff,
            0x14 => self.legacy[1] = value,
            0x18 => self.legacy[2] = value,
            0x1c => return self.legacy_semaphore(context, value),
            0x20 => context.interrupts.non_stalling(),
            0x28 => self.mem_op[0] = value,
            0x2c => self.mem_op[1] = value,
            0x30 => self.mem_op[2] = value,
            0x34 => return self.memory_operation(value),
            0x50 => {
                wait_idle(context, true);
                context.ring.set_reference(value);
            }
            0x5c => self.address[0] = value,
            0x60 => self.address[1] = value & 0xff,
            0x64 => self.payload[0] = value,
            0x68 => self.payload[1] = value,
            0x6c => return self.execute_semaphore(context, value),
            // The pushbuffer unit has waited, if there was work to wait for.
            0x78 => wait_idle(context, false),
            0x80 => {}
            _ => return Err(Exception::pbdma(intr::METHOD, 0)),
        }
        Ok(Flow::Next)
    }

    fn execute_semaphore(&mut self, context: &Context<'_>, value: u32) -> Result<Flow, Exception> {
        self.execute = value;
        let bad = || Exception::pbdma(intr::SEMAPHORE, 0);
        let (va, payload) = (join(self.address), join(self.payload));
        let wide = value >> 24 & 1 != 0;
        let timestamp = value >> 25 & 1 != 0;
        let operation = value & 7;
        let writes = matches!(operation, 1 | 6);
        let align = match (wide, timestamp && writes) {
            (_, true) => 16,
            (true, false) => 8,
            (false, false) => 4,
        };
        if value & !EXECUTE_BITS != 0 || va % align != 0 {
            return Err(bad());
        }
        if let Some(compare) = compare(operation) {
            return Ok(Flow::Acquire(Acquire { va, payload, wide, compare }));
        }
        let reduce = match operation {
            1 => None,
            6 => {
                let (op, signed) = (Reduce::BY_HOST[(value >> 27 & 7) as usize], value >> 31 == 0);
                let counts = matches!(op, Reduce::Inc | Reduce::Dec) || op == Reduce::Add && signed;
                if value >> 30 & 1 != 0 || wide && counts {
                    return Err(bad());
                }
                Some((op, signed))
            }
            _ => return Err(bad()),
        };
        self.write(context, Write { va, payload, wide, timestamp, reduce }, value >> 20 & 1 != 0)
    }

    fn write(&self, context: &Context<'_>, write: Write, after_idle: bool) -> Result<Flow, Exception> {
        if let Some(front) = &context.front {
            if after_idle {
                front.wait_idle(true);
            }
            front.release(&context.memory, &write, None);
        }
        let syncpoint = context.channel.bindings().syncpoint;
        if let Some((id, _)) = syncpoint.filter(|(_, base)| write.va.wrapping_sub(*base) < SYNCPOINT_STRIDE) {
            context.units.syncpoints.increment(id);
            return Ok(Flow::Next);
        }
        let done = write.perform(&context.memory, &context.units.clock);
        done.map_err(|f| Exception::hub(HubClient::Host, f))?;
        Ok(Flow::Next)
    }

    /// The older group of four methods: other operation numbers, and inverted meaning of two bits.
    fn legacy_semaphore(&self, context: &Context<'_>, value: u32) -> Result<Flow, Exception> {
        let va = u64::from(self.legacy[0]) << 32 | u64::from(self.legacy[1]);
        let payload = u64::from(self.legacy[2]);
        let four_bytes = value >> 24 & 1 != 0;
        let align = if four_bytes { 4 } else { 16 };
        let acquire = |compare| Ok(Flow::Acquire(Acquire { va: va & !3, payload, wide: false, compare }));
        match value & 0x1f {
            1 => acquire(Compare::Equal),
            4 => acquire(Compare::CircularGeq),
            8 => acquire(Compare::And),
            operation @ (2 | 16) => {
                if va % align != 0 {
                    return Err(Exception::pbdma(intr::SEMAPHORE, 0));
                }
                let op = Reduce::BY_HOST[(value >> 27 & 7) as usize];
                let reduce = (operation == 16).then_some((op, value >> 31 == 0));
                let write = Write { va, payload, wide: false, timestamp: !four_bytes, reduce };
                self.write(context, write, value >> 20 & 1 == 0)
            }
            _ => Err(Exception::pbdma(intr::SEMAPHORE, 0)),
        }
    }

    /// `MEM_OP_D`: barriers and cache operations are legal for a user, TLB operations are not.
    fn memory_operation(&mut self, value: u32) -> Result<Flow, Exception> {
        self.mem_op = [0; 3];
        match value >> 27 {
            5 | 0xd | 0xe | 0xf | 0x10 | 0x15 => {
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                Ok(Flow::Next)
            }
            _ => Err(Exception::pbdma(intr::METHOD, 0)),
        }
    }
}

/// Whether a method waits until the engines are idle: `WFI`, `SET_REFERENCE`, and releases that ask for it.
pub(crate) fn waits_for_engines(address: u32, value: u32) -> bool {
    match address {
        0x50 | 0x78 => true,
        0x1c => matches!(value & 0x1f, 2 | 16) && value >> 20 & 1 == 0,
        0x6c => matches!(value & 7, 1 | 6) && value >> 20 & 1 != 0,
        _ => false,
    }
}

fn wait_idle(context: &Context<'_>, flushes: bool) {
    if let Some(front) = &context.front {
        front.wait_idle(flushes);
    }
}

fn join([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
