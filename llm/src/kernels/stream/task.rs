//! The list of the persistent step: one record per phase, which it reads from device memory.

use crate::cache::CacheType;
use crate::kernels::format::{Format, TILE_COLS, TILE_ROWS};
use crate::kernels::heads::even_shares;
use crate::kernels::stream::layout::{
    CONSUMERS, Needs, QUAD, SLOT_TILES, input_bytes, number_bytes, row_bytes,
};
use crate::kernels::stream::record::{
    ADD, ATTENTION, BIASED, BYTES, EMBED, GATE, GELU, HEADS, LOGITS, MATVEC, MAX_SEGMENTS, MIXED, NORM,
    NORMED_HEADS, NUMBERS, QUANTIZED, SUMS, WORDS, at, segment,
};
use crate::kernels::stream::sync::PACKET_VALUES;

/// Most query heads of a block.
pub const HEADS_TOGETHER: u32 = 4;

/// Packets in device memory and the number of the phase that writes them, relative to the step's first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Address.
    pub address: u64,
    /// Phase number.
    pub phase: u32,
}

/// The use of the products of a matrix phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Results {
    /// Stored as logits at this address; the largest is chosen.
    Logits(u64),
    /// Added to the first vector, which gives the second.
    Add(Packets, Packets),
    /// `silu(first) · second` of the two segments.
    Gate(Packets),
    /// `gelu(sum)`.
    Gelu(Packets),
    /// Queries and keys are rotated.
    Heads(Packets, Heads),
}

/// A matrix of a matrix phase, or rows of one.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Format of the weights.
    pub format: Format,
    /// Address of the first tile.
    pub tiles: u64,
    /// Rows.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
}

/// The input of a matrix phase.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// The vector.
    pub x: Packets,
    /// Address of the norm's weights and its epsilon, if the vector is normalized first.
    pub norm: Option<(u64, f32)>,
}

/// Heads and cache of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// Those that are no padding; a multiple of 4.
    pub head_values: u32,
    /// Positions in the cache, whole pages.
    pub context: u32,
    /// Type of the cache. In q8_0 the quants of a cache take less than 4 GiB.
    pub kv: CacheType,
    /// The factor of scores beside the inverse root of a head's length.
    pub score_factor: f32,
    /// Address of the biases of queries, keys and values, 0 if there are none.
    pub bias: u64,
    /// Norms of each query and key: attention rotates them then.
    pub norms: Option<HeadNorms>,
}

/// RMS norms of each head of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadNorms {
    /// Addresses of the weights of queries and of keys.
    pub weights: [u64; 2],
    /// Added to the mean square.
    pub eps: f32,
}

/// Attention of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Rotated queries, rotated keys, values.
    pub qkv: Packets,
    /// The result.
    pub out: Packets,
    /// Address of the scratch memory, [`Attention::partial_words`] long.
    pub partials: u64,
    /// Address of one counter, zero, per [`Attention::units`].
    pub counters: u64,
    /// Cache and shape.
    pub heads: Heads,
}

impl Attention {
    /// Pieces of work with different heads, if a block takes as many as it can.
    pub fn units(heads: &Heads) -> u32 {
        heads.kv_heads * (heads.heads / heads.kv_heads).div_ceil(HEADS_TOGETHER)
    }

    /// Most split-K parts of the positions.
    pub fn most_shares(heads: &Heads, blocks: u32) -> u32 {
        let units = Self::units(heads);
        even_shares(units, blocks, blocks / units)
    }

    /// Words of scratch memory.
    pub fn partial_words(heads: &Heads, blocks: u32) -> u32 {
        Self::units(heads) * Self::most_shares(heads, blocks) * HEADS_TOGETHER * (heads.head_dim + 4)
    }
}

/// Divides the tiles of all phases over the blocks, so that those with one more alternate.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    blocks: u32,
    /// The block that gets the next odd tile.
    turn: u32,
}

impl Division {
    /// For `blocks` blocks.
    pub fn new(blocks: u32) -> Self {
        Self { blocks, turn: 0 }
    }

    /// The blocks.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    fn most(&self, tiles: u32) -> u32 {
        tiles.div_ceil(self.blocks)
    }
}

/// The record of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    words: [u32; WORDS as usize],
    needs: Needs,
}

