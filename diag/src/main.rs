//! `nvdiag`: what a GPU is, what a launch says, what a kernel does, without CUDA.

#![deny(unsafe_code)]

mod cmd;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use cmd::finding::{Finding, is_broken_pipe};

/// Diagnostics for NVIDIA GPUs driven without CUDA.
#[derive(Debug, Parser)]
#[command(name = "nvdiag", version, propagate_version = true)]
#[command(
    after_help = "Exit codes: 0 nothing wrong found; 1 a problem found; 2 bad usage, or it could not be done \
                        (no device, no permission, unreadable input)."
)]
struct Cli {
    /// Print one JSON document instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// When to colour the output.
    #[arg(long, global = true, value_name = "WHEN", default_value_t = clap::ColorChoice::Auto)]
    color: clap::ColorChoice,
    /// Say more on stderr; twice for even more.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bringup(cmd::bringup::Args),
    Doctor(cmd::doctor::Args),
    Esr(cmd::esr::Args),
    Info(cmd::info::Args),
    Pushbuf(cmd::pushbuf::Args),
    Provoke(cmd::provoke::Args),
    Qmd(cmd::qmd::Args),
    Trace(cmd::trace::Args),
    Vamap(cmd::vamap::Args),
    Disasm(cmd::disasm::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
}

fn run(cli: &Cli, out: &mut dyn Write) -> anyhow::Result<Finding> {
    match &cli.command {
        Command::Bringup(args) => args.run(cli.json, out),
        Command::Doctor(args) => args.run(cli.json, out),
        Command::Esr(args) => args.run(cli.json, out),
        Command::Info(args) => args.run(cli.json, out),
        Command::Pushbuf(args) => args.run(cli.json, out),
        Command::Trace(args) => args.run(cli.json, out),
        Command::Vamap(args) => args.run(cli.json, out),
        Command::Provoke(args) => args.run(cli.json, out),
        Command::Qmd(args) => args.run(cli.json, out),
        Command::Disasm(args) => args.run(cli.json, out),
        Command::Completions(args) => args.run(Cli::command(), out),
        Command::Man(args) => args.run(Cli::command(), out),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.color {
        clap::ColorChoice::Auto => anstream::ColorChoice::Auto,
        clap::ColorChoice::Always => anstream::ColorChoice::Always,
        clap::ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    let level = match cli.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    tracing_subscriber::fmt().with_env_filter(level).with_writer(io::stderr).without_time().init();
    match run(&cli, &mut anstream::stdout().lock()) {
        Ok(Finding::Clean) => ExitCode::SUCCESS,
        Ok(Finding::Problem) => ExitCode::from(1),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("nvdiag: {error:#}");
            if let Some(hint) = error.downcast_ref::<hcq::Error>().and_then(hcq::Error::hint) {
                anstream::eprintln!("  try: {hint}");
            }
            ExitCode::from(2)
        }
    }
}
