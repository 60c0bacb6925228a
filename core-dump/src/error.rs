//! Faults of a file.

/// Reasons for which a file cannot be read as a GPU core dump, or a dump cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another kind of file.
    #[error("not a GPU core dump: {what}")]
    Other {
        /// The kind.
        what: String,
    },
    /// The ELF tables cannot be read.
    #[error("the ELF tables are damaged: {reason}")]
    Elf {
        /// The reason.
        reason: String,
    },
    /// The file ends too early.
    #[error("the file is truncated: {what} ends at byte {end:#x}, the file at {len:#x}")]
    Truncated {
        /// The part that is not whole.
        what: String,
        /// The byte after its last.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// The sections claim more than a file of that length holds, or more than is read.
    #[error("the sections hold {claimed:#x} bytes, and at most {most:#x} are read of this file")]
    TooLarge {
        /// Sum of their sizes.
        claimed: u64,
        /// Limit.
        most: u64,
    },
    /// More rows than are read.
    #[error("the tables have {rows} rows, and at most {most} are read")]
    TooManyRows {
        /// Their number.
        rows: u64,
        /// Limit.
        most: u64,
    },
    /// Rows that are too short to be of their table.
    #[error("a row of section {section} ({name}) takes {size} bytes; the first drivers wrote {least}")]
    Row {
        /// Number of the section.
        section: usize,
        /// Name of the table.
        name: &'static str,
        /// `sh_entsize`.
        size: u64,
        /// Least size.
        least: usize,
    },
    /// A section that belongs to no row of a table.
    #[error(
        "section {section} ({name}) belongs to row {row} of section {link}, which has no such row of {of}"
    )]
    Orphan {
        /// Number of the section.
        section: usize,
        /// Name of its kind.
        name: &'static str,
        /// `sh_link`.
        link: u32,
        /// `sh_info`.
        row: u32,
        /// Table that it has to belong to.
        of: &'static str,
    },
    /// More sections, or longer names, than an ELF object can have.
    #[error("the dump does not fit an ELF object: {reason}")]
    Unwritable {
        /// The reason.
        reason: String,
    },
}
