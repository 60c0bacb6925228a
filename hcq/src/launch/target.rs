//! The GPU that launches are encoded for: its QMD version and constant-bank layout.

use crate::address::GpuVa;
use crate::backend::Backend;
use crate::constant_bank::{BankContext, BankLayout};
use crate::error::{Error, OpenError};

/// The tables of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchTarget {
    pub qmd: qmd::Target,
    pub bank: BankContext,
    /// Whether descriptors are as those that other people have run on an Orin.
    pub conservative: bool,
}

/// KiB that [`LaunchTarget::conserve`] adds to a block's shared memory: those that the hardware keeps back.
const CONSERVED_SHARED: u32 = 0x400;
/// Carve-outs in KiB that it chooses among, the last of which is the most an SM may be set to.
const CONSERVED_CARVE_OUTS: [u32; 3] = [32, 64, 100];

impl LaunchTarget {
    /// The tables for a device.
    pub fn of(backend: &dyn Backend, conservative: bool) -> Result<Self, Error> {
        let (info, layout) = (backend.info(), backend.layout());
        let sm = info.sm_number();
        let (Some(target), Some(bank)) =
            (qmd::Target::from_sm(sm).filter(|target| target.is_run()), BankLayout::of_sm(sm))
        else {
            return Err(Error::Open(OpenError::UnsupportedSm { sm }));
        };
        let (shared_window, local_window) = (layout.shared_window, layout.local_window);
        let bank = BankContext { layout: bank, shared_window, local_window, sm_count: info.sm_count };
        Ok(Self { qmd: target, bank, conservative })
    }

    /// Gives the fields of a descriptor of version 3 the values that a launch had on an Orin, where this is
    /// asked for. A kernel that needs a larger carve-out keeps its own.
    pub fn conserve(&self, qmd: &mut qmd::Qmd) -> Result<(), qmd::Error> {
        use qmd::v03;
        if !self.conservative || qmd.version() != qmd::Version::V03 {
            return Ok(());
        }
        let caches = [
            v03::INVALIDATE_TEXTURE_HEADER_CACHE,
            v03::INVALIDATE_TEXTURE_SAMPLER_CACHE,
            v03::INVALIDATE_TEXTURE_DATA_CACHE,
        ];
        for cache in caches {
            qmd.set(cache, 1)?;
        }
        // One barrier whether or not the kernel has any.
        if qmd.get(v03::BARRIER_COUNT) == Some(0) {
            qmd.set(v03::BARRIER_COUNT, 1)?;
        }
        let shared = qmd.shared_bytes() + CONSERVED_SHARED;
        let code = |kib: u32| kib / 4 + 1;
        if let Some(kib) = CONSERVED_CARVE_OUTS.into_iter().find(|kib| kib << 10 >= shared) {
            qmd.set(v03::SHARED_MEMORY_SIZE, shared)?;
            qmd.set(v03::MIN_SM_CONFIG_SHARED_MEM_SIZE, code(kib))?;
            qmd.set(v03::TARGET_SM_CONFIG_SHARED_MEM_SIZE, code(kib))?;
            qmd.set(v03::MAX_SM_CONFIG_SHARED_MEM_SIZE, code(CONSERVED_CARVE_OUTS[2]))?;
        }
        Ok(())
    }

    /// Names the constant bank of a launch: its lines are dropped before, since its memory was another
    /// launch's, and, where the hardware does that, fetched while the launch before ends.
    pub fn set_bank(&self, qmd: &mut qmd::Qmd, va: GpuVa, len: u32) -> Result<(), qmd::Error> {
        let bank = qmd::ConstantBuffer::new(va.raw(), len).invalidated();
        match self.qmd.version() {
            qmd::Version::V04 => {
                let limit = qmd::v04::CONSTANT_BUFFER_PREFETCH_PRE_MAX_SIZE_SHIFTED8;
                qmd.set(limit, len.div_ceil(256).min(limit.max()))?;
                qmd.set_constant_buffer(0, &bank.prefetched(qmd::ConstantPrefetch::Pre))
            }
            _ => qmd.set_constant_buffer(0, &bank),
        }
    }

