//! Contents of a process's GPU address space: windows, mappings, and the programs it loaded.
//!
//! Read from the map file that `hcq` writes when `HCQ_MAP_DIR` names a folder (`nvdiag.map/1`, `/2`), from the
//! documents of `nvdiag info` and `nvdiag vamap`, from cubins named on the command line, and from
//! executables of CUDA programs.
//! docs/nvdiag-json.md describes the fields.

pub(crate) mod code;
pub(crate) mod document;
pub(crate) mod host;
pub(crate) mod loose;
pub(crate) mod map;
pub(crate) mod program;
pub(crate) mod whereabouts;

pub use code::{Code, Function, Line, Module, access_of};
pub use document::{BOUNDS, Document};
pub use host::HostRange;
pub use loose::{Guess, Question};
pub use map::{Error, Found, Mapping, Process, ProcessMap, Range, Space, WINDOW_BYTES, Window};
pub use program::Error as ProgramError;
pub use whereabouts::Whereabouts;
