//! `nvdiag`: what a GPU is, what a launch says, what a kernel does, without CUDA.

#![deny(unsafe_code)]

mod cmd;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use cmd::finding::{Finding, is_broken_pipe};
use cmd::terminal::{self, Output};

/// Heading of the options that all commands take, in each command's help.
const GLOBAL: &str = "Options of every command";

/// Diagnostics for NVIDIA GPUs driven without CUDA.
#[derive(Debug, Parser)]
#[command(name = "nvdiag", version, propagate_version = true)]
#[command(after_help = "Examples:
  nvdiag doctor                     is this machine set up?
  nvdiag provoke misaligned         a fault on the software ga10b, explained
  nvdiag check -- ./program         races and other mistakes of its kernels, without a GPU
  sudo nvdiag esr                   the faults in the kernel log
  sudo nvdiag report                one file for a ticket, nothing private in it
  sudo nvdiag watch                 saves each fault from now on, for `nvdiag list`
  nvdiag esr --log kern.log --json  those of a file, as JSON

Exit codes: 0 nothing wrong found, or done; 1 a problem found: a fault, a bad check, a step that failed, \
                        what differs; 2 bad usage, or it could not be done (no device, no permission, unreadable input). \
                        Of bringup and trace also 128 and the number of the signal that ended them; of trace and check also the code \
                        of the program that they ran, whatever that is, and of check 3 for mistakes. Each command's help says what its codes mean.")]
struct Cli {
    /// Print one JSON document instead of text.
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// When to colour the output.
    #[arg(long, global = true, value_name = "WHEN", default_value_t = clap::ColorChoice::Auto, help_heading = GLOBAL)]
    color: clap::ColorChoice,
    /// Say more on stderr; twice for even more.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bringup(cmd::bringup::Args),
    Check(cmd::check::Args),
    Doctor(cmd::doctor::Args),
    Esr(cmd::esr::Args),
    Explain(cmd::explain::Args),
    Xid(cmd::xid::Args),
    Info(cmd::info::Args),
    Pushbuf(cmd::pushbuf::Args),
    Provoke(cmd::provoke::Args),
    Qmd(cmd::qmd::Args),
    Report(cmd::report::Args),
    Trace(cmd::trace::Args),
    Vamap(cmd::vamap::Args),
    Watch(cmd::watch::Args),
    List(cmd::list::Args),
    Show(cmd::show::Args),
    Disasm(cmd::disasm::Args),
    Core(cmd::core::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
}

/// Help for `--json` of a command that does not print one document.
const LINES: [(&str, &str); 3] = [
    ("trace", "Print JSON Lines instead of text, one object per call; with --summary one JSON document"),
    ("esr", "Print one JSON document instead of text; with --watch JSON Lines, one document per fault"),
    ("watch", "Print JSON Lines instead of text, one document per fault"),
];

/// The commands, with their help.
fn definition() -> clap::Command {
    let command = Cli::command();
    let Some(json) = command.get_arguments().find(|option| option.get_id() == "json").cloned() else {
        return command;
    };
    command.mut_subcommands(|command| match LINES.iter().find(|(name, _)| *name == command.get_name()) {
        Some((_, help)) => command.arg(json.clone().help(*help)),
        None => command,
    })
}

fn run(cli: &Cli, out: &mut dyn Write) -> anyhow::Result<Finding> {
    match &cli.command {
        Command::Bringup(args) => args.run(cli.json, out),
        Command::Check(args) => args.run(cli.json, out),
        Command::Doctor(args) => args.run(cli.json, out),
        Command::Esr(args) => args.run(cli.json, out),
        Command::Explain(args) => args.run(cli.json, out),
        Command::Xid(args) => args.run(cli.json, out),
        Command::Info(args) => args.run(cli.json, out),
        Command::Pushbuf(args) => args.run(cli.json, out),
        Command::Trace(args) => args.run(cli.json, cli.verbose > 0, out),
        Command::Vamap(args) => args.run(cli.json, out),
        Command::Watch(args) => args.run(cli.json, out),
        Command::List(args) => args.run(cli.json, out),
        Command::Show(args) => args.run(cli.json, out),
        Command::Provoke(args) => args.run(cli.json, out),
        Command::Qmd(args) => args.run(cli.json, out),
        Command::Report(args) => args.run(cli.json, out),
        Command::Disasm(args) => args.run(cli.json, out),
        Command::Core(args) => args.run(cli.json, cli.verbose > 0, out),
        Command::Completions(args) => args.run(definition(), cli.json, out),
        Command::Man(args) => args.run(definition(), cli.json, out),
    }
}

/// The parser's message, without options that the user does not know or did not give.
fn mended(mut message: clap::Error, command: &clap::Command) -> clap::Error {
    let text = |kind| match message.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    // It proposes the options that this program gives its own processes, too.
    let tip = text(ContextKind::SuggestedArg).trim_start_matches('-');
    let mut options = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let is_hidden = options.any(|option| option.is_hide_set() && option.get_long() == Some(tip));
    // It names the option also where the value came from the variable.
    let is_given = || std::env::args_os().any(|word| word.as_encoded_bytes().starts_with(b"--device"));
    let is_variable = text(ContextKind::InvalidArg).starts_with("--device ") && !is_given();
    if is_hidden {
        message.remove(ContextKind::SuggestedArg);
    }
    if is_variable {
        message.insert(ContextKind::InvalidArg, ContextValue::String("HCQ_DEVICE".to_owned()));
    }
    message
}

/// The command line; or, after help or an error was printed, the code to exit with.
fn command_line() -> Result<Cli, ExitCode> {
    // So that a number that is too small is refused for that, and not as an unknown option.
    let negative = |arg: clap::Arg| match arg.get_action().takes_values() && !arg.is_positional() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    let mut command = definition().mut_subcommands(|command| command.mut_args(negative));
    if let Some(columns) = terminal::columns() {
        command = command.term_width(columns);
    }
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|message| mended(message, &command)).map_err(|message| {
        match (message.print().and_then(|()| io::stdout().flush()), message.kind()) {
            (Err(error), _) if error.kind() != io::ErrorKind::BrokenPipe => cannot_write(&error),
            (_, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => ExitCode::SUCCESS,
            _ => ExitCode::from(2),
        }
    })
}

fn cannot_write(error: &dyn std::fmt::Display) -> ExitCode {
    // A program that cannot write to stderr either cannot report it.
    let _ = writeln!(anstream::stderr(), "nvdiag: cannot write to stdout: {error}");
    ExitCode::from(2)
}

fn main() -> ExitCode {
    let cli = match command_line() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
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
    let for_programs = cli.json || matches!(cli.command, Command::Completions(_));
    let columns = terminal::columns().filter(|_| !for_programs);
    let mut out = Output::new(anstream::stdout().lock(), columns);
    let found = match (run(&cli, &mut out), out.flush()) {
        // A reader that has stopped still gets the exit code.
        (Ok(_), Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        (found, _) => found,
    };
    match found {
        Ok(Finding::Clean) => ExitCode::SUCCESS,
        Ok(Finding::Problem) => ExitCode::from(1),
        Ok(Finding::Program(code)) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if out.has_failed() => cannot_write(&error.root_cause()),
        Err(error) => {
            anstream::eprintln!("nvdiag: {error:#}");
            if let Some(hint) = error.downcast_ref::<hcq::Error>().and_then(hcq::Error::hint) {
                anstream::eprintln!("  try: {hint}");
            }
            ExitCode::from(2)
        }
    }
}
