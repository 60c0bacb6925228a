//! Latches: how a grid begins while the one before it still runs (programmatic dependent launch).
//!
//! A grid that arrives at a latch may start its dependents as soon as each of its blocks has executed
//! `PREEXIT` (`griddepcontrol.launch_dependents`) or ended. A grid that waits on the latch stands at
//! `ACQBULK` (`griddepcontrol.wait`) until the other has ended and its membar is done.
//!
//! Source: the fields' names in `clcbc0qmd.h`; their function was measured on an H200. v3.0 has none of them.

use crate::error::Error;
use crate::image::Qmd;
use crate::table::v04;
use crate::version::Version;

impl Qmd {
    /// Whether the layout has latches: v4.0 alone.
    #[must_use]
    pub fn has_latches(&self) -> bool {
        self.version() == Version::V04
    }

    /// Lets the dependents start before this grid has ended, and names the latch that its end opens; `None`
    /// for neither. The number is the latch's own as long as a grid may wait on it.
    ///
    /// # Errors
    /// [`Error::ForeignField`] where the layout has no latches.
    pub fn set_latch_arrival(&mut self, latch: Option<u32>) -> Result<(), Error> {
        self.set(v04::ARRIVE_AT_LATCH_VALID, latch.is_some().into())?;
        self.set(v04::ARRIVE_AT_LATCH_ID, latch.unwrap_or(0))?;
        self.set(v04::ENABLE_PROGRAM_PRE_EXIT, latch.is_some().into())
    }

    /// Names the latch that the grid waits for at `ACQBULK`, where it also drops global memory from the SM's
    /// caches; `None` for no wait.
    ///
    /// # Errors
    /// [`Error::ForeignField`] where the layout has no latches.
    pub fn set_latch_wait(&mut self, latch: Option<u32>) -> Result<(), Error> {
        let on = latch.is_some().into();
        self.set(v04::WAIT_ON_LATCH_VALID, on)?;
        self.set(v04::WAIT_ON_LATCH_ID, latch.unwrap_or(0))?;
        self.set(v04::LATCH_ACQUIRE_INVALIDATE_SHADER_DATA_CACHE, on)?;
        self.set(v04::LATCH_ACQUIRE_INVALIDATE_TEXTURE_DATA_CACHE, on)
    }

    /// The latch that the grid's end opens.
    #[must_use]
    pub fn latch_arrival(&self) -> Option<u32> {
        (self.get(v04::ARRIVE_AT_LATCH_VALID)? != 0).then(|| self.get_own(v04::ARRIVE_AT_LATCH_ID))
    }

    /// The latch that the grid waits for.
    #[must_use]
    pub fn latch_wait(&self) -> Option<u32> {
        (self.get(v04::WAIT_ON_LATCH_VALID)? != 0).then(|| self.get_own(v04::WAIT_ON_LATCH_ID))
    }

    /// Whether the grid drops global memory from the SM's caches when it has waited for its latch.
    #[must_use]
    pub fn invalidates_at_latch(&self) -> bool {
        self.get(v04::LATCH_ACQUIRE_INVALIDATE_SHADER_DATA_CACHE) == Some(1)
    }

    /// Whether dependents start when all blocks have executed `PREEXIT` or ended.
    #[must_use]
    pub fn pre_exits(&self) -> bool {
        self.get(v04::ENABLE_PROGRAM_PRE_EXIT) == Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latches_are_set_read_and_cleared_and_v3_has_none() {
        assert!(Qmd::new(Version::V04).has_latches() && !Qmd::new(Version::V03).has_latches());
        let mut qmd = Qmd::new(Version::V04);
        let before = qmd.clone();
        qmd.set_latch_arrival(Some(7)).expect("v4.0 has latches");
        qmd.set_latch_wait(Some(u32::MAX)).expect("v4.0 has latches");
        assert_eq!((qmd.latch_arrival(), qmd.latch_wait(), qmd.pre_exits()), (Some(7), Some(u32::MAX), true));
        assert!(qmd.invalidates_at_latch() && !before.invalidates_at_latch());
        assert_eq!((before.latch_arrival(), before.latch_wait(), before.pre_exits()), (None, None, false));
        qmd.set_latch_arrival(None).expect("v4.0 has latches");
        qmd.set_latch_wait(None).expect("v4.0 has latches");
        assert_eq!(qmd, before);
        let mut old = Qmd::new(Version::V03);
        assert!(matches!(old.set_latch_arrival(Some(1)), Err(Error::ForeignField { .. })));
        assert!(matches!(old.set_latch_wait(Some(1)), Err(Error::ForeignField { .. })));
        assert_eq!((old.latch_arrival(), old.latch_wait(), old.pre_exits()), (None, None, false));
    }
}
