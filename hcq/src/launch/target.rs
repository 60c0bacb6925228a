//! What launches are encoded for: the QMD version and the constant-bank layout of the GPU.

use crate::address::GpuVa;
use crate::backend::Backend;
use crate::error::Error;
use crate::launch::constant_bank::{BankContext, BankLayout};

/// The tables of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchTarget {
    pub qmd: qmd::Target,
    pub bank: BankContext,
}

impl LaunchTarget {
    /// The tables for a device.
    pub fn of(backend: &dyn Backend) -> Result<Self, Error> {
        let (info, layout) = (backend.info(), backend.layout());
        let sm = info.sm_number();
        let (Some(target), Some(bank)) = (qmd::Target::from_sm(sm), BankLayout::of_sm(sm)) else {
            let supported = "sm_80, sm_86, sm_87, sm_89, sm_90";
            return Err(Error::Unsupported { what: "SM version", value: info.sm.into(), supported });
        };
        let (shared_window, local_window) = (layout.shared_window, layout.local_window);
        let bank = BankContext { layout: bank, shared_window, local_window, sm_count: info.sm_count };
        Ok(Self { qmd: target, bank })
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
