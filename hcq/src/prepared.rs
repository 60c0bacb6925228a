//! Launches that were made before: checked, with a descriptor and a constant bank that lack only what differs from launch
//! to launch.

use std::sync::{Arc, Weak};

use crate::constant_bank::GRID_ID;
use crate::error::Error;
use crate::launch::LaunchConfig;
use crate::program::{Image, Kernel};
use crate::queue::LaunchTarget;

/// Kernel and shape combinations that a queue remembers.
const KEPT: usize = 32;
/// Banks are written in whole lines of the CPU's write-combining buffers: a part of a line costs more than all of it.
const LINE: usize = 64;

/// A kernel in one shape.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Keeps the image's place in memory, not the image: its address names this one as long as this exists.
    image: Weak<Image>,
    index: usize,
    config: LaunchConfig,
    /// The descriptor, without the bank's address.
    pub qmd: qmd::Qmd,
    /// The bank, in whole lines.
    bank: Vec<u8>,
    /// Offset of the parameters in the bank, and their length.
    parameters: usize,
    pub parameter_bytes: usize,
    pub local_per_thread: u32,
    /// The submission that the image was last marked with.
    pub marked: Option<u64>,
}

impl Prepared {
    /// Encodes what all launches of this kind have in common.
    pub fn new(target: &LaunchTarget, kernel: &Kernel, config: LaunchConfig) -> Result<Self, Error> {
        let named = |source| Error::Qmd { kernel: kernel.name().to_owned(), source };
        let mut qmd = kernel.template(target.qmd, config)?;
        qmd.set_grid(config.grid).map_err(named)?;
        let (base, parameter_bytes) = (kernel.info().param_base, kernel.param_bytes() as usize);
        let mut bank = Vec::new();
        target.bank.fill(&mut bank, &config, 0, base, &vec![0; parameter_bytes]);
        bank.resize(bank.len().next_multiple_of(LINE), 0);
        Ok(Self {
            image: Arc::downgrade(&kernel.image),
            index: kernel.index(),
            config,
            qmd,
            bank,
            parameters: base as usize,
            parameter_bytes,
            local_per_thread: kernel.local_per_thread(),
            marked: None,
        })
    }

    fn is(&self, kernel: &Kernel, config: &LaunchConfig) -> bool {
        Weak::as_ptr(&self.image) == Arc::as_ptr(&kernel.image)
            && self.index == kernel.index()
            && self.config == *config
    }

    /// Bytes of the bank that a kernel may read.
    pub fn bank_len(&self) -> u32 {
        (self.parameters + self.parameter_bytes).next_multiple_of(16) as u32
    }

    /// The bank of one launch. `parameters` are as many bytes as the kernel takes.
    pub fn bank(&mut self, grid_id: u64, parameters: &[u8]) -> &[u8] {
        if let Some(place) = self.bank.get_mut(GRID_ID..GRID_ID + 8) {
            place.copy_from_slice(&grid_id.to_le_bytes());
        }
        if let Some(place) = self.bank.get_mut(self.parameters..self.parameters + parameters.len()) {
            place.copy_from_slice(parameters);
        }
        &self.bank
    }
}

/// What a queue remembers, the latest additions last.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    list: Vec<Prepared>,
    /// The one that was used last, where the next search starts.
    last: usize,
    /// The one to be replaced next, once the list is full.
    oldest: usize,
}

impl Kept {
    /// The number of a combination, if it is there.
    pub fn find(&mut self, kernel: &Kernel, config: &LaunchConfig) -> Option<usize> {
        let (later, earlier) = (self.last..self.list.len(), 0..self.last);
        let found = later.chain(earlier).find(|i| self.list[*i].is(kernel, config))?;
        self.last = found;
        Some(found)
    }

    /// Adds a combination; its number.
    pub fn add(&mut self, prepared: Prepared) -> usize {
        if self.list.len() < KEPT {
            self.list.push(prepared);
            self.last = self.list.len() - 1;
        } else {
            self.last = self.oldest;
            self.list[self.last] = prepared;
            self.oldest = (self.oldest + 1) % KEPT;
        }
        self.last
    }

    /// The combination with a number that [`find`](Self::find) or [`add`](Self::add) gave last.
    pub fn get(&mut self, number: usize) -> Option<&mut Prepared> {
        self.list.get_mut(number)
    }
}
