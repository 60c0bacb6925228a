//! Sequences on a device that are processed together.

use std::fmt;

use hcq::{Device, Queue};

use crate::engine::alone::Alone;
use crate::engine::batch::Launches;
use crate::engine::batch::{Column, MOST_COLUMNS, Steps, To};
use crate::engine::cache::{CacheShape, PAGE, pages_for};
use crate::engine::columns::chunks::{chunk_bytes, chunks, launched};
use crate::engine::columns::options::ColumnsOptions;
use crate::engine::columns::output_norm::OutputNorm;
use crate::engine::columns::pages::{PageCopy, Pages, Table};
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::engine::prompt::chunks::{Chunks, Slices};
use crate::engine::timed::TimedGraph;
use crate::engine::times::{LaunchTime, Work};
use crate::error::{Error, Result};
use crate::kernels::choices::Kernels;
use crate::model::Model;

/// A sequence of one [`Columns`]. After its release it names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColumnId {
    pub(super) slot: u32,
    /// Number of earlier uses of the slot.
    generation: u32,
}

/// A sequence.
#[derive(Debug, Default)]
pub(super) struct Slot {
    generation: u32,
    /// `None` if no sequence has the slot.
    pub(super) table: Option<Table>,
    /// Whether the device has another table.
    stale: bool,
}

/// A chunk of which some slices have been processed.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) id: ColumnId,
    /// Tokens before it.
    pub(super) position: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) slices: Slices,
}

/// A model on a device that processes several sequences in one step.
///
/// A step takes tokens of any of the sequences, several of one sequence too, which then are at successive
/// positions: prompts and drafts are processed that way. What a sequence's logits are does not depend, in any
/// bit, on what is processed beside it nor on how its tokens are divided into steps. Chunks of prompts
/// ([`Columns::chunk`]) round otherwise: which tokens are in which chunk must follow from the request alone
/// ([`Cut`](crate::engine::Cut)).
///
/// ```
/// use ga10b_llm::{Columns, ColumnsOptions, embedded};
/// use hcq::{Device, Selector};
///
/// let model = embedded::model()?;
/// let device = Device::open(Selector::Sim)?;
/// let mut columns = Columns::new(&device, &model, &ColumnsOptions::new(2, 64))?;
/// let (one, other) = (columns.admit()?, columns.admit()?);
/// let greedy = columns.step(&[(one, 5), (other, 7), (one, 9)])?;
/// assert!(greedy.iter().all(Option::is_some));
/// assert_eq!((columns.position(one)?, columns.position(other)?), (2, 1));
/// columns.release(one)?;
/// # Ok::<(), ga10b_llm::Error>(())
/// ```
pub struct Columns {
    pub(super) model: DeviceModel,
    pub(super) steps: Steps,
    pub(super) queue: Queue,
    pub(super) options: ColumnsOptions,
    pub(super) pages: Pages,
    pub(super) slots: Vec<Slot>,
    /// Chunks of prompts, if they are wanted and there are kernels for the model's shape.
    pub(super) chunks: Option<Chunks>,
    /// The results of the last step, and its columns; `None` if what it computed with has changed since.
    pub(super) results: Option<(To, usize)>,
    /// The norm before the output matrix.
    pub(super) output_norm: OutputNorm,
    /// The chunk of which some slices have been processed.
    pub(super) begun: Option<Begun>,
    /// The persistent step of a text that is alone, if it is wanted and there is one for the model.
    pub(super) alone: Option<Alone>,
    /// The first position of its sequence that such a step has written.
    pub(super) alone_from: usize,
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, pages) = (self.pages.free(), self.options.pages);
        write!(f, "Columns({} sequences, {free} of {pages} pages free)", self.sequences())
    }
}

impl Columns {
    /// Copies `model` to `device`.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`], [`Error::PartialBlock`] or [`Error::KeyValue`] for a model that has no
    /// kernels, [`Error::NoKernels`] for a device without kernels,
    /// [`Error::TooLarge`]; what the device reports.
    pub fn new(device: &Device, model: &Model, options: &ColumnsOptions) -> Result<Self> {
        Self::with_progress(device, model, options, &mut |_, _| ())
    }