    /// Bytes from the start of a QMD to the bank that follows it.
    pub fn qmd_stride(&self) -> u64 {
        self.qmd.version().stride() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::backend::tests::Books;
    use qmd::v03;

    fn descriptor(shared: u32) -> qmd::Qmd {
        let target = qmd::Target::from_sm(87).expect("an Orin");
        let launch = qmd::Launch::new(target)
            .program(0x1000, 256)
            .grid([1; 3])
            .block([32, 1, 1])
            .registers(16)
            .barriers(0);
        launch
            .shared(qmd::SharedMemory::new(shared, 0))
            .invalidate(qmd::Invalidate::SHADER_DATA)
            .build()
            .expect("a launch")
    }

    #[test]
    fn a_conservative_descriptor_has_the_values_that_ran_on_an_orin() {
        let books = Books::new(usize::MAX);
        let of = |conservative| LaunchTarget::of(&*books as &dyn Backend, conservative).expect("a target");
        let carve_outs = |qmd: &qmd::Qmd| {
            [
                v03::MIN_SM_CONFIG_SHARED_MEM_SIZE,
                v03::TARGET_SM_CONFIG_SHARED_MEM_SIZE,
                v03::MAX_SM_CONFIG_SHARED_MEM_SIZE,
            ]
            .map(|field| qmd.get(field).expect("a field of version 3"))
        };
        let before = descriptor(0);
        let mut qmd = before.clone();
        of(false).conserve(&mut qmd).expect("fits");
        assert_eq!(qmd.as_bytes(), before.as_bytes());
        of(true).conserve(&mut qmd).expect("fits");
        assert_eq!((carve_outs(&qmd), qmd.shared_bytes()), ([9, 9, 0x1a], 0x400));
        assert_eq!(qmd.get(v03::BARRIER_COUNT), Some(1));
        assert!(qmd.invalidates().contains(qmd::Invalidate::TEXTURE_HEADER | qmd::Invalidate::TEXTURE_DATA));
        let mut qmd = descriptor(48 << 10);
        of(true).conserve(&mut qmd).expect("fits");
        assert_eq!(carve_outs(&qmd), [17, 17, 0x1a]);
        let large = descriptor(120 << 10);
        let mut qmd = large.clone();
        of(true).conserve(&mut qmd).expect("fits");
        assert_eq!((carve_outs(&qmd), qmd.shared_bytes()), (carve_outs(&large), large.shared_bytes()));
    }

    #[test]
    fn the_bank_of_a_launch_is_dropped_from_caches_and_fetched_ahead_where_that_can_be() {
        let books = Books::new(usize::MAX);
        let mut target = LaunchTarget::of(&*books as &dyn Backend, false).expect("a target");
        let va = GpuVa::inside(0x10_0000_0100);
        let bank = |target: &LaunchTarget, len: u32| {
            let mut qmd = qmd::Qmd::new(target.qmd.version());
            target.set_bank(&mut qmd, va, len).expect("an address in reach");
            (qmd.constant_buffer(0).expect("a bank"), qmd)
        };
        let wanted = qmd::ConstantBuffer::new(va.raw(), 0x180).invalidated();
        assert_eq!((bank(&target, 0x180).0, target.qmd_stride()), (wanted, 256));
        target.qmd = qmd::Target::Sm90;
        let ahead = wanted.prefetched(qmd::ConstantPrefetch::Pre);
        assert_eq!((bank(&target, 0x180).0, target.qmd_stride()), (ahead, 512));
        let units = |len| {
            let (_, qmd) = bank(&target, len);
            qmd.get(qmd::v04::CONSTANT_BUFFER_PREFETCH_PRE_MAX_SIZE_SHIFTED8)
        };
        assert_eq!(
            [0x100, 0x101, 0x180, 0x1_0000].map(units).map(Option::unwrap),
            [1, 2, 2, 255.min(qmd::v04::CONSTANT_BUFFER_PREFETCH_PRE_MAX_SIZE_SHIFTED8.max())]
        );
    }
}
