//! Semaphores in memory: comparing, writing and reducing, for every unit that does it.

use crate::clock::Clock;
use crate::gpu::memory::GpuMemory;
use crate::gpu::sm::launch::{Access, MemoryFault};
use std::sync::atomic::{Ordering, fence};

/// Atomic operations of a release, whatever their numbers in the methods of each unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduce {
    /// Keeps the smaller value.
    Min,
    /// Keeps the larger value.
    Max,
    /// Exclusive or.
    Xor,
    /// And.
    And,
    /// Or.
    Or,
    /// Adds.
    Add,
    /// Adds one; 0 after reaching the payload.
    Inc,
    /// Subtracts one; the payload after 0.
    Dec,
}

impl Reduce {
    /// Order of the numbers in methods of the host and of the copy engine.
    pub(crate) const BY_HOST: [Self; 8] =
        [Self::Min, Self::Max, Self::Xor, Self::And, Self::Or, Self::Add, Self::Inc, Self::Dec];
    /// Order of the numbers in methods of the compute class and in launch descriptors.
    pub(crate) const BY_COMPUTE: [Self; 8] =
        [Self::Add, Self::Min, Self::Max, Self::Inc, Self::Dec, Self::And, Self::Or, Self::Xor];
}

/// The write of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Address.
    pub(crate) va: u64,
    /// Value; its lower half for 32-bit payloads.
    pub(crate) payload: u64,
    /// 64 bits of the payload count.
    pub(crate) wide: bool,
    /// Also write the time, 8 bytes after the address.
    pub(crate) timestamp: bool,
    /// Combine instead of overwriting; `true` for signed values.
    pub(crate) reduce: Option<(Reduce, bool)>,
}

impl Write {
    /// The value that it will leave, as far as its width goes.
    pub(crate) fn result(&self, memory: &GpuMemory<'_>) -> u64 {
        let bits = if self.wide { 64 } else { 32 };
        let payload = self.payload & u64::MAX >> (64 - bits);
        let Some((op, signed)) = self.reduce else { return payload };
        let old = match self.wide {
            true => memory.word64(self.va, Access::Read, |w| w.load(Ordering::SeqCst)),
            false => memory.word32(self.va, Access::Read, |w| w.load(Ordering::SeqCst).into()),
        };
        old.map_or(payload, |old| reduce(op, signed, old, payload, bits))
    }

    /// Performs it: the timestamp before the payload, everything before it visible first.
    ///
    /// # Errors
    /// The MMU's fault.
    pub(crate) fn perform(&self, memory: &GpuMemory<'_>, clock: &Clock) -> Result<(), MemoryFault> {
        fence(Ordering::SeqCst);
        memory.publish();
        let done = self.write(memory, clock);
        memory.publish();
        done
    }

    fn write(&self, memory: &GpuMemory<'_>, clock: &Clock) -> Result<(), MemoryFault> {
        // The page must take the write before half of it is done.
        memory.word32(self.va, Access::Write, |_| ())?;
        if self.timestamp {
            memory.word64(self.va.wrapping_add(8), Access::Write, |w| {
                w.store(clock.ptimer(), Ordering::SeqCst)
            })?;
        }
        match self.reduce {
            Some((op, signed)) if self.wide => memory.word64(self.va, Access::Atomic, |w| {
                // The closure always gives a value, so the update cannot fail.
                let _ = w.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
                    Some(reduce(op, signed, old, self.payload, 64))
                });
            }),
            Some((op, signed)) => memory.word32(self.va, Access::Atomic, |w| {
                // As above.
                let _ = w.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
                    Some(reduce(op, signed, old.into(), self.payload & 0xffff_ffff, 32) as u32)
                });
            }),
            None if self.wide || self.timestamp => {
                let value = if self.wide { self.payload } else { self.payload & 0xffff_ffff };
                memory.word64(self.va, Access::Write, |w| w.store(value, Ordering::SeqCst))
            }
            None => memory.word32(self.va, Access::Write, |w| w.store(self.payload as u32, Ordering::SeqCst)),
        }
    }
}

fn reduce(op: Reduce, signed: bool, old: u64, payload: u64, bits: u32) -> u64 {
    let mask = u64::MAX >> (64 - bits);
    let extend = |v: u64| (v << (64 - bits)) as i64 >> (64 - bits);
    let less = |a: u64, b: u64| if signed { extend(a) < extend(b) } else { a < b };
    let value = match op {
        Reduce::Min => {
            if less(payload, old) {
                payload
            } else {
                old
            }
        }
        Reduce::Max => {
            if less(old, payload) {
                payload
            } else {
                old
            }
        }
        Reduce::Xor => old ^ payload,
        Reduce::And => old & payload,
        Reduce::Or => old | payload,
        Reduce::Add => old.wrapping_add(payload),
        Reduce::Inc => {
            if old >= payload {
                0
            } else {
                old + 1
            }
        }
        Reduce::Dec => {
            if old == 0 || old > payload {
                payload
            } else {
                old - 1
            }
        }
    };
    value & mask
}

/// Conditions of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// Equal.
    Equal,
    /// Unsigned greater or equal.
    StrictGeq,
    /// Signed difference not negative: survives wrapping.
    CircularGeq,
    /// A common bit.
    And,
    /// A bit that is clear in both.
    Nor,
}

/// A semaphore that a channel waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquire {
    /// Address.
    pub(crate) va: u64,
    /// Value to compare with.
    pub(crate) payload: u64,
    /// 64 bits.
    pub(crate) wide: bool,
    /// Condition.
    pub(crate) compare: Compare,
}

impl Acquire {
    /// Whether the condition holds now.
    ///
    /// # Errors
    /// The MMU's fault.
    pub(crate) fn is_met(&self, memory: &GpuMemory<'_>) -> Result<bool, MemoryFault> {
        let (value, payload, bits) = if self.wide {
            (memory.word64(self.va, Access::Read, |w| w.load(Ordering::Acquire))?, self.payload, 64)
        } else {
            let value = memory.word32(self.va, Access::Read, |w| w.load(Ordering::Acquire))?;
            (u64::from(value), self.payload & 0xffff_ffff, 32)
        };
        let mask = u64::MAX >> (64 - bits);
        Ok(match self.compare {
            Compare::Equal => value == payload,
            Compare::StrictGeq => value >= payload,
            Compare::CircularGeq => value.wrapping_sub(payload) >> (bits - 1) & 1 == 0,
            Compare::And => value & payload != 0,
            Compare::Nor => !(value | payload) & mask != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wrap_at_the_payload() {
        assert_eq!(reduce(Reduce::Inc, false, 5, 5, 32), 0);
        assert_eq!(reduce(Reduce::Inc, false, 4, 5, 32), 5);
        assert_eq!(reduce(Reduce::Dec, false, 0, 5, 32), 5);
        assert_eq!(reduce(Reduce::Add, false, u64::MAX, 2, 64), 1);
        assert_eq!(reduce(Reduce::Max, true, 0xffff_ffff, 1, 32), 1);
        assert_eq!(reduce(Reduce::Max, false, 0xffff_ffff, 1, 32), 0xffff_ffff);
    }
}
