//! The command line: a subcommand for each task. Without one, the options are those of run.

pub mod commands;
pub mod options;
pub mod sampling;
pub mod speculation;
pub mod values;

use std::{env, io, process};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, Parser};
use hcq::Selector;

use crate::cli::commands::{Command, Run};

/// Decodes a language model on a GPU without the CUDA runtime.
///
/// Without a command it continues a text, as run does; without -m a story with the embedded model. Exit codes:
/// 0 done, 1 failed or past the bounds of verify, 2 options or an environment that cannot be, 3 mistakes found by
/// --check, 130 ended by Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "llm-demo", version, max_term_width = 100, args_conflicts_with_subcommands = true)]
#[command(mut_args(negative), mut_subcommands(|subcommand| subcommand.mut_args(negative)))]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: Run,
}

/// Options of one subcommand that are often given to another or to none, and where they are.
const ELSEWHERE: [(&str, &str); 28] = [
    ("--bench", "bench -m FILE"),
    ("--pp", "bench --pp N"),
    ("--tg", "bench --tg N"),
    ("--depth", "bench -d N,.."),
    ("-d", "bench -d N,.."),
    ("--batch", "bench -b N,.."),
    ("-b", "bench -b N,.."),
    ("--profile-batch", "profile -b N"),
    ("--repeats", "bench -r N"),
    ("-r", "bench -r N"),
    ("--lookup", "speculate --lookup"),
    ("--draft", "speculate --draft FILE"),
    ("--verify", "verify -m FILE"),
    ("--greedy", "verify --greedy N"),
    ("--dump-logits", "logits OUT --tokens IDS"),
    ("--tokens", "logits OUT --tokens IDS"),
    ("--profile", "profile -m FILE"),
    ("--predict", "predict -m FILE"),
    ("--chip", "predict --chip CHIP"),
    ("--against", "predict --against FILE"),
    ("--fit", "predict --against FILE --fit"),
    ("--context", "predict --context N,.."),
    ("--orin", "predict --orin KEY=VALUE"),
    ("--tune", "tune"),
    ("--tune-budget", "tune --budget SECONDS"),
    ("--synthesize", "synthesize SHAPE:QUANT FILE"),
    ("--man", "man FOLDER"),
    ("--completions", "completions SHELL"),
];

impl Cli {
    /// Reads the command line. Ends the program for a usage error, `--help` and `--version`.
    pub fn read() -> Command {
        let error = match Self::try_parse() {
            Ok(Self { command, run }) => return command.unwrap_or(Command::Run(run)),
            Err(error) => error,
        };
        // The parser names the option also where the value came from the variable.
        let named = env::args().any(|argument| argument.starts_with("--device"));
        match Selector::from_env() {
            Err(bad) if error.kind() == ErrorKind::ValueValidation && !named => {
                usage(ErrorKind::ValueValidation, &format!("the environment variable HCQ_DEVICE: {bad}"))
            }
            _ => match elsewhere(&error) {
                Some(message) => usage(error.kind(), &message),
                None => end(&error),
            },
        }
    }
}

/// A value that begins with a minus sign is out of its range, and no option.
fn negative(arg: Arg) -> Arg {
    arg.allow_negative_numbers(true)
}

/// The place of an option that the program, or its subcommand, does not have where it was written.
fn elsewhere(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::ArgumentConflict => {
            let subcommand = context(ContextKind::InvalidSubcommand)?;
            if Cli::command().find_subcommand(subcommand).is_none() {
                return Some(stray(subcommand));
            }
            Some(format!("options follow the subcommand: llm-demo {subcommand} [OPTIONS]"))
        }
        ErrorKind::UnknownArgument => {
            let unknown = context(ContextKind::InvalidArg)?;
            if let Some((option, form)) = ELSEWHERE.into_iter().find(|(option, _)| *option == unknown) {
                let subcommand = form.split_once(' ').map_or(form, |(name, _)| name);
                return Some(format!("{option} is of the subcommand {subcommand}: llm-demo {form}"));
            }
            let Some(name) = unknown.strip_prefix("--") else {
                return (!unknown.starts_with('-')).then(|| stray(unknown));
            };
            let command = Cli::command();
            if command.find_subcommand(name).is_some() {
                return Some(format!("{unknown} is a subcommand: llm-demo {name}"));
            }
            let has = |of: &&clap::Command| of.get_arguments().any(|known| known.get_long() == Some(name));
            let others: Vec<&str> = command.get_subcommands().filter(has).map(|of| of.get_name()).collect();
            (!others.is_empty()).then(|| format!("{unknown} is an option of {}", others.join(", ")))
        }
        _ => None,
    }
}

/// The message for a word that is neither an option nor a value.
fn stray(word: &str) -> String {
    format!(
        "{word:?} is neither an option nor a value of one: quote a prompt of several words, -p \"two words\"; the \
         value of --check follows an equals sign, --check=memory"
    )
}

/// Ends the program with a message, and with the usage of the subcommand that is named.
fn usage(kind: ErrorKind, message: &str) -> ! {
    let mut command = Cli::command();
    command.build();
    let named = env::args().nth(1).unwrap_or_default();
    let error = match command.find_subcommand_mut(named) {
        Some(subcommand) => subcommand.error(kind, message),
        None => Cli::command().error(kind, message),
    };
    end(&error)
}

