//! Lines that GPU drivers print, and their meaning: every format of nvgpu from r27 to r36, and those of its
//! neighbours.
//!
//! The table is generated from the drivers' sources and from hand-written notes (`tools/nvgpu-formats`). A line
//! is found wherever its message starts, with anything before and after it, and where the driver cut it off.
//!
//! ```
//! use nvdiag::known_lines::{Severity, Table};
//!
//! let line = "nvgpu: 17000000.gpu nvgpu_rc_mmu_fault_recovery:399 [ERR]  \
//!             mmu fault id=5 id_type=1 act_eng_bitmask=00000001";
//! let known = Table::built_in().find(line).expect("a line of nvgpu");
//! assert_eq!(known.line.severity, Severity::Channel);
//! assert_eq!(known.values[0], ("mmu_fault_id", "5".to_owned()));
//! ```

pub(crate) mod line;
pub(crate) mod pieces;
pub(crate) mod table;

pub use line::{Level, Line, Severity, Site};
pub use pieces::{Kind, Piece};
pub use table::{Known, Table, TableError};
