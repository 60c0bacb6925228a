//! Tables of the values that a cleared surface is known to hold (zero-bandwidth clear, ZBC).

use nix::errno::Errno;

/// A color: `color_ds` and `color_l2` of the requests.
pub(crate) type Color = [[u32; 4]; 2];

/// Entries of the tables (`ga10b_gr_zbc_init_table_indices`, r36.4.3).
const COLORS: usize = 30;
const DEPTHS: usize = 15;
const STENCILS: usize = 15;

/// An entry; one that is not in use is zeros.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry<V> {
    /// Value.
    pub(crate) value: V,
    /// Format, which no check looks at.
    pub(crate) format: u32,
    /// How often it was set.
    pub(crate) references: u32,
}

/// A table, whose first entry has the index 1: 0 says that memory is not cleared so.
#[derive(Debug)]
pub(crate) struct Table<V> {
    used: Vec<Entry<V>>,
    size: usize,
}

impl<V: Copy + Default + PartialEq> Table<V> {
    fn new<const N: usize>(size: usize, format: u32, values: [V; N]) -> Self {
        let used = values.map(|value| Entry { value, format, references: 1 }).to_vec();
        Self { used, size }
    }

    /// Returns how many entries there are.
    pub(crate) fn size(&self) -> u32 {
        self.size as u32
    }

    /// Counts a value that the table has, or adds it (`nvgpu_gr_zbc_add`).
    ///
    /// # Errors
    /// `ENOSPC` for a new value when all entries are in use.
    pub(crate) fn add(&mut self, value: V, format: u32) -> Result<(), Errno> {
        if let Some(same) = self.used.iter_mut().find(|e| e.value == value && e.format == format) {
            same.references = same.references.saturating_add(1);
        } else if self.used.len() < self.size {
            self.used.push(Entry { value, format, references: 1 });
        } else {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// Returns an entry, in use or not.
    ///
    /// # Errors
    /// `EINVAL` outside the table.
    pub(crate) fn entry(&self, index: u32) -> Result<Entry<V>, Errno> {
        match index as usize {
            at if (1..=self.size).contains(&at) => Ok(self.used.get(at - 1).copied().unwrap_or_default()),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The tables of the GPU, which all clients share and nobody takes entries out of.
#[derive(Debug)]
pub(crate) struct ZbcTables {
    /// Colors.
    pub(crate) colors: Table<Color>,
    /// Depths.
    pub(crate) depths: Table<u32>,
    /// Stencils.
    pub(crate) stencils: Table<u32>,
}

impl Default for ZbcTables {
    /// The values that the driver begins with (`ga10b_gr_zbc_load_static_table`).
    fn default() -> Self {
        let plain = |word| [[word; 4]; 2];
        Self {
            colors: Table::new(COLORS, 0, [0xff00_0000, 0, 0xffff_ffff].map(plain)),
            depths: Table::new(DEPTHS, 1, [1.0_f32.to_bits(), 0]),
            stencils: Table::new(STENCILS, 1, [0, 1, 0xff]),
        }
    }
}