impl Task {
    fn new(kind: u32) -> Self {
        let mut task = Self { words: [0; WORDS as usize], needs: Needs::default() };
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

    fn set_output(&mut self, out: Packets) {
        self.set_address(at::OUT, out.address);
        self.set(at::OUTPUT, out.phase);
    }

    /// The words that the kernel reads.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Shared memory that the phase takes.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Stores the logits of a phase that has some at another address.
    pub fn with_logits(mut self, address: u64) -> Self {
        self.set_address(at::OUT, address);
        self
    }

    /// Adds the vector of the current position, of those at `address`, to an embedding. For
    /// [`Style::Plain`](crate::kernels::stream::variant::Style::Plain).
    pub fn with_positions(mut self, address: u64) -> Self {
        self.set_address(at::WEIGHT, address);
        self
    }

    /// Adds biases at `address` to the products. For
    /// [`Style::Plain`](crate::kernels::stream::variant::Style::Plain).
    pub fn with_biases(mut self, address: u64) -> Self {
        let flags = self.words[at::FLAGS as usize];
        self.set(at::FLAGS, flags | BIASED);
        self.set_address(at::BIAS, address);
        self
    }

    /// Makes the norm of the input a layer norm with biases at `address`. For
    /// [`Style::Plain`](crate::kernels::stream::variant::Style::Plain).
    pub fn with_layer_norm(mut self, address: u64) -> Self {
        self.set_address(at::NORM_BIAS, address);
        self
    }

    /// Makes this the step's last phase: the most likely token is written to the next position, to which the step
    /// moves.
    pub fn last(mut self) -> Self {
        self.set(at::IS_LAST, 1);
        self
    }

    /// Writes the current token's row of `embedding` to `out`.
    pub fn embed(embedding: &Segment, out: Packets) -> Self {
        let mut task = Self::new(EMBED);
        task.set_output(out);
        task.segment(0, embedding, (0, 0, 0), 0);
        task
    }

    /// The product of `segments`, all with rows of equal length, with `input`.
    ///
    /// # Panics
    /// If there are no segments or more than three, or not two equal ones for [`Results::Gate`].
    pub fn matvec(input: Input, segments: &[Segment], results: Results, division: &mut Division) -> Self {
        assert!((1..=MAX_SEGMENTS).contains(&segments.len()), "{} segments", segments.len());
        let mut task = Self::new(MATVEC);
        let len = segments[0].cols;
        let columns = len.div_ceil(TILE_COLS);
        let mut flags = 0;
        if let Some((weight, eps)) = input.norm {
            flags |= NORM;
            task.set_address(at::WEIGHT, weight);
            task.set(at::EPS, eps.to_bits());
        }
        if segments.iter().any(|s| s.format.has_unit_minimum()) {
            flags |= SUMS;
        }
        if segments.iter().any(|s| s.format.is_quantized()) {
            flags |= BYTES;
            task.needs.inputs = input_bytes(len);
        }
        if segments.iter().any(|s| !s.format.is_quantized()) {
            flags |= NUMBERS;
            task.set(at::NUMBERS_AT, task.needs.inputs);
            task.needs.inputs += number_bytes(len);
        }
        task.set(at::FLAGS, flags);
        let format = segments[0].format;
        let uniform = segments.iter().all(|s| s.format == format);
        task.set(at::FORMAT, if uniform { format as u32 } else { MIXED });
        task.set_address(at::X, input.x.address);
        task.set(at::INPUT, input.x.phase);
        task.set(at::PACKETS, len / PACKET_VALUES);
        task.set(at::COLUMNS, columns);
        task.set(at::GROUPS, columns.div_ceil(CONSUMERS));
        task.set(at::INVERSE_LEN, (1.0 / len as f32).to_bits());
        let code = match results {
            Results::Logits(out) => {
                task.set_address(at::OUT, out);
                LOGITS
            }
            Results::Add(residual, out) => {
                task.set_address(at::RESIDUAL, residual.address);
                task.set(at::RESIDUAL_INPUT, residual.phase);
                task.set_output(out);
                ADD
            }
            Results::Gate(out) => {
                let [gate, up] = segments else { panic!("{} segments of gate and up", segments.len()) };
                assert_eq!(gate.rows, up.rows, "rows of gate and up");
                task.needs.held = 4 * TILE_ROWS * division.most(gate.rows.div_ceil(TILE_ROWS));
                task.set_output(out);
                GATE
            }
            Results::Gelu(out) => {
                task.set_output(out);
                GELU
            }
            Results::Heads(out, heads) => {
                task.heads(&heads);
                if heads.norms.is_some() {
                    // Nothing is rotated yet.
                    task.set(at::K_ROWS, 0);
                }
                if heads.bias != 0 {
                    flags |= BIASED;
                    task.set(at::FLAGS, flags);
                    task.set_address(at::RESIDUAL, heads.bias);
                }
                task.set_output(out);
                HEADS
            }
        };
        task.set(at::EPILOGUE, code);
        let mut first_row = 0;
        for (i, segment) in segments.iter().enumerate() {
            let (tiles, blocks) = (segment.rows.div_ceil(TILE_ROWS), division.blocks);
            let turn = division.turn;
            // Gate and up have the same tiles.
            if code != GATE || i > 0 {
                division.turn = (turn + tiles % blocks) % blocks;
            }
            task.segment(i, segment, (tiles / blocks, tiles % blocks, turn), first_row);
            first_row += segment.rows;
        }
        task
    }

    fn heads(&mut self, h: &Heads) {
        self.set_address(at::KEYS, h.keys);
        self.set_address(at::VALUES, h.values);
        self.set_address(at::TURNS, h.turns);
        self.set(at::Q_ROWS, h.heads * h.head_dim);
        self.set(at::K_ROWS, (h.heads + h.kv_heads) * h.head_dim);
        self.set(at::HEAD_DIM, h.head_dim);
        self.set(at::OUT_QUADS, h.head_values / PACKET_VALUES);
        if h.kv == CacheType::Q8_0 {
            self.set(at::SCALES_AT, h.kv_heads * h.context * h.head_dim);
        }
    }

    /// Attention on `blocks` blocks.
    pub fn attention(a: &Attention, blocks: u32) -> Self {
        let h = &a.heads;
        let mut task = Self::new(ATTENTION);
        task.heads(h);
        task.set_address(at::X, a.qkv.address);
        task.set(at::INPUT, a.qkv.phase);
        task.set_output(a.out);
        task.set_address(at::PARTIALS, a.partials);
        task.set_address(at::COUNTERS, a.counters);
        let mut flags = if h.kv == CacheType::Q8_0 { QUANTIZED } else { 0 };
        if let Some(norms) = h.norms {
            flags |= NORMED_HEADS;
            task.set_address(at::WEIGHT, norms.weights[0]);
            task.set_address(at::RESIDUAL, norms.weights[1]);
            task.set(at::EPS, norms.eps.to_bits());
            task.set(at::INVERSE_LEN, (1.0 / h.head_dim as f32).to_bits());
        }
        task.set(at::FLAGS, flags);
        let group = h.heads / h.kv_heads;
        task.set(at::KV_HEADS, h.kv_heads);
        task.set(at::GROUP, group);
        task.set(at::TOGETHER_LOG2, group.min(HEADS_TOGETHER).next_power_of_two().trailing_zeros());
        task.set(at::LANES_LOG2, h.head_dim.div_ceil(h.kv.piece()).next_power_of_two().trailing_zeros());
        task.set(
            at::SCALE,
            (std::f32::consts::LOG2_E / (h.head_values as f32).sqrt() * h.score_factor).to_bits(),
        );
        task.set(at::MOST_SHARES, Attention::most_shares(h, blocks));
        task.needs.scratch = CONSUMERS * (h.head_dim.next_multiple_of(8) + 4) * 4;
        task.needs.inputs = HEADS_TOGETHER * task.needs.scratch;
        task
    }

    fn segment(&mut self, index: usize, s: &Segment, (each, rest, turn): (u32, u32, u32), first_row: u32) {
        let base = at::SEGMENT + index as i64 * at::SEGMENT_WORDS;
        let tile = s.format.tile_bytes();
        self.set_address(base + segment::TILES, s.tiles);
        self.set(base + segment::EACH, each);
        self.set(base + segment::REST, rest);
        self.set(base + segment::TURN, turn);
        self.set(base + segment::ROWS, s.rows);
        self.set(base + segment::FIRST_ROW, first_row);
        self.set(base + segment::FORMAT, s.format as u32);
        self.set(base + segment::TILE_BYTES, tile);
        let row = match s.format.is_quantized() {
            true => tile * s.cols.div_ceil(TILE_COLS),
            false => s.format.value_bytes() * s.cols,
        };
        self.set(base + segment::ROW_BYTES, row);
        self.set(base + segment::FACTOR, (1.0 / s.format.raised()).to_bits());
        self.set(base + segment::COLS, s.cols);
        let slot = if s.format.is_quantized() { SLOT_TILES * tile } else { QUAD * row_bytes(s.format) };
        self.needs.slot = self.needs.slot.max(slot);
    }
}
