//! Pages that outlive the sequence that wrote them, for others that begin with the same tokens.

use crate::engine::cache::{PAGE, pages_for};
use crate::engine::columns::engine::{ColumnId, Columns};
use crate::error::{Error, Result};

/// A page of the cache of one [`Columns`] that is kept, whatever becomes of the sequence that wrote it.
/// [`Columns::give_back`] ends that; a page that is dropped instead is never free again.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct KeptPage(u32);

impl Columns {
    /// Keeps page `number` of a sequence, which has the keys and values of [`PAGE`] positions, or of fewer if
    /// it is the last. A sequence that writes to a kept page writes to a copy: what is kept does not change.
    ///
    /// # Errors
    /// [`Error::Released`], also if the sequence has fewer pages.
    pub fn keep_page(&mut self, id: ColumnId, number: usize) -> Result<KeptPage> {
        self.table(id)?;
        let Self { pages, slots, .. } = self;
        let table = slots[id.slot as usize].table.as_ref().ok_or(Error::Released)?;
        pages.keep(table, number).map(KeptPage).ok_or(Error::Released)
    }

    /// Gives a page up. It is free once no sequence has it.
    pub fn give_back(&mut self, page: KeptPage) {
        if self.owners(&page) > 0 {
            self.pages.give(page.0);
        }
    }

    /// Whether a page would be free if it were given back.
    pub fn is_kept_alone(&self, page: &KeptPage) -> bool {
        self.owners(page) == 1
    }

    fn owners(&self, page: &KeptPage) -> u32 {
        self.pages.owners(page.0).unwrap_or(0)
    }

    /// Begins a sequence with the first `len` tokens that kept pages hold, or all positions of the pages if
    /// they have fewer.
    ///
    /// # Errors
    /// [`Error::ContextFull`], [`Error::TooManySequences`]; [`Error::Released`] for pages of another engine.
    pub fn admit_with(&mut self, pages: &[&KeptPage], len: usize) -> Result<ColumnId> {
        let (len, context) = (len.min(pages.len() * PAGE), self.options().context);
        if len > context {
            return Err(Error::ContextFull { position: len, context });
        }
        if pages.iter().any(|page| self.owners(page) == 0) {
            return Err(Error::Released);
        }
        self.vacant()?;
        let pages = pages[..pages_for(len)].iter().map(|page| page.0).collect();
        let table = self.pages.begin(pages, len);
        self.place(table)
    }
}
