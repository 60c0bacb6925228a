//! Compares the greedy tokens of a step in one launch with those of a batch step.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::{Mode, Tokenizer};
use ga10b_llm_tools::agreement::{Agreement, Difference, compare};

use crate::cli::commands::Verify;
use crate::outcome::Outcome;
use crate::progress;
use crate::session::{self, Session, Setup};

pub fn run(verify: &Verify, count: usize) -> anyhow::Result<Outcome> {
    let model = session::model_to_run(&verify.common.model, verify.common.launching.kv)?;
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let mut prompt = tokenizer.encode(&session::prompt(&verify.text)?).context("cannot encode the prompt")?;
    if prompt.is_empty() {
        prompt.push(tokenizer.bos().unwrap_or(0));
    }
    let context = prompt.len() + count;
    anyhow::ensure!(
        context <= model.config.context,
        "the prompt and {count} tokens do not fit the model's context of {} tokens; choose a smaller --greedy",
        model.config.context
    );
    let device = session::device(&verify.common.device)?;
    let setup = Setup::of(&verify.common.launching);
    let mut checked = Session::new(device.clone(), &setup, &model, context)?;
    let mode = checked.engine.mode();
    anyhow::ensure!(
        mode != Mode::Batch,
        "a step is that of batches here, there is nothing to compare: choose --engine stream, and a model that the \
         step kernel takes"
    );
    let setup = Setup { mode: Some(Mode::Batch), tuned: false, ..setup };
    let mut against = Session::new(device, &setup, &model, context)?;
    let bar = progress::step_bar("comparing");
    bar.set_length(count as u64);
    let agreement = compare(&mut checked.engine, &mut against.engine, &prompt, count, &mut || bar.inc(1));
    bar.finish_and_clear();
    let agreement = agreement?;

    let mut out = io::stdout().lock();
    writeln!(out, "device       {}", checked.device.info().name)?;
    writeln!(out, "compared     {} with {}", mode.name(), Mode::Batch.name())?;
    print(&agreement, count, mode, &mut out)?;
    Ok(if agreement.difference.is_none() { Outcome::Good } else { Outcome::Bad })
}

fn print(agreement: &Agreement, count: usize, mode: Mode, out: &mut impl Write) -> io::Result<()> {
    let Agreement { tokens, ties, difference } = agreement;
    let (checked, against) = (mode.name(), Mode::Batch.name());
    let mut show = |what: &str, d: &Difference| {
        let &Difference { position, tokens: [a, b], margins: [by_a, by_b], tie } = d;
        write!(out, "{what:<12} at position {position}: {checked} chose {a} by {by_a:.2e}, ")?;
        writeln!(out, "{against} chose {b} by {by_b:.2e}; a tie is at most {tie:.2e}")
    };
    for tie in ties {
        show("tie", tie)?;
    }
    match difference {
        Some(difference) => {
            show("difference", difference)?;
            writeln!(out, "DIFFERENT after {tokens} of {count} tokens")
        }
        None if ties.is_empty() => writeln!(out, "the same {tokens} tokens"),
        None => writeln!(out, "the same {tokens} tokens but for {} ties", ties.len()),
    }
}
