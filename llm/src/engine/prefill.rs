//! Prompts of the engine: in chunks, or in batch steps.

use hcq::SyncPoint;
use tracing::trace_span;

use crate::engine::alone::LogitsAt;
use crate::engine::batch::{Column, LEAST_CHUNK, MOST_COLUMNS, To};
use crate::engine::decode::Engine;
use crate::engine::diagnosis;
use crate::engine::finish::Prompt;
use crate::engine::matrix::fits;
use crate::engine::prompt::chunks::Place;
use crate::engine::timed::run_timed;
use crate::engine::times::Work;
use crate::error::Result;
use crate::spans::HOST;

impl Engine {
    /// Records the launches of a prompt of `tokens` tokens before it is processed; else its first chunks
    /// record them.
    ///
    /// # Errors
    /// Errors of loading the kernels.
    pub fn record_prompt(&mut self, tokens: usize) -> Result<()> {
        if !self.takes_chunks(tokens)? {
            return Ok(());
        }
        self.prompt.as_mut().map_or(Ok(()), |prompt| prompt.chunks.record(&self.model, tokens))
    }

    /// Whether a prompt of `tokens` tokens is processed in chunks.
    pub(super) fn takes_chunks(&mut self, tokens: usize) -> Result<bool> {
        match &mut self.prompt {
            Some(prompt) if tokens >= LEAST_CHUNK => prompt.chunks.in_range(&self.model, &mut self.queue),
            _ => Ok(false),
        }
    }

    /// Processes a prompt in chunks, to its logits.
    fn prefill_chunks(&mut self, tokens: &[u32]) -> Result<()> {
        let (Some(Prompt { chunks, finish, .. }), Some(last)) = (&mut self.prompt, tokens.last()) else {
            return Ok(());
        };
        let patience = chunks.patience(&self.model);
        let mut point: Option<SyncPoint> = None;
        for (before, chunk) in chunks.cut(tokens) {
            let place = Place { position: self.position + before, table: 0 };
            if let Some(tracing) = &mut self.tracing {
                let times = chunks.timed(&self.model, &mut self.queue, place, chunk, patience)?;
                tracing.seen.extend(times);
                continue;
            }
            if let Some(point) = point {
                point.wait(patience)?;
            }
            point = Some(chunks.run(&self.model, &mut self.queue, place, chunk)?);
        }
        let newest = self.position + tokens.len() - 1;
        self.steps.write(&[Column { token: *last, position: fits(newest)?, table: 0 }])?;
        let finish = self.tracing.as_ref().and_then(|t| t.finish.as_ref()).map_or(&*finish, |f| &f.graph);
        self.queue.replay(finish)?.wait(patience)?;
        if let Some(tracing) = &mut self.tracing {
            tracing.finished(newest);
        }
        self.alone.logits_at = LogitsAt::Column(0);
        Ok(())
    }

    /// Processes a prompt in batch steps, to its logits.
    fn prefill_steps(&mut self, tokens: &[u32]) -> Result<()> {
        let mut position = self.position;
        for part in tokens.chunks(MOST_COLUMNS) {
            let columns = part.iter().zip(position..);
            let columns = columns.map(|(token, position)| -> Result<Column> {
                Ok(Column { token: *token, position: fits(position)?, table: 0 })
            });
            self.steps.write(&columns.collect::<Result<Vec<_>>>()?)?;
            let is_last = position + part.len() == self.position + tokens.len();
            if let Some(tracing) = &mut self.tracing {
                let launches = self.steps.launches(&self.model, part.len())?;
                let (end, work) = match is_last {
                    true => (launches.all.len(), Work::Prompt),
                    false => (launches.head, Work::Fill),
                };
                let (queue, at) = (&mut self.queue, (position, part.len()));
                let patience = self.model.patience * MOST_COLUMNS as u32;
                tracing.seen.extend(run_timed(queue, &launches.all[..end], work, at, patience)?);
            } else {
                let to = if is_last { To::Logits } else { To::Cache };
                self.steps.run(&self.model, &mut self.queue, part.len(), to)?;
            }
            position += part.len();
            self.alone.logits_at = LogitsAt::Column(part.len() - 1);
        }
        Ok(())
    }

    /// Ends a prompt of `count` tokens with these logits.
    fn filled(&mut self, count: usize, logits: Vec<f32>) -> Result<Vec<f32>> {
        self.position += count;
        self.check_logits(&logits)?;
        if let Some(bad) = logits.iter().find(|logit| !logit.is_finite()) {
            self.check_logits(&[*bad])?;
        }
        self.alone.probed = true;
        Ok(logits)
    }

    /// Processes a prompt and returns the logits after it.
    pub(super) fn process_prompt(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        tokens.iter().try_for_each(|t| self.check_token(*t))?;
        self.check_room(tokens.len())?;
        let (position, count) = (self.position, tokens.len());
        let _prompt = trace_span!(target: HOST, "prompt", position = position, tokens = count).entered();
        self.alone.state.set_tokens(position, tokens)?;
        self.alone.moved();
        if self.takes_chunks(count)? {
            self.prefill_chunks(tokens)?;
            let logits = self.logits()?;
            if diagnosis::all_finite(&logits) && diagnosis::are_plausible(&logits) {
                return self.filled(count, logits);
            }
            // Batch steps store no activation past the range of f16: they find the reason, or do without.
            tracing::warn!("a prompt left the range of f16 and is processed again, in batch steps");
        }
        self.prefill_steps(tokens)?;
        let logits = self.logits()?;
        self.filled(count, logits)
    }
}
