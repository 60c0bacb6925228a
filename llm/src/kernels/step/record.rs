//! The record of a phase: its fields as the kernel reads them.

/// Words of a record.
pub(super) const WORDS: u32 = 100;
/// Most segments of a matrix phase.
pub(super) const MAX_SEGMENTS: usize = 3;

/// Kinds of phases.
pub(super) const EMBED: u32 = 0;
pub(super) const MATVEC: u32 = 1;
pub(super) const ATTENTION: u32 = 2;

/// The input is normalized: it is multiplied by weights, the products by the inverse of its root mean square.
pub(super) const NORM: u32 = 1;
/// Every value of the input has a flag.
pub(super) const FLAGGED: u32 = 8;
/// A later phase waits until all blocks have completed this one.
pub(super) const ARRIVES: u32 = 16;
/// The phase waits until all blocks have completed the earlier phases with [`ARRIVES`].
pub(super) const WAITS: u32 = 32;
/// Keys and values are cached in q8_0.
pub(super) const QUANTIZED: u32 = 64;

/// Word of each field.
pub(super) mod at {
    pub const KIND: i64 = 0;
    pub const FLAGS: i64 = 1;
    pub const X: i64 = 2;
    pub const WEIGHT: i64 = 4;
    pub const LEN: i64 = 6;
    pub const TILES: i64 = 7;
    pub const EPS: i64 = 8;
    pub const EPILOGUE: i64 = 9;
    pub const PARTS_LOG2: i64 = 10;
    pub const SEGMENTS: i64 = 11;
    pub const OUT: i64 = 12;
    pub const KEYS: i64 = 14;
    pub const VALUES: i64 = 16;
    pub const TURNS: i64 = 18;
    pub const Q_PAIRS: i64 = 20;
    pub const K_PAIRS: i64 = 21;
    pub const HEAD_DIM: i64 = 22;
    pub const CONTEXT: i64 = 23;
    pub const PARTIALS: i64 = 24;
    pub const COUNTERS: i64 = 26;
    pub const UNITS: i64 = 28;
    pub const GROUP: i64 = 29;
    pub const SUBGROUPS: i64 = 30;
    pub const LANES_LOG2: i64 = 31;
    pub const SCALE: i64 = 32;
    pub const MOST_SHARES: i64 = 33;
    pub const FINISH: i64 = 34;
    pub const INVERSE_LEN: i64 = 35;
    /// Flags of the input and of the results, relative to the step's first flag.
    pub const INPUT_FLAG: i64 = 36;
    pub const OUTPUT_FLAG: i64 = 37;
    pub const HEADS_LOG2: i64 = 38;
    /// Byte offset of the scales in a cache in q8_0.
    pub const SCALES_AT: i64 = 39;
    /// The first segment, and the words of a segment.
    pub const SEGMENT: i64 = 40;
    pub const SEGMENT_WORDS: i64 = 20;
}

/// Word of each field of a segment.
pub(super) mod segment {
    // Read together by `Step::enter`.
    pub const PAIRS: i64 = 0;
    pub const REST: i64 = 1;
    pub const ROWS: i64 = 2;
    pub const PART_TILES: i64 = 3;
    // Read together by `Step::load_tile`.
    pub const STEP: i64 = 4;
    pub const DELTA: i64 = 5;
    pub const LAST_ROW: i64 = 6;
    pub const UNITS: i64 = 7;
    pub const FACTOR: i64 = 8;
    pub const FIRST: i64 = 9;
    /// Whether some tiles are not full.
    pub const RAGGED: i64 = 10;
    pub const FORMAT: i64 = 11;
    pub const WEIGHTS: i64 = 12;
}
