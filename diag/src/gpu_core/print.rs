//! A core dump as text.

use std::io::{self, Write};

use super::{Core, Generator, Gpu, LaneView, Launch, Place, Stopped, WarpView};
use crate::hex::Hex;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, counted};

/// Values of a register in a line.
const COLUMNS: usize = 8;
/// Warps that are summarised; of more the number is told.
const SUMMARISED: usize = 16;

impl Report for Core {
    const SCHEMA: &'static str = "nvdiag.core/1";

    fn has_problem(&self) -> bool {
        let mut sms = self.devices.iter().flat_map(|gpu| &gpu.sms);
        sms.any(|sm| sm.exception.is_some() || sm.warps.iter().any(|warp| warp.failed))
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.generator {
            Some(generator) => generator.print(out)?,
            None => writeln!(out, "{HEADING}GPU core dump{HEADING:#}")?,
        }
        self.devices.iter().try_for_each(|gpu| gpu.print(out))?;
        if !self.has_problem() {
            writeln!(out, "no SM, warp or lane of this file has an exception")?;
        }
        Ok(())
    }
}

impl Generator {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let by = |what: &str, value: &Option<String>| {
            value.as_ref().map_or(String::new(), |value| format!(", {what} {value}"))
        };
        let name = if self.name.is_empty() { String::new() } else { format!(" by {}", self.name) };
        let versions = by("driver", &self.driver) + &by("CUDA", &self.cuda);
        let time = self.time.as_ref().map_or(String::new(), |time| format!(", {time}"));
        writeln!(out, "{HEADING}GPU core dump{name}{HEADING:#}{versions}{time}")
    }
}

fn axes([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

fn index([x, y, z]: [u32; 3]) -> String {
    format!("({x}, {y}, {z})")
}

impl Gpu {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { id, name, sm_type, sm_count, .. } = self;
        writeln!(out, "device {id}: {name}, {sm_type}, {}", counted((*sm_count).into(), "SM"))?;
        self.grids.iter().try_for_each(|grid| grid.print(out))?;
        for sm in &self.sms {
            sm.print(out)?;
        }
        let others = self.sms.iter().flat_map(|sm| sm.warps.iter().map(move |warp| (sm, warp)));
        let others: Vec<_> = others.filter(|(_, warp)| warp.lanes.is_empty()).collect();
        if !others.is_empty() {
            writeln!(out, "{HEADING}other warps{HEADING:#} {ASIDE}(-v shows them in full){ASIDE:#}")?;
        }
        for (sm, warp) in others.iter().take(SUMMARISED) {
            writeln!(
                out,
                "  SM {} warp {}, block {}: {} at {}",
                sm.sm,
                warp.warp,
                index(warp.block),
                counted(warp.valid.0.count_ones().into(), "lane"),
                warp.at.as_ref().map_or("an unknown pc".to_owned(), Place::name),
            )?;
        }
        match others.len().checked_sub(SUMMARISED) {
            None | Some(0) => Ok(()),
            Some(more) => writeln!(out, "  and {more} more"),
        }
    }
}

impl Launch {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let (grid, block) = (axes(self.grid), axes(self.block));
        let kernel =
            self.kernel.function.as_deref().map_or(self.kernel.pc.to_string(), crate::demangle::shown);
        writeln!(
            out,
            "grid {}: {kernel}, {grid} blocks of {block} threads, {} registers",
            self.id, self.registers
        )
    }
}

impl Place {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "  {NAME}at{NAME:#}           {} {ASIDE}(pc {}){ASIDE:#}", self.name(), self.pc)?;
        if let Some(instruction) = &self.instruction {
            writeln!(out, "  {NAME}instruction{NAME:#}  {instruction}")?;
        }
        for source in &self.source {
            source.print(out, "               ")?;
        }
        Ok(())
    }
}

impl Stopped {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let in_full: Vec<_> =
            self.warps.iter().filter(|warp| !warp.lanes.is_empty() || warp.failed).collect();
        if let Some(exception) = &self.exception {
            let number = match exception.code {
                u32::MAX => String::new(),
                code => format!(" (CUDA_EXCEPTION_{code})"),
            };
            writeln!(out, "{PROBLEM}SM {}: {}{PROBLEM:#}{number}", self.sm, exception.name)?;
            // A warp that failed says so itself.
            if let Some(at) = self.at.as_ref().filter(|_| !in_full.iter().any(|warp| warp.failed)) {
                at.print(out)?;
                writeln!(
                    out,
                    "  the file has no warp that failed: block, thread and registers are not known"
                )?;
            }
        }
        in_full.iter().try_for_each(|warp| warp.print(self.sm, out))
    }
}

