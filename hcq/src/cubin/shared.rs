//! Arrays in the shared memory of a kernel, by the symbols that debug code has.
//!
//! ptxas names them with `-g` (`nvcc -G`) and `--preserve-relocs`; other cubins have one size for all. The
//! forms here are those that ptxas 12.6 writes.

use goblin::elf::Sym;
use goblin::elf::sym::{STT_OBJECT, STV_DEFAULT};

use super::file::{File, Function};

/// An array in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedArray {
    pub name: String,
    /// Offset into the block's memory.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Shared memory of a kernel, as its compiler laid it out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedLayout {
    /// None if they have no symbols.
    pub arrays: Vec<SharedArray>,
    /// Whether launches may ask for more: only debug code says that they do not.
    pub may_have_more: bool,
}

/// The name of an array without what makes it unique: `a` of `$__a__8` and of `a.1`.
fn plain(name: &str) -> &str {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((inner, number)) = name.strip_prefix("$__").and_then(|rest| rest.rsplit_once("__"))
        && is_number(number)
    {
        return inner;
    }
    name.rsplit_once('.').filter(|(_, number)| is_number(number)).map_or(name, |(name, _)| name)
}

impl File<'_> {
    /// The shared memory of a kernel.
    pub(crate) fn shared(&self, kernel: &Function<'_>) -> SharedLayout {
        let section = |symbol: &Sym| self.section_at(symbol.st_shndx).map_or("", |section| section.name);
        let objects = || self.symbols().filter(|symbol| symbol.st_type() == STT_OBJECT);
        let own = format!(".nv.shared.{}", kernel.name);
        let symbols: Vec<Sym> =
            objects().filter(|symbol| section(symbol) == own && symbol.st_size > 0).collect();
        // Relocatable debug code has a symbol for what launches ask for, which belongs to no kernel.
        let more = objects().any(|symbol| section(&symbol) == ".nv_debug.shared");
        let debug = !symbols.is_empty() && symbols.iter().all(|symbol| symbol.st_visibility() == STV_DEFAULT);
        let arrays = symbols.iter().map(|symbol| SharedArray {
            name: plain(self.symbol_name(symbol).unwrap_or_default()).to_owned(),
            offset: symbol.st_value,
            bytes: symbol.st_size,
        });
        SharedLayout { arrays: arrays.collect(), may_have_more: more || !debug }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts(cubin: &[u8]) -> Vec<SharedLayout> {
        let file = File::parse(cubin).unwrap();
        file.kernels().map(|kernel| file.shared(&kernel)).collect()
    }

    #[test]
    fn debug_code_names_the_arrays_of_each_kernel() {
        let array = |name: &str, offset, bytes| SharedArray { name: name.to_owned(), offset, bytes };
        let both = SharedLayout {
            arrays: vec![array("first", 16, 20), array("second", 0, 12)],
            may_have_more: false,
        };
        assert_eq!(layouts(include_bytes!("../../tests/data/arrays.sm_87.cubin")), [both.clone(), both]);
        let one = SharedLayout { arrays: vec![array("first", 0, 20)], may_have_more: true };
        assert_eq!(layouts(include_bytes!("../../tests/data/arrays_and_more.sm_87.cubin")), [one]);
    }

    #[test]
    fn other_code_says_nothing() {
        let unknown = SharedLayout { arrays: Vec::new(), may_have_more: true };
        let layouts = layouts(include_bytes!("../../tests/data/04_rmsnorm.sm_87.cubin"));
        assert!(!layouts.is_empty() && layouts.iter().all(|layout| *layout == unknown));
    }

    #[test]
    fn names_are_as_in_the_source() {
        for name in ["tile", "$__tile__12", "tile.3"] {
            assert_eq!(plain(name), "tile");
        }
        assert_eq!((plain("$__x"), plain("a.b"), plain("")), ("$__x", "a.b", ""));
    }
}
