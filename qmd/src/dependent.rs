//! Dependent QMDs: launches that start after this one.

use crate::error::Error;
use crate::image::{Qmd, layout};
use crate::table::layout::{Address, DependentFields};
use crate::version::ALIGN;

/// Action on the dependent QMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DependentAction {
    /// Increments the put index of a queue.
    IncrementPut,
    /// Launches it.
    Schedule,
    /// Invalidates a cached copy of it, reads it again and launches it.
    InvalidateCopySchedule,
    /// Decrements its dependence counter; it starts at zero.
    DecrementDependence,
}

impl DependentAction {
    const fn number(self) -> u32 {
        match self {
            Self::IncrementPut => 0,
            Self::Schedule => 1,
            Self::InvalidateCopySchedule => 3,
            Self::DecrementDependence => 4,
        }
    }

    const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::IncrementPut),
            1 => Some(Self::Schedule),
            3 => Some(Self::InvalidateCopySchedule),
            4 => Some(Self::DecrementDependence),
            _ => None,
        }
    }
}

/// A QMD that follows this one, after all its blocks and its membar.
///
/// Its memory, code and arguments must not change before it has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dependent {
    /// GPU virtual address of the QMD, a multiple of 256 below 2^40.
    pub address: u64,
    /// Action on it.
    pub action: DependentAction,
    /// Whether the scheduler may read it before this grid has completed.
    pub prefetch: bool,
}

impl Dependent {
    /// Launches the QMD at `address`.
    #[must_use]
    pub const fn schedule(address: u64) -> Self {
        Self { address, action: DependentAction::Schedule, prefetch: false }
    }

    /// Decrements the dependence counter of the QMD at `address`, which starts when that reaches zero.
    #[must_use]
    pub const fn decrement(address: u64) -> Self {
        Self { address, action: DependentAction::DecrementDependence, prefetch: false }
    }

    /// Lets the scheduler read it early.
    #[must_use]
    pub const fn prefetched(mut self) -> Self {
        self.prefetch = true;
        self
    }
}

impl Qmd {
    /// Number of dependent slots that can be used: 1 on v3.0 (the header names no pointer for the second), 2
    /// on v4.0.
    #[must_use]
    pub fn dependents(&self) -> usize {
        layout(self.version()).dependents.iter().filter(|d| d.pointer.is_some()).count()
    }

    fn dependent_fields(&self, slot: usize) -> Result<(&'static DependentFields, Address), Error> {
        let (version, count) = (self.version(), self.dependents());
        let fields = layout(version).dependents.get(slot);
        fields.and_then(|f| Some((f, f.pointer?))).ok_or(Error::Slot {
            what: "dependent",
            index: slot,
            count,
            version,
        })
    }

    /// Makes another QMD start after this one.
    ///
    /// # Errors
    /// [`Error::Slot`] past the [`dependents`](Self::dependents) of the version; [`Error::Misaligned`],
    /// [`Error::OutOfReach`] for the address.
    pub fn set_dependent(&mut self, slot: usize, dependent: &Dependent) -> Result<(), Error> {
        let (fields, pointer) = self.dependent_fields(slot)?;
        self.place(pointer, "a dependent QMD", dependent.address, ALIGN)?;
        self.put(fields.enable, 1);
        self.put(fields.action, dependent.action.number());
        self.put(fields.prefetch, dependent.prefetch.into());
        Ok(())
    }

    /// Makes this QMD start when so many others have decremented its counter. The scheduler counts in a field
    /// of its own, which it sets when the pushbuffer hands the QMD over by an action that copies, and, with
    /// `SELF_COPY_ON_COMPLETION`, when the grid has ended.
    pub fn set_dependence_counter(&mut self, count: u16) {
        self.put(layout(self.version()).dependence_counter, count.into());
    }

    /// Clears slot `slot`.
    ///
    /// # Errors
    /// [`Error::Slot`] past the [`dependents`](Self::dependents) of the version.
    pub fn clear_dependent(&mut self, slot: usize) -> Result<(), Error> {
        let (fields, _) = self.dependent_fields(slot)?;
        self.put(fields.enable, 0);
        Ok(())
    }

    /// The QMD that follows by slot `slot`; `None` if the slot is off, does not exist, or names an undefined
    /// action (which [`problems`](Self::problems) reports).
    #[must_use]
    pub fn dependent(&self, slot: usize) -> Option<Dependent> {
        let (fields, pointer) = self.dependent_fields(slot).ok()?;
        if self.get_own(fields.enable) == 0 {
            return None;
        }
        Some(Dependent {
            address: self.get_address(pointer),
            action: DependentAction::from_number(self.get_own(fields.action))?,
            prefetch: self.get_own(fields.prefetch) != 0,
        })
    }
}
