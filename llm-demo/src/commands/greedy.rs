//! Checks that the path in use chooses the tokens that one launch per operation chooses.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::engine::Mode;
use ga10b_llm::tokenizer::Tokenizer;
use ga10b_llm_tools::agreement::{Agreement, Difference, compare};

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;
use crate::session::{self, Session};

pub fn run(cli: &Cli, count: usize) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let mut prompt = tokenizer.encode(session::prompt(cli)).context("cannot encode the prompt")?;
    if prompt.is_empty() {
        prompt.push(tokenizer.bos().unwrap_or(0));
    }
    let context = prompt.len() + count;
    anyhow::ensure!(
        context <= model.config.context,
        "the prompt and {count} tokens do not fit the model's context of {} tokens; choose a smaller --greedy",
        model.config.context
    );
    let device = session::device(cli)?;
    let mut checked =
        Session::new(device.clone(), (cli.engine, cli.kv, false, !cli.no_tuning), &model, context)?;
    let mode = checked.engine.mode();
    anyhow::ensure!(
        mode != Mode::Operations,
        "a step is one launch per operation here, there is nothing to compare: choose --engine phases or persistent, \
         and a model that has a step kernel"
    );
    let mut against = Session::new(device, (Some(Mode::Operations), cli.kv, false, false), &model, context)?;
    let bar = progress::step_bar("comparing");
    bar.set_length(count as u64);
    let agreement = compare(&mut checked.engine, &mut against.engine, &prompt, count, &mut || bar.inc(1));
    bar.finish_and_clear();
    let agreement = agreement?;

    let mut out = io::stdout().lock();
    writeln!(out, "device       {}", checked.device.info().name)?;
    writeln!(out, "compared     {} with {}", mode.name(), Mode::Operations.name())?;
    print(&agreement, count, mode, &mut out)?;
    Ok(if agreement.difference.is_none() { Outcome::Good } else { Outcome::Bad })
}

fn print(agreement: &Agreement, count: usize, mode: Mode, out: &mut impl Write) -> io::Result<()> {
    let Agreement { tokens, ties, difference } = agreement;
    let mut show = |what: &str, d: &Difference| {
        writeln!(
            out,
            "{what:<12} at position {}: {} chose {} by {:.2e}, {} chose {} by {:.2e}; a tie is at most {:.2e}",
            d.position,
            mode.name(),
            d.tokens[0],
            d.margins[0],
            Mode::Operations.name(),
            d.tokens[1],
            d.margins[1],
            d.tie
        )
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
