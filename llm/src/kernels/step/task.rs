//! The list of the step kernel: one record per phase, which it reads from device memory.

use crate::cache::CacheType;
use crate::kernels::format::Format;
use crate::kernels::heads::even_shares;
use crate::kernels::step::layout::{TILE, TILE_BYTES};
use crate::kernels::step::record::{
    ARRIVES, ATTENTION, EMBED, FLAGGED, MATVEC, MAX_SEGMENTS, NORM, QUANTIZED, WAITS, WORDS, at, segment,
};
use crate::kernels::step::shape::{Grid, Shape};

/// How the products of a matrix phase are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// Stored as logits; the largest is chosen.
    Logits,
    /// Added to the vector in the output, which has flags.
    Add,
    /// `silu(first) · second` of each pair.
    Gate,
    /// Queries are rotated; keys are rotated and cached, values are cached. With a cache in q8_0 keys and
    /// values are stored after the queries, and attention caches them.
    Heads,
}

/// What the last block does after all phases of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Nothing: the phase is not the step's last.
    Nothing,
    /// Writes the most likely token to the next position and moves there.
    Choose,
    /// Moves to the next position.
    Advance,
}

/// A matrix of a matrix phase; several are stacked below each other.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Format of the weights.
    pub format: Format,
    /// Address of the weights.
    pub weights: u64,
    /// Rows of the matrix.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
    /// Whether row `i` is paired with row `rows / 2 + i` instead of its neighbour.
    pub gate: bool,
    /// Number of the first row among the rows of the phase; even.
    pub first_row: u32,
}

/// The input of a matrix phase.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Address of the vector, `f32`.
    pub x: u64,
    /// The flag that follows each value once it is written. A vector without flags is complete when all
    /// blocks have completed the earlier phases.
    pub flag: Option<u32>,
    /// Address of the norm's weights and its epsilon, if the vector is normalized first; it then has flags.
    pub norm: Option<(u64, f32)>,
}

/// Rotation and cache of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Address of the step of each pair per position.
    pub turns: u64,
    /// Address of the layer's keys.
    pub keys: u64,
    /// Address of the layer's values.
    pub values: u64,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Values of a head.
    pub head_dim: u32,
    /// Positions in the cache.
    pub context: u32,
    /// Type of the cache. In q8_0 the quants of a cache take less than 4 GiB.
    pub kv: CacheType,
}

/// Attention of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Address of the rotated queries.
    pub q: u64,
    /// Address of the result.
    pub out: u64,
    /// Address of the scratch memory, [`Attention::partial_words`] long.
    pub partials: u64,
    /// Address of one counter, zero, per [`Attention::units`].
    pub counters: u64,
    /// Cache and shape.
    pub heads: Heads,
}

/// Most query heads of a block.
pub const HEADS_TOGETHER: u32 = 4;

impl Attention {
    /// Pieces of work with different heads.
    pub fn units(heads: &Heads) -> u32 {
        heads.kv_heads * (heads.heads / heads.kv_heads).div_ceil(HEADS_TOGETHER)
    }

    /// Most shares that the positions are split into.
    pub fn most_shares(heads: &Heads, blocks: u32) -> u32 {
        let units = Self::units(heads);
        even_shares(units, blocks, blocks / units)
    }

    /// Words of scratch memory.
    pub fn partial_words(heads: &Heads, blocks: u32) -> u32 {
        Self::units(heads) * Self::most_shares(heads, blocks) * HEADS_TOGETHER * (heads.head_dim + 4)
    }
}

/// The record of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    words: [u32; WORDS as usize],
    /// Bytes of shared memory for results and input.
    shared: (u32, u32),
}

impl Task {
    fn new(kind: u32) -> Self {
        let mut task = Self { words: [0; WORDS as usize], shared: (0, 0) };
        task.set(at::KIND, kind);
        task
    }

