//! Address maps as text.

use std::io::{self, Write};

use crate::address_map::bars::{Cell, bars};
use crate::address_map::{AddressMap, BufferObject, Severity};
use crate::hex::Hex;
use crate::page_table::walk::Directory;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, counted};
use crate::size::size;

/// Columns of a bar.
const COLUMNS: usize = 56;
/// Holes that are listed, largest first.
const LISTED_HOLES: usize = 8;

impl Report for AddressMap {
    const SCHEMA: &'static str = "nvdiag.vamap/1";

    fn has_problem(&self) -> bool {
        self.remarks.iter().any(|remark| remark.severity == Severity::Problem)
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADING}{}{HEADING:#}", self.title())?;
        for window in &self.windows {
            let (base, len) = (window.base, size(window.size_bytes));
            writeln!(out, "  {NAME}window   {NAME:#} {base:<14} {len:>10}  {}", window.name)?;
        }
        for (what, ranges) in [("region", &self.regions), ("reserved", &self.reservations)] {
            for range in ranges {
                let pages =
                    range.page_bytes.map_or(String::new(), |bytes| format!(", {} pages", size(bytes)));
                let (va, len) = (range.va, size(range.size_bytes));
                writeln!(out, "  {NAME}{what:<9}{NAME:#} {va:<14} {len:>10}  {}{pages}", range.name)?;
            }
        }
        self.print_bars(out)?;
        writeln!(out, "{HEADING}Mappings{HEADING:#}")?;
        if self.mappings.is_empty() {
            writeln!(out, "  {ASIDE}nothing is mapped{ASIDE:#}")?;
        }
        for mapping in &self.mappings {
            writeln!(out, "  {:<14} {:>10}  {}", mapping.va, size(mapping.size_bytes), mapping.describe())?;
        }
        if !self.untold.is_empty() {
            writeln!(out, "  {ASIDE}not reported by the driver: {}{ASIDE:#}", self.untold.join(", "))?;
        }
        self.print_holes(out)?;
        self.print_totals(out)?;
        Self::print_buffers(&self.buffers, out)?;
        if let Some(tables) = &self.tables {
            let (count, bytes) = (counted(tables.tables as u64, "table"), size(tables.table_bytes));
            writeln!(out, "{HEADING}Page tables: {count}, {bytes}{HEADING:#}")?;
            for root in &tables.tree {
                print_tree(root, 1, out)?;
            }
        }
        for remark in &self.remarks {
            match remark.severity {
                Severity::Problem => writeln!(out, "{PROBLEM}problem:{PROBLEM:#} {}", remark.text)?,
                Severity::Advice => writeln!(out, "{HEADING}advice:{HEADING:#} {}", remark.text)?,
            }
        }
        Ok(())
    }
}

impl AddressMap {
    pub(super) fn print_buffers(buffers: &[BufferObject], out: &mut dyn Write) -> io::Result<()> {
        if !buffers.is_empty() {
            writeln!(out, "{HEADING}Buffers of the process{HEADING:#}")?;
        }
        for buffer in buffers {
            let len = buffer.size_bytes.map_or("?".to_owned(), size);
            writeln!(out, "  fd {:<5} {len:>10}  {}", buffer.fd, buffer.name.as_deref().unwrap_or(""))?;
        }
        Ok(())
    }

    fn print_bars(&self, out: &mut dyn Write) -> io::Result<()> {
        let bars = bars(self);
        if bars.is_empty() {
            return Ok(());
        }
        let legend = "(# mapped, + in part, w window, ! mapped in a window)";
        writeln!(out, "{HEADING}Map{HEADING:#} {ASIDE}{legend}{ASIDE:#}")?;
        let mut end = None;
        for bar in bars {
            if let Some(gap) = end.map(|end| bar.start - end) {
                writeln!(out, "  {ASIDE}{:>14} {:>10}{ASIDE:#}", "gap of", size(gap))?;
            }
            end = Some(bar.end);
            let cell = |cell: Cell| match cell.window {
                _ if cell.trapped => '!',
                true => 'w',
                false if cell.mapped > 0.99 => '#',
                false if cell.mapped > 0.0 => '+',
                false => '.',
            };
            let cells: String = bar.cells(self, COLUMNS).into_iter().map(cell).collect();
            let what = match bar.mappings {
                0 => String::new(),
                1 => " 1 mapping".to_owned(),
                n => format!(" {n} mappings, {} %", (bar.mapped as f64 * 100.0 / bar.len() as f64).round()),
            };
            writeln!(out, "  {:<14} {:>10} [{cells}]{what}", Hex(bar.start), size(bar.len()))?;
        }
        Ok(())
    }

    fn print_holes(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut holes: Vec<_> = self.holes.iter().collect();
        holes.sort_by_key(|hole| std::cmp::Reverse(hole.size_bytes));
        if holes.is_empty() {
            return Ok(());
        }
        writeln!(out, "{HEADING}Holes{HEADING:#} {ASIDE}(largest first){ASIDE:#}")?;
        for hole in holes.iter().take(LISTED_HOLES) {
            let reserved = if hole.reserved { "  reserved" } else { "" };
            writeln!(out, "  {:<14} {:>10}{reserved}", hole.va, size(hole.size_bytes))?;
        }
        match holes.len() {
            n if n > LISTED_HOLES => writeln!(out, "  {ASIDE}and {} smaller ones{ASIDE:#}", n - LISTED_HOLES),
            _ => Ok(()),
        }
    }

    fn print_totals(&self, out: &mut dyn Write) -> io::Result<()> {
        let totals = &self.totals;
        writeln!(out, "{HEADING}Totals{HEADING:#}")?;
        let mut row = |name: &str, value: String| writeln!(out, "  {NAME}{name:<14}{NAME:#} {value}");
        let pages: Vec<_> = totals
            .by_page_bytes
            .iter()
            .filter(|(page, _)| *page != 0)
            .map(|(page, bytes)| format!("{} in {} pages", size(*bytes), size(*page)))
            .collect();
        let pages = if pages.is_empty() { String::new() } else { format!(": {}", pages.join(", ")) };
        row(
            "mapped",
            format!(
                "{} in {}{pages}",
                size(totals.mapped_bytes),
                counted(self.mappings.len() as u64, "mapping")
            ),
        )?;
        if totals.reserved_bytes > 0 {
            row("reserved", size(totals.reserved_bytes))?;
        }
        row(
            "free",
            format!(
                "{} in {}, the largest {}; {} % of it elsewhere",
                size(totals.free_bytes),
                counted(self.holes.len() as u64, "hole"),
                size(totals.largest_hole_bytes),
                totals.fragmentation_percent
            ),
        )
    }
}

fn print_tree(directory: &Directory, depth: usize, out: &mut dyn Write) -> io::Result<()> {
    let (level, used) = (directory.level.name(), directory.used);
    let entries = directory.level.entries();
    writeln!(
        out,
        "{:indent$}{NAME}{level}{NAME:#} at {} for {}: {used} of {entries} entries used",
        "",
        directory.address,
        directory.va,
        indent = depth * 2
    )?;
    directory.tables.iter().try_for_each(|table| print_tree(table, depth + 1, out))
}
