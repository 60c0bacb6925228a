//! Steps of columns, recorded for each number of columns on first use.

use hcq::{Buffer, Device, Graph, Queue};

use crate::engine::batch::buffers::Buffers;
use crate::engine::batch::lower::{Launches, end, launches};
use crate::engine::launch::{Launch, record};
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::error::{Error, Result};
use crate::kernels::columns::product::{SIZES, size};
use crate::kernels::columns::state::{NONE, WORDS};
use crate::model::config::Config;

/// Most columns of a step.
pub const MOST_COLUMNS: usize = SIZES[SIZES.len() - 1] as usize;

/// Fewer tokens of a prompt than this are no chunk: one step takes them.
pub const LEAST_CHUNK: usize = MOST_COLUMNS + 1;

/// A token in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The token.
    pub token: u32,
    /// Its position.
    pub position: u32,
    /// The number of its sequence's table of pages.
    pub table: u32,
}

/// The results of a step. Each has those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum To {
    /// Keys and values.
    Cache,
    /// The residual stream after all layers.
    States,
    /// Logits, and the most likely tokens.
    Logits,
}

impl To {
    /// All.
    const COUNT: usize = 3;
}

impl Launches {
    /// Those that a step takes to such results.
    fn to(&self, to: To) -> &[Launch] {
        let end = match to {
            To::Cache => self.head,
            To::States => self.output,
            To::Logits => self.all.len(),
        };
        &self.all[..end]
    }
}

/// The recorded steps of a model, and what they compute with.
#[derive(Debug)]
pub struct Steps {
    programs: Programs,
    buffers: Buffers,
    /// Most pages of a sequence.
    pages: usize,
    /// By number of columns, and by [`To`].
    graphs: [[Option<Graph>; To::COUNT]; SIZES.len()],
}

impl Steps {
    /// Reserves memory for `sequences` sequences of up to `pages` pages each.
    pub fn new(
        device: &Device,
        c: &Config,
        programs: Programs,
        (sequences, pages): (usize, usize),
    ) -> Result<Self> {
        let buffers = Buffers::new(device, c, (sequences, pages))?;
        Ok(Self { programs, buffers, pages, graphs: Default::default() })
    }

    /// Bytes of device memory that they take.
    pub fn bytes(c: &Config, tables: (usize, usize), sm_count: u32) -> Result<u64> {
        Buffers::bytes(c, tables, sm_count)
    }

    /// The tables of all sequences.
    pub fn tables(&self) -> &Buffer {
        &self.buffers.tables
    }

    /// The vectors of a step.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Writes the pages of a sequence.
    pub fn write_table(&self, table: usize, pages: &[u32]) -> Result<()> {
        Ok(self.buffers.tables.write_slice(4 * (table * self.pages) as u64, pages)?)
    }

    /// Writes the columns of the next step, [`MOST_COLUMNS`] at most.
    pub fn write(&self, columns: &[Column]) -> Result<()> {
        let mut words = Vec::with_capacity(MOST_COLUMNS * WORDS as usize);
        for Column { token, position, table } in columns {
            words.extend([*token, *position, *table, 0]);
        }
        for _ in columns.len()..MOST_COLUMNS {
            words.extend([0, NONE, 0, 0]);
        }
        debug_assert_eq!(words.len(), MOST_COLUMNS * WORDS as usize);
        Ok(self.buffers.from_host.write_slice(0, &words)?)
    }

    /// Runs the step of `columns` columns that is written, and waits.
    pub fn run(&mut self, m: &DeviceModel, queue: &mut Queue, columns: usize, to: To) -> Result<()> {
        let graph = self.recorded(m, columns, to)?;
        Ok(queue.replay(graph)?.wait(m.patience * columns as u32)?)
    }

    /// The step of up to `columns` columns, recorded on first use.
    pub fn recorded(&mut self, m: &DeviceModel, columns: usize, to: To) -> Result<&Graph> {
        let (number, to_end) = (number(columns)?, to as usize);
        let graph = match self.graphs[number][to_end].take() {
            Some(graph) => graph,
            None => record(&m.device, self.launches(m, columns)?.to(to))?,
        };
        Ok(self.graphs[number][to_end].insert(graph))
    }

    /// Records the steps of texts and their prompts, of all sizes, unless they are recorded.
    pub fn record_all(&mut self, m: &DeviceModel) -> Result<()> {
        for (number, size) in SIZES.into_iter().enumerate() {
            let all = self.launches(m, size as usize)?;
            for to in [To::Cache, To::Logits] {
                let graph = &mut self.graphs[number][to as usize];
                if graph.is_none() {
                    *graph = Some(record(&m.device, all.to(to))?);
                }
            }
        }
        Ok(())
    }

    /// The launches of a step of up to `columns` columns.
    pub fn launches(&mut self, m: &DeviceModel, columns: usize) -> Result<Launches> {
        let size = SIZES[number(columns)?];
        launches(m, &mut self.programs, &self.buffers, (size, self.pages))
    }

    /// The launches from a vector before the last layer to its logits: of one column, after `last`, which
    /// writes the vector to [`Buffers::x`].
    pub fn end(&mut self, m: &DeviceModel, last: Launch) -> Result<Vec<Launch>> {
        end(m, &mut self.programs, &self.buffers, self.pages, last)
    }

    /// The most likely tokens of the last step's first `columns` columns; `None` if no logit is a number.
    pub fn chosen(&self, columns: usize) -> Result<Vec<Option<u32>>> {
        let tokens = self.buffers.tokens.read_vec::<u32>(0, columns)?;
        Ok(tokens.into_iter().map(|token| (token != NONE).then_some(token)).collect())
    }

    /// Reads a column of the last step's residual stream, as it is before the last norm.
    pub fn read_state(&self, column: usize, state: &mut [f32]) -> Result<()> {
        Ok(self.buffers.x.read_slice(4 * (column * state.len()) as u64, state)?)
    }

    /// Reads the logits of a column of the last step, one per token of the vocabulary.
    pub fn read_logits(&self, column: usize, logits: &mut [f32]) -> Result<()> {
        Ok(self.buffers.logits.read_slice(4 * (column * logits.len()) as u64, logits)?)
    }
}

/// The number of the smallest size of steps that holds `columns` columns.
fn number(columns: usize) -> Result<usize> {
    let wrong = Error::StepSize { asked: columns, most: MOST_COLUMNS };
    let size = size(columns).filter(|_| columns > 0).ok_or(wrong)?;
    Ok(SIZES.iter().position(|other| *other == size).unwrap_or_default())
}
