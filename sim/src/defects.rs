//! Planted hardware defects, for tests of the code that has to notice them.

use sass::Opcode;

bitflags::bitflags! {
    /// Parts of the GPU that do not work, none by default. A test of a diagnosis sets one and expects it to
    /// be found.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Defects: u32 {
        /// A copy engine leaves the last byte of a line as it was.
        const COPIES = 1 << 0;
        /// The scheduler does not run launches that another launch schedules.
        const DEPENDENTS = 1 << 1;
        /// The scheduler takes any memory window for one that overlaps the other.
        const WINDOWS = 1 << 2;
        /// Stores to global memory do nothing.
        const GLOBAL_STORES = 1 << 3;
        /// Stores to local memory do nothing.
        const LOCAL_STORES = 1 << 4;
        /// Atomic operations on global memory do nothing.
        const ATOMICS = 1 << 5;
        /// The multi-function unit (reciprocals, roots, exponentials) gives no result.
        const FUNCTIONS = 1 << 6;
    }
}

impl Defects {
    /// Whether an instruction does nothing.
    pub(crate) fn disables(self, opcode: Opcode) -> bool {
        let unit = match opcode {
            Opcode::Stg => Self::GLOBAL_STORES,
            Opcode::Stl => Self::LOCAL_STORES,
            Opcode::Atom | Opcode::Atomg | Opcode::Red | Opcode::Redg => Self::ATOMICS,
            Opcode::Mufu => Self::FUNCTIONS,
            _ => return false,
        };
        self.contains(unit)
    }
}
