//! Release semaphores: writes of a QMD to memory after its grid.

use crate::error::Error;
use crate::image::{Qmd, layout};
use crate::reduction::{Reduction, ReductionOp};
use crate::table::layout::ReleaseFields;

/// Number of release slots.
pub const RELEASES: usize = 3;

/// Layout of a release: size, and data besides the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// 16 bytes: an 8-byte payload, then the time in nanoseconds (PTIMER) as 8 bytes.
    FourWords,
    /// 4 bytes: a 32-bit payload.
    OneWord,
    /// 8 bytes: a 64-bit payload.
    TwoWords,
}

impl Structure {
    /// Size in memory, which is also its alignment, in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::FourWords => 16,
            Self::OneWord => 4,
            Self::TwoWords => 8,
        }
    }
}

/// Whether a release also raises an interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trap {
    /// No interrupt.
    #[default]
    None,
    /// `TRAP_UNCONDITIONAL`.
    Unconditional,
    /// `TRAP_CONDITIONAL`.
    Conditional,
    /// `TRAP_CONDITIONAL_EXT`.
    ConditionalExt,
}

/// A release semaphore.
///
/// The releases of one QMD have no documented order among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// GPU virtual address, aligned to the size of the structure; below 2^40 on v3.0, 2^57 on v4.0.
    pub address: u64,
    /// The value; a 32-bit release uses its lower half.
    pub payload: u64,
    /// Whether 64 bits of the payload count.
    pub wide: bool,
    /// Layout of the written data.
    pub structure: Structure,
    /// Whether the front end issues a system membar before the write.
    pub membar: bool,
    /// Combines with memory instead of overwriting it.
    pub reduction: Option<Reduction>,
    /// Interrupt.
    pub trap: Trap,
}

impl Release {
    /// Writes a 32-bit value.
    #[must_use]
    pub const fn new_u32(address: u64, payload: u32) -> Self {
        let structure = Structure::OneWord;
        Self {
            address,
            payload: payload as u64,
            wide: false,
            structure,
            membar: false,
            reduction: None,
            trap: Trap::None,
        }
    }

    /// Writes a 64-bit value.
    #[must_use]
    pub const fn new_u64(address: u64, payload: u64) -> Self {
        let structure = Structure::TwoWords;
        Self { address, payload, wide: true, structure, membar: false, reduction: None, trap: Trap::None }
    }

    /// Also writes the time, at the address plus 8; the structure then has 16 bytes.
    #[must_use]
    pub const fn with_timestamp(mut self) -> Self {
        self.structure = Structure::FourWords;
        self
    }

    /// Makes the front end issue a system membar before the write.
    #[must_use]
    pub const fn with_membar(mut self) -> Self {
        self.membar = true;
        self
    }

    /// Combines the payload with the value in memory.
    #[must_use]
    pub const fn reducing(mut self, op: ReductionOp, signed: bool) -> Self {
        self.reduction = Some(Reduction { op, signed });
        self
    }

    /// Raises an interrupt.
    #[must_use]
    pub const fn trapping(mut self, trap: Trap) -> Self {
        self.trap = trap;
        self
    }

    /// Whether the time is written.
    #[must_use]
    pub const fn timestamp(&self) -> bool {
        matches!(self.structure, Structure::FourWords)
    }
}

impl Qmd {
    fn release_fields(&self, slot: usize) -> Result<&'static ReleaseFields, Error> {
        let version = self.version();
        let missing = Error::Slot { what: "release", index: slot, count: RELEASES, version };
        layout(version).releases.get(slot).ok_or(missing)
    }

    /// Fills release slot `slot`.
    ///
    /// # Errors
    /// [`Error::Slot`] for a slot of 3 or more; [`Error::Misaligned`], [`Error::OutOfReach`] for the address;
    /// [`Error::WideReduction`] for `Inc`, `Dec` and signed `Add` on 64 bits (the host's rule for the same L2
    /// operations; that it holds here is inferred).
    pub fn set_release(&mut self, slot: usize, release: &Release) -> Result<(), Error> {
        let fields = self.release_fields(slot)?;
        match release.reduction {
            Some(Reduction { op: op @ (ReductionOp::Inc | ReductionOp::Dec), .. })
            | Some(Reduction { op: op @ ReductionOp::Add, signed: true })
                if release.wide =>
            {
                return Err(Error::WideReduction { op });
            }
            _ => {}
        }
        self.place(fields.address, "a release semaphore", release.address, release.structure.bytes())?;
        self.put(fields.enable, 1);
        self.put(
            fields.structure_size,
            match release.structure {
                Structure::FourWords => 0,
                Structure::OneWord => 1,
                Structure::TwoWords => 2,
            },
        );
        self.put(fields.membar, release.membar.into());
        self.put(fields.reduction_enable, release.reduction.is_some().into());
        self.put(fields.reduction_op, release.reduction.map_or(0, |r| r.op as u32));
        self.put(fields.reduction_format, release.reduction.is_some_and(|r| r.signed).into());
        self.put(fields.trap, release.trap as u32);
        self.put(fields.payload_64, release.wide.into());
        self.set_release_payload(slot, release.payload)
    }

    /// Changes the payload of release slot `slot` and nothing else.
    ///
    /// # Errors
    /// [`Error::Slot`] for a slot of 3 or more.
    pub fn set_release_payload(&mut self, slot: usize, payload: u64) -> Result<(), Error> {
        let [lower, upper] = self.release_fields(slot)?.payload;
        self.put(lower, payload as u32);
        self.put(upper, (payload >> 32) as u32);
        Ok(())
    }

    /// Empties release slot `slot`.
    ///
    /// # Errors
    /// [`Error::Slot`] for a slot of 3 or more.
    pub fn clear_release(&mut self, slot: usize) -> Result<(), Error> {
        let fields = self.release_fields(slot)?;
        self.put(fields.enable, 0);
        Ok(())
    }

    /// Release slot `slot`; `None` if it is off, or if its structure size is the undefined value 3 (which
    /// [`problems`](Self::problems) reports).
    #[must_use]
    pub fn release(&self, slot: usize) -> Option<Release> {
        let fields = self.release_fields(slot).ok()?;
        if self.get_own(fields.enable) == 0 {
            return None;
        }
        let structure = match self.get_own(fields.structure_size) {
            0 => Structure::FourWords,
            1 => Structure::OneWord,
            2 => Structure::TwoWords,
            _ => return None,
        };
        let op = ReductionOp::ALL.get(self.get_own(fields.reduction_op) as usize).copied()?;
        let signed = self.get_own(fields.reduction_format) != 0;
        let [lower, upper] = fields.payload.map(|f| u64::from(self.get_own(f)));
        Some(Release {
            address: self.get_address(fields.address),
            payload: upper << 32 | lower,
            wide: self.get_own(fields.payload_64) != 0,
            structure,
            membar: self.get_own(fields.membar) != 0,
            reduction: (self.get_own(fields.reduction_enable) != 0).then_some(Reduction { op, signed }),
            trap: match self.get_own(fields.trap) {
                1 => Trap::Unconditional,
                2 => Trap::Conditional,
                3 => Trap::ConditionalExt,
                _ => Trap::None,
            },
        })
    }
}