    fn set(&mut self, at: i64, value: u32) {
        self.words[at as usize] = value;
    }

    fn set_address(&mut self, at: i64, address: u64) {
        self.set(at, address as u32);
        self.set(at + 1, (address >> 32) as u32);
    }

    /// The words that the kernel reads.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Bytes of shared memory for results, and for the input or scratch.
    pub fn shared(&self) -> (u32, u32) {
        self.shared
    }

    /// Stores the logits of a phase that has some at another address.
    pub fn with_logits(mut self, address: u64) -> Self {
        self.set_address(at::OUT, address);
        self
    }

    /// Sets what follows this phase.
    pub fn ending(mut self, finish: Finish) -> Self {
        let code = match finish {
            Finish::Nothing => 0,
            Finish::Choose => 1,
            Finish::Advance => 2,
        };
        self.set(at::FINISH, code);
        self
    }

    /// Sets the flag of the results.
    pub fn flagging(mut self, flag: u32) -> Self {
        self.set(at::OUTPUT_FLAG, flag);
        self
    }

    /// Writes the current token's row of `embedding` to `out`, with flags.
    pub fn embed(embedding: &Segment, out: u64) -> Self {
        let mut task = Self::new(EMBED);
        task.set_address(at::OUT, out);
        task.segment(0, embedding, Grid { shape: Shape::default(), blocks: 1 }, 0);
        task
    }

    /// The product of `segments`, all with rows of equal length, with `input`, on the blocks of `grid`.
    ///
    /// # Panics
    /// If there are no segments or more than three, or if a normalized input has no flags.
    pub fn matvec(input: Input, segments: &[Segment], results: Results, out: u64, grid: Grid) -> Self {
        assert!((1..=MAX_SEGMENTS).contains(&segments.len()), "{} segments", segments.len());
        let Grid { shape, blocks } = grid;
        let mut task = Self::new(MATVEC);
        let len = segments[0].cols;
        let mut flags = match results {
            Results::Gate | Results::Heads => ARRIVES,
            Results::Logits | Results::Add => 0,
        };
        match input.flag {
            Some(flag) => {
                flags |= FLAGGED;
                task.set(at::INPUT_FLAG, flag);
            }
            None => flags |= WAITS,
        }
        if let Some((weight, eps)) = input.norm {
            assert!(input.flag.is_some(), "a normalized input has flags");
            flags |= NORM;
            task.set_address(at::WEIGHT, weight);
            task.set(at::EPS, eps.to_bits());
        }
        // Long rows are split into parts while there are fewer parts than warps.
        let pairs: u32 = segments.iter().map(Segment::pairs).sum();
        let tiles = len.div_ceil(TILE);
        let mut parts_log2 = 0;
        while (tiles / shape.span()) >> parts_log2 >= 2 && (pairs << (parts_log2 + 1)) <= blocks * shape.warps
        {
            parts_log2 += 1;
        }
        let tiles = tiles.next_multiple_of(shape.span() << parts_log2);
        task.set_address(at::X, input.x);
        task.set(at::FLAGS, flags);
        task.set(at::LEN, len);
        task.set(at::INVERSE_LEN, (1.0 / len as f32).to_bits());
        task.set(at::TILES, tiles);
        let code = match results {
            Results::Logits => 0,
            Results::Add => 1,
            Results::Gate => 2,
            Results::Heads => 3,
        };
        task.set(at::EPILOGUE, code);
        task.set(at::PARTS_LOG2, parts_log2);
        task.set(at::SEGMENTS, segments.len() as u32);
        task.set_address(at::OUT, out);
        for (i, segment) in segments.iter().enumerate() {
            task.segment(i, segment, grid, parts_log2);
        }
        let most: u32 = segments.iter().map(|s| s.pairs().div_ceil(blocks)).sum();
        task.shared = ((most << parts_log2) * 8, tiles * TILE_BYTES);
        task
    }

