//! `nvdiag man`: manual pages, made from the same definition as the command line itself.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;

use crate::cmd::finding::Finding;

/// Write the manual pages, one for each command, into a folder; prints the path of the first, nvdiag.1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag man ~/.local/share/man/man1

Exit codes: 0 written; 2 bad usage, or they cannot be written.")]
pub struct Args {
    /// The folder; made if it is not there, with those above it.
    folder: PathBuf,
}

impl Args {
    /// Writes the pages of `command` and says where.
    pub fn run(&self, command: clap::Command, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        anyhow::ensure!(!json, "--json: manual pages have no JSON form");
        let cannot = || format!("cannot write manual pages to {}", self.folder.display());
        std::fs::create_dir_all(&self.folder).with_context(cannot)?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let pages = command.get_subcommands().filter(|page| !page.is_hide_set()).chain([&command]);
        for page in pages {
            let (name, text) = page_of(page).with_context(cannot)?;
            std::fs::write(self.folder.join(name), text).with_context(cannot)?;
        }
        writeln!(out, "{}", self.folder.join("nvdiag.1").display())?;
        Ok(Finding::Clean)
    }
}

/// A page: its file's name, and its text.
fn page_of(command: &clap::Command) -> io::Result<(String, Vec<u8>)> {
    let usage = command.clone().render_usage().to_string();
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    writeln!(text, ".SH SYNOPSIS\n{}", synopsis(command, &usage))?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    page.render_extra_section(&mut text)?;
    page.render_version_section(&mut text)?;
    Ok((page.get_filename(), text))
}

/// The usage with every option and its values, and every subcommand, in place of `[OPTIONS]` and `<COMMAND>`.
fn synopsis(command: &clap::Command, usage: &str) -> String {
    let usage = usage.trim_start_matches("Usage: ");
    let is_new = |arg: &&clap::Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let is_used = |long: &String| usage.split(['<', '>', '|', '[', ']', ' ']).any(|word| word == long);
        !arg.is_positional() && !arg.is_hide_set() && !long.as_ref().is_some_and(is_used)
    };
    let option = |arg: &clap::Arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        let names: Vec<_> = short.into_iter().chain(long).collect();
        let values = arg.get_value_names().filter(|_| arg.get_action().takes_values()).unwrap_or_default();
        let values: String = values.iter().map(|name| format!(" {name}")).collect();
        format!("[{}{values}]", names.join("|"))
    };
    let options: Vec<_> = command.get_arguments().filter(is_new).map(option).collect();
    let commands: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
    let usage = usage.replace("[OPTIONS]", &options.join(" "));
    let usage = usage.replace("<COMMAND>", &format!("{} [OPTIONS]", commands.join("|")));
    // A hyphen would be printed as a sign of its own, and a period at the beginning be a request.
    usage.lines().map(|line| format!("{}\n", line.trim().replace('-', "\\-"))).collect()
}