    /// [`Columns::new`], which calls `progress` with the tensor bytes copied so far and in all.
    ///
    /// # Errors
    /// As [`Columns::new`].
    pub fn with_progress(
        device: &Device,
        model: &Model,
        options: &ColumnsOptions,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Self> {
        let options = options.checked();
        let programs = Programs::new(device, Kernels::new())?;
        device.reserve_stacks(Programs::largest_stack(device, launched(&options), &Kernels::new())?)?;
        let (total, mut done) = (model.tensor_bytes(), 0);
        let cache = (options.context, options.pages, options.kv);
        let output_norm = OutputNorm::of(model)?;
        let model = DeviceModel::load(device, model, cache, &mut |bytes| {
            done += bytes;
            progress(done, total);
        })?;
        let tables = (options.sequences, pages_for(options.context));
        let mut steps = Steps::new(device, &model.config, programs, tables)?;
        let alone = match options.stream {
            true => Alone::persistent(&model, &mut steps)?,
            false => None,
        };
        let chunks = chunks(&model, &options, steps.tables())?;
        Ok(Self {
            queue: device.queue()?,
            steps,
            chunks,
            pages: Pages::new(fits(options.pages)?),
            slots: (0..options.sequences).map(|_| Slot::default()).collect(),
            results: None,
            output_norm,
            begun: None,
            alone,
            alone_from: usize::MAX,
            model,
            options,
        })
    }

    /// Bytes of device memory that [`Columns`] of `model` take beside the weights: the cache, and the rest.
    ///
    /// # Errors
    /// [`Error::KeyValue`] for a cache type that the model cannot have, [`Error::TooLarge`].
    pub fn bytes(model: &Model, options: &ColumnsOptions, device: &Device) -> Result<(u64, u64)> {
        let (c, options) = (&model.config, options.checked());
        let cache = CacheShape::new(c, options.kv, options.pages)?.bytes() * 2 * c.layers as u64;
        let tables = (options.sequences, pages_for(options.context));
        let info = device.info();
        let chunks = chunk_bytes(c, &options, info.into())?;
        let alone = if options.stream { Alone::bytes(c, options.context, info.sm_count) } else { 0 };
        Ok((cache, Steps::bytes(c, tables, info.sm_count)? + chunks + alone))
    }

    /// Begins a sequence.
    ///
    /// # Errors
    /// [`Error::TooManySequences`].
    pub fn admit(&mut self) -> Result<ColumnId> {
        self.place(Table::default())
    }

    /// A sequence with the first `len` tokens of `id`, or all if it has fewer, whose pages both share until
    /// one writes to them. A step that writes for both asks for a free page for each.
    ///
    /// # Errors
    /// [`Error::Released`], [`Error::TooManySequences`].
    pub fn fork(&mut self, id: ColumnId, len: usize) -> Result<ColumnId> {
        self.table(id)?;
        self.vacant()?;
        let table = self.slots[id.slot as usize].table.as_ref().ok_or(Error::Released)?;
        let fork = self.pages.fork(table, len);
        self.place(fork)
    }

    pub(super) fn vacant(&self) -> Result<usize> {
        let most = self.slots.len();
        self.slots.iter().position(|slot| slot.table.is_none()).ok_or(Error::TooManySequences { most })
    }

    pub(super) fn place(&mut self, table: Table) -> Result<ColumnId> {
        let number = self.vacant()?;
        self.alone_from = usize::MAX;
        let slot = &mut self.slots[number];
        (slot.table, slot.stale) = (Some(table), true);
        Ok(ColumnId { slot: fits(number)?, generation: slot.generation })
    }

    pub(super) fn table(&self, id: ColumnId) -> Result<&Table> {
        let slot = self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.table.as_ref()).ok_or(Error::Released)
    }

    /// Ends a sequence.
    ///
    /// # Errors
    /// [`Error::Released`] if it has ended.
    pub fn release(&mut self, id: ColumnId) -> Result<()> {
        self.truncate(id, 0)?;
        let slot = &mut self.slots[id.slot as usize];
        slot.table = None;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(())
    }

    /// Forgets the tokens of a sequence from position `len` on.
    ///
    /// # Errors
    /// [`Error::Released`].
    pub fn truncate(&mut self, id: ColumnId, len: usize) -> Result<()> {
        self.table(id)?;
        self.begun.take_if(|begun| begun.id == id);
        let slot = &mut self.slots[id.slot as usize];
        if let Some(table) = &mut slot.table {
            self.pages.truncate(table, len);
        }
        Ok(())
    }

    /// Tokens of a sequence.
    ///
    /// # Errors
    /// [`Error::Released`].
    pub fn position(&self, id: ColumnId) -> Result<usize> {
        Ok(self.table(id)?.len)
    }

    /// Pages that the next `tokens` tokens of a sequence take beside those that it has.
    ///
    /// # Errors
    /// [`Error::Released`].
    pub fn pages_needed(&self, id: ColumnId, tokens: usize) -> Result<usize> {
        Ok(self.pages.needed(self.table(id)?, tokens))
    }

