//! Matrix products of a warpgroup (`wgmma`): four warps, whose first is a multiple of four, multiply tiles
//! that lie in shared memory. [`Target::Sm90a`] alone has them.
//!
//! A product is asynchronous: it begins with [`Kernel::multiply_shared`], and its sums may be read or changed
//! after [`Kernel::wait_products`] alone. Tiles are read through the asynchronous proxy: between ordinary
//! stores or `cp.async` to a tile and its products stands [`Kernel::fence_proxy_async`], of the writer before
//! it passes the tile on, or of the warpgroup after it has received it.
//!
//! All forms here name the whole warpgroup: every thread must reach them, with the same operands.
//! Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".

use half::f16;

use crate::builder::Kernel;
use crate::pointer::{Pointer, Shared};
use crate::reg::{Pred, Reg};
use crate::target::{Target, Version};

/// Rows of a factor in shared memory, as a product reads them: each has [`SharedRows::VALUES`] values in
/// [`SharedRows::ROW_BYTES`] bytes and follows the one before.
///
/// The rows are swizzled: piece `p` (16 bytes) of row `r` lies at piece `p ^ (r % 8)` of that row, so that
/// neither copies by rows nor reads by columns have bank conflicts. Groups of eight rows lie at multiples of
/// [`SharedRows::ALIGNMENT`].
#[derive(Clone, Copy, Debug)]
pub struct SharedRows(Reg<u64>);

impl SharedRows {
    /// Bytes of a row.
    pub const ROW_BYTES: u32 = 128;
    /// Values of a row.
    pub const VALUES: u32 = Self::ROW_BYTES / 2;
    /// Alignment of the first row, in bytes: the length of eight rows, in which the swizzle repeats.
    pub const ALIGNMENT: u32 = 8 * Self::ROW_BYTES;
    /// Values of each row that one product takes.
    pub const STEP: u32 = 16;

    /// The upper half of a descriptor: eight rows further in units of 16 bytes, and the swizzle of 128 bytes
    /// (1 in bits 62 and 63).
    const UPPER: u32 = (Self::ALIGNMENT / 16) | (1 << 30);
}

/// The sums of a warpgroup's product, 64 rows of 8 to 256 columns.
///
/// With `w` = warp % 4, `g` = lane / 4 and `t` = lane % 4, registers 4i to 4i + 3 of a thread are columns
/// 8i + 2t and 8i + 2t + 1 of row 16w + g, then those of row 16w + g + 8.
#[derive(Clone, Debug)]
pub struct WarpgroupSums(Vec<Reg<f32>>);

impl WarpgroupSums {
    /// The thread's registers.
    pub fn registers(&self) -> &[Reg<f32>] {
        &self.0
    }

    /// Columns.
    pub fn columns(&self) -> u32 {
        self.0.len() as u32 * 2
    }
}

impl Kernel {
    fn require_warpgroups(&self, instruction: &'static str) {
        self.require_target(instruction, Target::Sm90a, Version::new(8, 0));
    }

    /// Registers for the sums of a product with so many columns; undefined until a product begins them.
    ///
    /// # Panics
    /// If `columns` is no multiple of 8 from 8 to 256: a mistake in the program that writes the kernel.
    pub fn warpgroup_sums(&self, columns: u32) -> WarpgroupSums {
        assert!(columns % 8 == 0 && (8..=256).contains(&columns), "a product of {columns} columns");
        WarpgroupSums((0..columns / 2).map(|_| self.reg()).collect())
    }

    /// Returns the description by which products read the rows at `first`.
    ///
    /// # Panics
    /// If the address is not proven to be a multiple of [`SharedRows::ALIGNMENT`] bytes: a mistake in the
    /// program that writes the kernel.
    pub fn shared_rows(&self, first: Pointer<Shared, f16>) -> SharedRows {
        assert!(
            first.alignment() >= SharedRows::ALIGNMENT,
            "rows of a product at a multiple of {} bytes only",
            first.alignment()
        );
        // Bits 4 to 17 of the address are the descriptor's lowest. With a swizzle bits 16 to 29, the distance
        // within a row, are not used.
        let lower = self.bfe(self.address(first), 4, 14);
        let rows = self.reg::<u64>();
        self.emit(format!("mov.b64 {rows}, {{{lower}, {}}};", SharedRows::UPPER));
        SharedRows(rows)
    }

    /// The same rows from value `value` on, a multiple of [`SharedRows::STEP`] below [`SharedRows::VALUES`].
    ///
    /// # Panics
    /// If it is none: a mistake in the program that writes the kernel.
    pub fn rows_from(&self, rows: SharedRows, value: u32) -> SharedRows {
        assert!(value % SharedRows::STEP == 0 && value < SharedRows::VALUES, "rows from value {value}");
        let from = self.reg::<u64>();
        self.emit(format!("add.s64 {from}, {}, {};", rows.0, 2 * value / 16));
        SharedRows(from)
    }

    /// Orders the threads' own accesses to registers of sums before the products that follow. Needed before
    /// the first product, and again after any access but that of products of the same shape.
    pub fn fence_products(&self) {
        self.require_warpgroups("wgmma.fence");
        self.emit("wgmma.fence.sync.aligned;".to_owned());
    }

    /// Begins `sums = a × b`, plus `sums` where `add` holds, which must be the same in all threads: entry
    /// `[i][j]` sums the products of [`SharedRows::STEP`] values of row i of `a` (64 rows) with those of row
    /// j of `b` (as many rows as the sums have columns), in single precision.
    pub fn multiply_shared(&self, sums: &WarpgroupSums, a: SharedRows, b: SharedRows, add: Pred) {
        self.require_warpgroups("wgmma.mma_async");
        let registers: Vec<String> = sums.0.iter().map(ToString::to_string).collect();
        self.emit(format!(
            "wgmma.mma_async.sync.aligned.m64n{}k16.f32.f16.f16 {{{}}}, {}, {}, {add}, 1, 1, 0, 0;",
            sums.columns(),
            registers.join(", "),
            a.0,
            b.0
        ));
    }

    /// Closes a group of all products begun since the last one.
    pub fn commit_products(&self) {
        self.require_warpgroups("wgmma.commit_group");
        self.emit("wgmma.commit_group.sync.aligned;".to_owned());
    }

    /// Waits until at most the `pending` youngest groups of products are still under way.
    pub fn wait_products(&self, pending: u32) {
        self.require_warpgroups("wgmma.wait_group");
        self.emit(format!("wgmma.wait_group.sync.aligned {pending};"));
    }

    /// Gives registers of the warpgroup's threads back to the block, until each has `count`.
    ///
    /// # Panics
    /// If `count` is no multiple of 8 from 24 to 256: a mistake in the program that writes the kernel.
    pub fn release_registers(&self, count: u32) {
        self.set_registers("dec", count);
    }

    /// Waits until the block has registers enough for `count` in each thread of the warpgroup, and takes
    /// them.
    ///
    /// # Panics
    /// As [`Kernel::release_registers`].
    pub fn claim_registers(&self, count: u32) {
        self.set_registers("inc", count);
    }

    fn set_registers(&self, direction: &str, count: u32) {
        assert!(count % 8 == 0 && (24..=256).contains(&count), "{count} registers");
        self.require_warpgroups("setmaxnreg");
        self.emit(format!("setmaxnreg.{direction}.sync.aligned.u32 {count};"));
    }
}