/// Prints help, version or usage error, and ends the program.
fn end(error: &clap::Error) -> ! {
    let code = match error.print() {
        Err(unwritten) if unwritten.kind() != io::ErrorKind::BrokenPipe => {
            anstream::eprintln!("llm-demo: {unwritten}");
            1
        }
        _ => error.exit_code(),
    };
    process::exit(code)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use ga10b_sim::Checks;

    use super::*;

    fn parse(args: &[&str]) -> Result<Command, clap::Error> {
        let Cli { command, run } = Cli::try_parse_from(iter::once(&"llm-demo").chain(args))?;
        Ok(command.unwrap_or(Command::Run(run)))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_server_says_its_own_defaults_of_sampling() {
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("serve").expect("it is there").render_long_help().to_string();
        assert!(help.contains("[default: 0.8]") && help.contains("[default: another for each]"), "{help}");
        assert!(!help.contains("[default: 0, or 0.8") && !help.contains("random sequence"), "{help}");
    }

    #[test]
    fn without_a_subcommand_the_options_are_those_of_run() {
        for args in [
            &[][..],
            &["-p", "a", "-n", "3", "--temp", "1", "--check"],
            &["-f", "x", "--trace", "t", "--device", "sim"],
            &["--session", "s", "--engine", "batch"],
            &["--lookup", "--draft-max", "3", "-m", "x", "--kv", "q8_0"],
        ] {
            let of_run = parse(&[&["run"], args].concat()).expect("valid");
            assert_eq!(format!("{:?}", parse(args).expect("valid")), format!("{of_run:?}"), "{args:?}");
        }
    }

    #[test]
    fn sampling_is_greedy_until_asked_for() {
        let temperature = |args: &[&str]| {
            let Ok(Command::Run(run)) = parse(args) else { panic!("{args:?}") };
            run.sampling.options().temperature
        };
        assert_eq!(temperature(&[]), 0.0);
        assert_eq!(temperature(&["--seed", "3"]), 0.8);
        assert_eq!(temperature(&["--top-k", "5", "--temp", "0.3"]), 0.3);
    }

    #[test]
    fn an_option_of_another_subcommand_names_it() {
        for (option, form) in ELSEWHERE {
            let error = parse(&["-m", "x", option]).err().and_then(|error| elsewhere(&error));
            if !["--lookup", "--draft"].contains(&option) {
                assert!(error.expect(option).ends_with(&format!("llm-demo {form}")), "{option}");
            }
            let words: Vec<&str> = form.split(' ').collect();
            let known =
                Cli::command().find_subcommand(words[0]).expect(form).get_arguments().any(|argument| {
                    let long = argument.get_long_and_visible_aliases().unwrap_or_default();
                    let short = argument.get_short_and_visible_aliases().unwrap_or_default();
                    let short = short.into_iter().map(|short| format!("-{short}"));
                    let long = long.into_iter().map(|long| format!("--{long}"));
                    words.len() < 2
                        || argument.is_positional()
                        || long.chain(short).any(|name| name == words[1])
                });
            assert!(known, "{form}");
        }
        let error = parse(&["bench", "--lookup"]).expect_err("none of bench");
        assert_eq!(
            elsewhere(&error).as_deref(),
            Some("--lookup is of the subcommand speculate: llm-demo speculate --lookup")
        );
        assert_eq!(elsewhere(&parse(&["--nothing"]).expect_err("unknown")), None);
        let error = parse(&["-n", "3", "bench"]).expect_err("none of bench");
        let message = "options follow the subcommand: llm-demo bench [OPTIONS]";
        assert_eq!(elsewhere(&error).as_deref(), Some(message));
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        for args in [
            &["--temp", "-1"][..],
            &["-p", "a", "-f", "b"],
            &["--top-p", "1.5"],
            &["-n", "0"],
            &["--device", "cuda"],
            &["--check=speed"],
            &["--check", "--trace", "x"],
            &["--lookup", "--draft", "x"],
            &["--lookup", "--draft-max", "32"],
            &["--lookup", "--engine", "stream"],
            &["--draft-always"],
            &["--draft", "x", "--session", "y"],
            &["--logit-bias", "a=1"],
            &["--repeat-penalty", "0"],
            &["-n", "3", "run"],
            &["chat", "--lookup", "--session", "x"],
            &["serve", "--session", "x"],
            &["serve", "--port", "70000"],
            &["serve", "--api-key", "a", "--api-key-file", "b"],
            &["serve", "--draft-max", "3"],
            &["bench", "--temp", "1"],
            &["bench", "-o", "xml"],
            &["bench", "-b", "2", "-d", "3"],
            &["bench", "-b", "33"],
            &["speculate"],
            &["speculate", "--lookup", "--trace", "x"],
            &["verify", "--greedy", "3", "--check"],
            &["verify", "--lookup"],
            &["logits", "x"],
            &["info", "-n", "3"],
            &["tune", "gemm"],
            &["profile", "-b", "2", "-n", "3"],
            &["predict", "--fit"],
            &["predict", "--against", "x", "--context", "3"],
            &["predict", "-b", "2", "-n", "3"],
            &["synthesize", "tiny-llama:q6_k"],
            &["completions", "sh"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let bench = parse(&["bench", "--pp", "128,512", "-n", "64,128", "-d", "0,256"]);
        let Ok(Command::Bench(bench)) = bench else { panic!("another command") };
        let lists = (bench.prompt, bench.generate, bench.depth);
        assert_eq!(lists, (vec![128, 512], vec![64, 128], vec![0, 256]));
        let Ok(Command::Verify(verify)) = parse(&["verify", "--check"]) else { panic!("another command") };
        assert_eq!(verify.checking.check, Some(Checks::all()));
    }
}