    /// Sets rotation and cache of a phase whose results are queries, keys and values.
    pub fn with_heads(mut self, heads: &Heads) -> Self {
        self.heads(heads);
        if heads.kv == CacheType::Q8_0 {
            self.set(at::EPILOGUE, 4);
        }
        self
    }

    fn heads(&mut self, h: &Heads) {
        self.set_address(at::KEYS, h.keys);
        self.set_address(at::VALUES, h.values);
        self.set_address(at::TURNS, h.turns);
        self.set(at::Q_PAIRS, h.heads * h.head_dim / 2);
        self.set(at::K_PAIRS, (h.heads + h.kv_heads) * h.head_dim / 2);
        self.set(at::HEAD_DIM, h.head_dim);
        self.set(at::CONTEXT, h.context);
        if h.kv == CacheType::Q8_0 {
            self.set(at::SCALES_AT, h.kv_heads * h.context * h.head_dim);
        }
    }

    /// Attention; its result has flags.
    pub fn attention(a: &Attention, grid: Grid) -> Self {
        let h = &a.heads;
        let mut task = Self::new(ATTENTION);
        task.heads(h);
        task.set_address(at::X, a.q);
        task.set_address(at::OUT, a.out);
        task.set_address(at::PARTIALS, a.partials);
        task.set_address(at::COUNTERS, a.counters);
        let group = h.heads / h.kv_heads;
        let quantized = if h.kv == CacheType::Q8_0 { QUANTIZED } else { 0 };
        task.set(at::FLAGS, WAITS | quantized);
        let together = group.min(HEADS_TOGETHER).next_power_of_two();
        task.set(at::HEADS_LOG2, together.trailing_zeros());
        task.set(at::UNITS, Attention::units(h));
        task.set(at::GROUP, group);
        task.set(at::SUBGROUPS, group.div_ceil(HEADS_TOGETHER));
        task.set(at::LANES_LOG2, h.head_dim.div_ceil(h.kv.piece()).next_power_of_two().trailing_zeros());
        task.set(at::SCALE, (std::f32::consts::LOG2_E / (h.head_dim as f32).sqrt()).to_bits());
        task.set(at::MOST_SHARES, Attention::most_shares(h, grid.blocks));
        task.shared = (0, grid.shape.warps * (h.head_dim + 4) * 4);
        task
    }

    fn segment(&mut self, index: usize, s: &Segment, Grid { shape, blocks }: Grid, parts_log2: u32) {
        let base = at::SEGMENT + index as i64 * at::SEGMENT_WORDS;
        let pairs = s.pairs();
        self.set(base + segment::FORMAT, s.format as u32);
        self.set(base + segment::PAIRS, pairs / blocks);
        self.set(base + segment::REST, pairs % blocks);
        self.set(base + segment::ROWS, s.rows);
        self.set(base + segment::LAST_ROW, s.rows.saturating_sub(1));
        self.set(base + segment::STEP, if s.gate { 1 } else { 2 });
        self.set(base + segment::DELTA, if s.gate { s.rows / 2 } else { 1 });
        self.set(base + segment::FIRST, s.first_row / 2);
        let units = s.cols / s.format.unit();
        self.set(base + segment::UNITS, units);
        let ragged = !s.cols.is_multiple_of((TILE * shape.span()) << parts_log2);
        self.set(base + segment::RAGGED, u32::from(ragged));
        // Parts cover the same values in every format.
        let part = s.cols.div_ceil(TILE).next_multiple_of(shape.span() << parts_log2) >> parts_log2;
        self.set(base + segment::PART_TILES, part * TILE / shape.values(s.format));
        self.set(base + segment::FACTOR, (1.0 / s.format.raised()).to_bits());
        self.set_address(base + segment::WEIGHTS, s.weights);
    }
}

impl Segment {
    /// Pairs of rows that are computed together.
    fn pairs(&self) -> u32 {
        self.rows.div_ceil(2)
    }
}
