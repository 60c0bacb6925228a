//! The usermode page: the doorbell, and the GPU's clock.

use std::sync::Arc;

use rm_sys::NV_HOPPER_USERMODE_A_PARAMS;

use super::client::Object;
use super::generation::Generation;
use super::mapping::{CpuMapping, Node};
use super::space::Space;
use crate::error::Error;
use crate::sync::store_barrier;

/// Bytes of the page.
const LEN: usize = 0x1_0000;
/// `TIME_0`: PTIMER in ns, low word.
const TIME_LOW: usize = 0x80;
/// `TIME_1`: high word.
const TIME_HIGH: usize = 0x84;
/// `NOTIFY_CHANNEL_PENDING`.
const DOORBELL: usize = 0x90;

/// One mapping of the page, and the object it belongs to.
#[derive(Debug)]
struct Page {
    registers: CpuMapping,
    _object: Object,
}

impl Page {
    fn new(space: &Space, class: u32, bar1: Option<bool>) -> Result<Self, Error> {
        let (client, parent) = (space.client(), space.subdevice().handle());
        let object = match bar1 {
            None => client.create(parent, class)?,
            Some(bar1) => {
                let mut parameters = NV_HOPPER_USERMODE_A_PARAMS { bBar1Mapping: bar1.into(), bPriv: 0 };
                client.create_with(parent, class, &mut parameters)?
            }
        };
        let registers =
            CpuMapping::new(client, parent, object.handle(), LEN, Node::Gpu, "the doorbell page")?;
        Ok(Self { registers, _object: object })
    }
}

/// The doorbell and the clock.
#[derive(Debug)]
pub(super) struct Doorbell {
    /// Rung through this one.
    bell: Page,
    /// The clock is read through this one, where the first cannot.
    clock: Option<Page>,
}

impl Doorbell {
    /// Maps the page, twice where the doorbell and the clock need different apertures.
    pub fn new(space: &Arc<Space>, generation: &Generation) -> Result<Self, Error> {
        let class = generation.usermode;
        if !generation.doorbell_with_memory {
            return Ok(Self { bell: Page::new(space, class, None)?, clock: None });
        }
        Ok(Self {
            bell: Page::new(space, class, Some(true))?,
            clock: Some(Page::new(space, class, Some(false))?),
        })
    }

    /// Signals the host that the channel with this token has new entries.
    pub fn ring(&self, token: u32) {
        self.bell.registers.write_u32(DOORBELL, token);
        // The page may be write-combined: without this the store could linger in the CPU.
        store_barrier();
    }

    /// The GPU's clock in ns.
    pub fn time(&self) -> u64 {
        let page = &self.clock.as_ref().unwrap_or(&self.bell).registers;
        loop {
            let high = page.read_u32(TIME_HIGH);
            let low = page.read_u32(TIME_LOW);
            if page.read_u32(TIME_HIGH) == high {
                return u64::from(high) << 32 | u64::from(low);
            }
        }
    }
}