impl WarpView {
    fn print(&self, sm: u32, out: &mut dyn Write) -> io::Result<()> {
        let state = match (&self.exception, self.trapped) {
            (Some(exception), _) => format!("{PROBLEM}{}{PROBLEM:#}", exception.name),
            (None, true) => format!("{PROBLEM}a breakpoint or a trap{PROBLEM:#}"),
            (None, false) if self.failed => format!("{PROBLEM}an error{PROBLEM:#}"),
            (None, false) => "did not fail".to_owned(),
        };
        let Self { warp, grid, block, .. } = self;
        writeln!(
            out,
            "{HEADING}SM {sm} warp {warp}{HEADING:#}, block {} of grid {grid}: {state}",
            index(*block)
        )?;
        if let Some(at) = &self.at {
            at.print(out)?;
        }
        for (level, place) in self.backtrace.iter().enumerate() {
            writeln!(out, "  {NAME}called by{NAME:#}    #{} {}", level + 1, place.name())?;
        }
        let mask = |mask: Hex| format!("{:#010x}", mask.0);
        writeln!(
            out,
            "  {NAME}lanes{NAME:#}        failed {}, active {}, valid {}",
            mask(self.failed_lanes),
            mask(self.active),
            mask(self.valid)
        )?;
        self.print_threads(out)?;
        self.print_registers(out)
    }

    /// The threads: of a whole warp the first and the last.
    fn print_threads(&self, out: &mut dyn Write) -> io::Result<()> {
        let threads = match self.lanes.as_slice() {
            [] => return Ok(()),
            [lane] => format!("{} in lane {}", index(lane.thread), lane.lane),
            [first, .., last] => format!(
                "{} in lane {} to {} in lane {}",
                index(first.thread),
                first.lane,
                index(last.thread),
                last.lane
            ),
        };
        writeln!(out, "  {NAME}threads{NAME:#}      {threads}")
    }

    fn print_registers(&self, out: &mut dyn Write) -> io::Result<()> {
        let most = |len: fn(&LaneView) -> usize| self.lanes.iter().map(len).max().unwrap_or(0);
        for register in 0..most(|lane| lane.registers.len()) {
            let value = |lane: &LaneView| lane.registers.get(register).map(|value| value.0);
            let values: Vec<_> = self.lanes.iter().map(|lane| (lane.lane, value(lane))).collect();
            print_row(out, &format!("R{register}"), &values)?;
        }
        for predicate in 0..most(|lane| lane.predicates.len()) {
            let holds = |lane: &&LaneView| lane.lane < 32 && lane.predicates.get(predicate) == Some(&true);
            let mask = self.lanes.iter().filter(holds).fold(0_u32, |mask, lane| mask | 1 << lane.lane);
            writeln!(out, "  {NAME}P{predicate:<4}{NAME:#} lanes {mask:#010x}")?;
        }
        // Of 63 most programs use a few.
        let used = self.uniform_registers.iter().enumerate().filter(|(_, value)| value.0 != 0);
        let used: Vec<_> = used.map(|(register, value)| format!("UR{register} {value}")).collect();
        if !used.is_empty() {
            writeln!(out, "  {NAME}uniform{NAME:#}      {}, others 0", used.join(", "))?;
        }
        let held = self.uniform_predicates.iter().enumerate().filter(|(_, holds)| **holds);
        let held: Vec<_> = held.map(|(predicate, _)| format!("UP{predicate}")).collect();
        if !held.is_empty() {
            writeln!(out, "  {NAME}true{NAME:#}         {}", held.join(", "))?;
        }
        Ok(())
    }
}

/// Prints the values of a register: one where all lanes have the same.
fn print_row(out: &mut dyn Write, name: &str, values: &[(u32, Option<u64>)]) -> io::Result<()> {
    let text = |value: Option<u64>| value.map_or("-".to_owned(), |value| format!("{value:#010x}"));
    let Some((_, first)) = values.first() else { return Ok(()) };
    if values.iter().all(|(_, value)| value == first) {
        let all = if values.len() == 1 { "" } else { " in all lanes" };
        return writeln!(out, "  {NAME}{name:<5}{NAME:#} {}{ASIDE}{all}{ASIDE:#}", text(*first));
    }
    for (line, chunk) in values.chunks(COLUMNS).enumerate() {
        let name = if line == 0 { name } else { "" };
        let row: Vec<_> = chunk.iter().map(|(_, value)| text(*value)).collect();
        let from = chunk.first().map_or(0, |(lane, _)| *lane);
        writeln!(out, "  {NAME}{name:<5}{NAME:#} {ASIDE}{from:>2}:{ASIDE:#} {}", row.join(" "))?;
    }
    Ok(())
}