    /// Pages that no sequence has, and that are not kept.
    pub fn free_pages(&self) -> usize {
        self.pages.free()
    }

    /// Sequences that have begun and not ended.
    pub fn sequences(&self) -> usize {
        self.slots.iter().filter(|slot| slot.table.is_some()).count()
    }

    /// Its options.
    pub fn options(&self) -> &ColumnsOptions {
        &self.options
    }

    /// Tokens of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.model.config.vocab
    }

    /// Processes tokens, at most [`MOST_COLUMNS`], each at the next position of its sequence. Returns for
    /// each the most likely next token, the lowest of equals; `None` if no logit is a number, which concerns
    /// this sequence alone unless the weights are damaged.
    ///
    /// # Errors
    /// [`Error::StepSize`], [`Error::Released`], [`Error::Token`], [`Error::ContextFull`],
    /// [`Error::OutOfPages`]: then nothing has changed. The device's errors: the positions have not
    /// changed.
    pub fn step(&mut self, work: &[(ColumnId, u32)]) -> Result<Vec<Option<u32>>> {
        self.prepare(work)?;
        self.steps.run(&self.model, &mut self.queue, work.len(), To::Logits)?;
        self.finish(work)
    }

    /// [`Columns::step`] with one launch after the other, each with its time; slower.
    ///
    /// # Errors
    /// As [`Columns::step`].
    pub fn step_timed(&mut self, work: &[(ColumnId, u32)]) -> Result<(Vec<Option<u32>>, Vec<LaunchTime>)> {
        self.prepare(work)?;
        let position = self.table(work[0].0)?.len;
        let seen = work.iter().map(|(id, _)| Ok(self.table(*id)?.len + 1)).sum::<Result<usize>>()?;
        let launches = self.steps.launches(&self.model, work.len())?.all;
        let timed = TimedGraph::new(&self.model.device, &launches)?;
        self.queue.replay(&timed.graph)?.wait(self.model.patience * work.len() as u32)?;
        Ok((self.finish(work)?, timed.launches_of(Work::Step, position, seen)))
    }

    /// Reads the results of a completed step.
    fn finish(&mut self, work: &[(ColumnId, u32)]) -> Result<Vec<Option<u32>>> {
        let tokens = self.steps.chosen(work.len())?;
        self.advance(work);
        self.results = Some((To::Logits, work.len()));
        Ok(tokens)
    }

    /// [`Columns::step`] without logits: for all tokens of a prompt but the last.
    ///
    /// # Errors
    /// As [`Columns::step`].
    pub fn fill(&mut self, work: &[(ColumnId, u32)]) -> Result<()> {
        self.fill_to(work, To::Cache)
    }

    /// [`Columns::step`] without its last results.
    pub(super) fn fill_to(&mut self, work: &[(ColumnId, u32)], to: To) -> Result<()> {
        self.prepare(work)?;
        self.steps.run(&self.model, &mut self.queue, work.len(), to)?;
        self.advance(work);
        self.results = Some((to, work.len()));
        Ok(())
    }

    /// The logits of a column of the last [`Columns::step`], one per token of the vocabulary.
    ///
    /// # Errors
    /// [`Error::StepSize`] if that step had no such column; what the device reports.
    pub fn logits(&self, column: usize) -> Result<Vec<f32>> {
        self.check_result(column, To::Logits)?;
        let mut logits = vec![0.0; self.vocab()];
        self.steps.read_logits(column, &mut logits)?;
        Ok(logits)
    }

    /// Checks that the last step has such a result of a column.
    pub(super) fn check_result(&self, column: usize, wanted: To) -> Result<()> {
        let most = self.results.filter(|(to, _)| *to >= wanted).map_or(0, |(_, columns)| columns);
        match column < most {
            true => Ok(()),
            false => Err(Error::StepSize { asked: column + 1, most }),
        }
    }

    /// Checks tokens, and how many each sequence takes.
    pub(super) fn check(&self, counts: &[(ColumnId, usize)], tokens: &[u32]) -> Result<()> {
        let vocab = self.model.config.vocab;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab) {
            return Err(Error::Token { token: *token, vocab });
        }
        let (mut needed, context) = (0, self.options.context);
        for (id, count) in counts {
            let table = self.table(*id)?;
            if *count > context - table.len {
                return Err(Error::ContextFull { position: context, context });
            }
            needed += self.pages.needed(table, *count);
        }
        let free = self.pages.free();
        if needed > free { Err(Error::OutOfPages { needed, free }) } else { Ok(()) }
    }

    /// Checks the tokens of a step, and writes to the device what it is told of them.
    fn prepare(&mut self, work: &[(ColumnId, u32)]) -> Result<()> {
        if !(1..=MOST_COLUMNS).contains(&work.len()) {
            return Err(Error::StepSize { asked: work.len(), most: MOST_COLUMNS });
        }
        let mut counts: Vec<(ColumnId, usize)> = Vec::new();
        let mut columns = Vec::new();
        for (id, token) in work {
            let own = match counts.iter().position(|(other, _)| other == id) {
                Some(own) => own,
                None => {
                    counts.push((*id, 0));
                    counts.len() - 1
                }
            };
            let position = self.table(*id)?.len + counts[own].1;
            columns.push(self.column(*id, *token, position)?);
            counts[own].1 += 1;
        }
        let tokens: Vec<u32> = work.iter().map(|(_, token)| *token).collect();
        self.check(&counts, &tokens)?;
        self.extend(&counts)?;
        self.steps.write(&columns)
    }

    /// A token of a sequence in a step.
    pub(super) fn column(&self, id: ColumnId, token: u32, position: usize) -> Result<Column> {
        Ok(Column { token, position: fits(position)?, table: id.slot })
    }

    /// The launches of a step of up to `columns` columns.
    pub(super) fn lowered_for(&mut self, columns: usize) -> Result<Launches> {
        self.steps.launches(&self.model, columns)
    }

    /// Gives sequences the pages for their next tokens.
    pub(super) fn extend(&mut self, counts: &[(ColumnId, usize)]) -> Result<()> {
        let mut copies = Vec::new();
        for (id, count) in counts {
            let slot = &mut self.slots[id.slot as usize];
            let table = slot.table.as_mut().ok_or(Error::Released)?;
            let (before, free) = (table.pages.len(), self.pages.free());
            let needed = self.pages.needed(table, *count);
            let own = self.pages.extend(table, *count).ok_or(Error::OutOfPages { needed, free })?;
            slot.stale |= before != table.pages.len() || !own.is_empty();
            copies.extend(own);
        }
        self.copy(&copies)?;
        for (number, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.stale) {
            if let Some(table) = &slot.table {
                self.steps.write_table(number, &table.pages)?;
            }
            slot.stale = false;
        }
        Ok(())
    }

    /// Copies pages of all layers.
    fn copy(&mut self, copies: &[PageCopy]) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let cache = &self.model.cache;
        let values = (self.model.config.padded_kv_dim() * PAGE) as u64;
        // Values, and in q8_0 their scales.
        let (bytes, scale_bytes) = match cache.scales_at {
            None => (2 * values, 0),
            Some(_) => (values, cache.kv.bytes(values) - values),
        };
        for PageCopy { from, to } in copies.iter().copied() {
            let (from, to) = (u64::from(from), u64::from(to));
            for buffer in self.model.layers.iter().flat_map(|layer| [&layer.keys, &layer.values]) {
                self.queue.copy(buffer, from * bytes, buffer, to * bytes, bytes)?;
                if let Some(at) = cache.scales_at.map(u64::from) {
                    let [from, to] = [from, to].map(|page| at + page * scale_bytes);
                    self.queue.copy(buffer, from, buffer, to, scale_bytes)?;
                }
            }
        }
        Ok(self.queue.submit()?.wait(self.model.patience)?)
    }

    pub(super) fn advance(&mut self, work: &[(ColumnId, u32)]) {
        for (id, _) in work {
            if let Some(table) = &mut self.slots[id.slot as usize].table {
                table.len += 1;
            }
        }
    }

    /// Records the steps, and the chunks of prompts, of all sizes before they are needed; else the first of
    /// each does.
    ///
    /// # Errors
    /// Errors of loading the kernels.
    pub fn record_all(&mut self) -> Result<()> {
        self.steps.record_all(&self.model)?;
        if self.takes_chunks()?
            && let Some(chunks) = &mut self.chunks
        {
            chunks.record_all(&self.model)?;
        }
        Ok(())
    }

    /// Whether prompts are processed in chunks. The first call measures the weights' rows.
    pub(super) fn takes_chunks(&mut self) -> Result<bool> {
        match &mut self.chunks {
            Some(chunks) => chunks.in_range(&self.model, &mut self.queue),
            None => Ok(false),
        }
    }

    /// Bytes of weights that a step reads, whatever its columns.
    pub fn weight_bytes(&self) -> u64 {
        let c = &self.model;
        c.layers
            .iter()
            .flat_map(|layer| layer.matrices())
            .chain([&c.output])
            .map(|matrix| matrix.bytes())
            .sum()
    }
}
