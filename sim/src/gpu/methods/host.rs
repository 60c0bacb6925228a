//! Host methods (class C76F): semaphores, waits, memory operations.

use crate::gpu::context::{Context, Flow};
use crate::gpu::exception::{Exception, HubClient};
use crate::gpu::semaphore::{Acquire, Compare, Reduce, Write};
use crate::gpu::syncpoint::SYNCPOINT_STRIDE;
use nv_hw::class::c76f::*;
use nv_hw::fault::pbdma_intr_0;

use SEM_EXECUTE as Execute;
use SEMAPHORED as Legacy;

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
        Execute::OPERATION::ACQUIRE => Compare::Equal,
        Execute::OPERATION::ACQ_STRICT_GEQ => Compare::StrictGeq,
        Execute::OPERATION::ACQ_CIRC_GEQ => Compare::CircularGeq,
        Execute::OPERATION::ACQ_AND => Compare::And,
        Execute::OPERATION::ACQ_NOR => Compare::Nor,
        _ => return None,
    })
}

/// Bits of `SEM_EXECUTE` that mean something.
const EXECUTE_BITS: u32 = Execute::OPERATION.mask()
    | Execute::ACQUIRE_SWITCH_TSG.mask()
    | Execute::RELEASE_WFI.mask()
    | Execute::PAYLOAD_SIZE.mask()
    | Execute::RELEASE_TIMESTAMP.mask()
    | Execute::REDUCTION.mask()
    | Execute::REDUCTION_FORMAT.mask();

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
            NOP | FB_FLUSH | YIELD => {}
            SEMAPHOREA => self.legacy[0] = SEMAPHOREA::OFFSET_UPPER.of(value),
            SEMAPHOREB => self.legacy[1] = value,
            SEMAPHOREC => self.legacy[2] = value,
            SEMAPHORED => return self.legacy_semaphore(context, value),
            NON_STALL_INTERRUPT => context.interrupts.non_stalling(),
            MEM_OP_A => self.mem_op[0] = value,
            MEM_OP_B => self.mem_op[1] = value,
            MEM_OP_C => self.mem_op[2] = value,
            MEM_OP_D => return self.memory_operation(value),
            SET_REFERENCE => {
                wait_idle(context, true);
                context.ring.set_reference(value);
            }
            SEM_ADDR_LO => self.address[0] = value,
            SEM_ADDR_HI => self.address[1] = SEM_ADDR_HI::OFFSET.of(value),
            SEM_PAYLOAD_LO => self.payload[0] = value,
            SEM_PAYLOAD_HI => self.payload[1] = value,
            SEM_EXECUTE => return self.execute_semaphore(context, value),
            // The pushbuffer unit has waited, if there was work to wait for.
            WFI => wait_idle(context, false),
            _ => return Err(Exception::pbdma(1 << pbdma_intr_0::METHOD, 0)),
        }
        Ok(Flow::Next)
    }

    fn execute_semaphore(&mut self, context: &Context<'_>, value: u32) -> Result<Flow, Exception> {
        self.execute = value;
        let bad = || Exception::pbdma(1 << pbdma_intr_0::SEMAPHORE, 0);
        let (va, payload) = (join(self.address), join(self.payload));
        let wide = Execute::PAYLOAD_SIZE.of(value) != 0;
        let timestamp = Execute::RELEASE_TIMESTAMP.of(value) != 0;
        let operation = Execute::OPERATION.of(value);
        let writes = matches!(operation, Execute::OPERATION::RELEASE | Execute::OPERATION::REDUCTION);
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
            Execute::OPERATION::RELEASE => None,
            Execute::OPERATION::REDUCTION => {
                let op = Reduce::BY_HOST.get(Execute::REDUCTION.of(value) as usize).ok_or_else(bad)?;
                let signed = Execute::REDUCTION_FORMAT.of(value) == Execute::REDUCTION_FORMAT::SIGNED;
                let counts = matches!(op, Reduce::Inc | Reduce::Dec) || *op == Reduce::Add && signed;
                if wide && counts {
                    return Err(bad());
                }
                Some((*op, signed))
            }
            _ => return Err(bad()),
        };
        self.write(
            context,
            Write { va, payload, wide, timestamp, reduce },
            Execute::RELEASE_WFI.of(value) != 0,
        )
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
        let four_bytes = Legacy::RELEASE_SIZE.of(value) == Legacy::RELEASE_SIZE::_4BYTE;
        let align = if four_bytes { 4 } else { 16 };
        let acquire = |compare| Ok(Flow::Acquire(Acquire { va: va & !3, payload, wide: false, compare }));
        match Legacy::OPERATION.of(value) {
            Legacy::OPERATION::ACQUIRE => acquire(Compare::Equal),
            Legacy::OPERATION::ACQ_GEQ => acquire(Compare::CircularGeq),
            Legacy::OPERATION::ACQ_AND => acquire(Compare::And),
            operation @ (Legacy::OPERATION::RELEASE | Legacy::OPERATION::REDUCTION) => {
                if va % align != 0 {
                    return Err(Exception::pbdma(1 << pbdma_intr_0::SEMAPHORE, 0));
                }
                // No operation uses the highest of the field's four bits.
                let op = Reduce::BY_HOST[(Legacy::REDUCTION.of(value) & 7) as usize];
                let signed = Legacy::FORMAT.of(value) == Legacy::FORMAT::SIGNED;
                let reduce = (operation == Legacy::OPERATION::REDUCTION).then_some((op, signed));
                let write = Write { va, payload, wide: false, timestamp: !four_bytes, reduce };
                self.write(context, write, Legacy::RELEASE_WFI.of(value) == Legacy::RELEASE_WFI::EN)
            }
            _ => Err(Exception::pbdma(1 << pbdma_intr_0::SEMAPHORE, 0)),
        }
    }

    /// `MEM_OP_D`: barriers and cache operations are legal for a user, TLB operations are not.
    fn memory_operation(&mut self, value: u32) -> Result<Flow, Exception> {
        self.mem_op = [0; 3];
        use MEM_OP_D::OPERATION::*;
        match MEM_OP_D::OPERATION.of(value) {
            MEMBAR
            | L2_PEERMEM_INVALIDATE
            | L2_SYSMEM_INVALIDATE
            | L2_CLEAN_COMPTAGS
            | L2_FLUSH_DIRTY
            | L2_WAIT_FOR_SYS_PENDING_READS => {
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                Ok(Flow::Next)
            }
            _ => Err(Exception::pbdma(1 << pbdma_intr_0::METHOD, 0)),
        }
    }
}

/// Whether a method waits until the engines are idle: `WFI`, `SET_REFERENCE`, and releases with that option.
pub(crate) fn waits_for_engines(address: u32, value: u32) -> bool {
    match address {
        SET_REFERENCE | WFI => true,
        SEMAPHORED => {
            use Legacy::OPERATION::{REDUCTION, RELEASE};
            matches!(Legacy::OPERATION.of(value), RELEASE | REDUCTION)
                && Legacy::RELEASE_WFI.of(value) == Legacy::RELEASE_WFI::EN
        }
        SEM_EXECUTE => {
            use Execute::OPERATION::{REDUCTION, RELEASE};
            matches!(Execute::OPERATION.of(value), RELEASE | REDUCTION) && Execute::RELEASE_WFI.of(value) != 0
        }
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
