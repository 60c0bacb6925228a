//! Findings of programs that ran on the software GPU with its checks on, from the file that its machines wrote.
//!
//! ```
//! use nvdiag::Report;
//! use nvdiag::checked::{Checked, Ended, Records};
//!
//! let mut checked = Checked::new(vec!["./program".to_owned()], "race".parse()?);
//! checked.add(None, Ended::Exited(0), &Records::read(b""));
//! assert!(!checked.has_problem() && checked.launches() == 0);
//! # Ok::<(), ga10b_sim::UnknownCheck>(())
//! ```

mod print;
mod records;

pub use records::Records;

use ga10b_sim::{Checks, Event, FaultPlace, Finding, Record};
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::demangle::demangled;
use crate::hex::Hex;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// The exit code that stands for it, as shells have it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code as u8,
            Self::Signal(signal) => 128_u8.wrapping_add(signal as u8),
        }
    }
}

/// One run of the program.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Seed of the random order, if it was one.
    pub seed: Option<u64>,
    /// How it ended.
    pub ended: Ended,
    /// Launches of its software GPUs.
    pub launches: u64,
    /// Lines of the file that could not be read.
    pub unreadable_lines: u64,
}

/// An access or another instruction.
#[derive(Clone, Debug, Serialize)]
pub struct Access {
    /// The instruction, or the name of another access.
    pub what: String,
    /// Its address; absent for other accesses.
    pub pc: Option<Hex>,
    /// Its offset in the kernel that the finding is of.
    pub offset: Option<Hex>,
    /// File and line.
    pub source: Option<String>,
    /// The thread's block.
    pub block: Option<[u32; 3]>,
    /// The thread in its block.
    pub thread: Option<[u32; 3]>,
}

impl Access {
    /// The event of a kernel whose code begins at `program`.
    fn of(event: &Event, program: u64, is_of_kernel: bool) -> Self {
        let is_instruction = event.pc != 0;
        // Code of other kernels lies elsewhere.
        let offset = event.pc.checked_sub(program).filter(|_| is_instruction && program != 0 && is_of_kernel);
        Self {
            what: event.sass.clone(),
            pc: is_instruction.then_some(Hex(event.pc)),
            offset: offset.map(Hex),
            source: event.source.clone(),
            block: is_instruction.then_some(event.block),
            thread: is_instruction.then_some(event.thread),
        }
    }
}

/// A mistake.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The check that found it; `fault` for one that stopped a launch, `call` for a call that a real machine
    /// does not survive.
    pub check: String,
    /// The mistake.
    pub text: String,
    /// More of it: the missing order, the consequence; may be empty.
    pub detail: String,
    /// The kernel, as its source spells it, where it is known.
    pub kernel: Option<String>,
    /// The instruction, with its thread.
    pub at: Option<Access>,
    /// The address it is about: of global memory, or an offset in shared or local memory.
    pub address: Option<Hex>,
    /// The buffer at the address, or the nearest one.
    pub location: Option<String>,
    /// The other access.
    pub other: Option<Access>,
    /// How often the same instruction did it, in all runs.
    pub count: u64,
    /// Seeds of the runs that have it.
    pub seeds: Vec<u64>,
    /// The process that it was noticed in first.
    pub pid: u32,
}

impl Found {
    fn of(pid: u32, finding: &Finding) -> Self {
        let Finding {
            check, text, detail, program, kernel, event, address, location, earlier, count, ..
        } = finding;
        let mangled = kernel.as_deref();
        Self {
            check: check.to_string(),
            text: text.clone(),
            detail: detail.clone(),
            kernel: mangled.map(|name| demangled(name).unwrap_or_else(|| name.to_owned())),
            at: Some(Access::of(event, *program, true)),
            address: address.map(Hex),
            location: location.as_ref().map(ToString::to_string),
            // The other work of two that nothing orders may be another kernel.
            other: earlier.as_ref().map(|other| Access::of(other, *program, *check != Checks::ORDER)),
            count: *count,
            seeds: Vec::new(),
            pid,
        }
    }

    fn of_fault(pid: u32, place: &FaultPlace) -> Self {
        let FaultPlace { error, program, kernel, event } = place;
        let kernel = kernel.as_deref().map(|name| demangled(name).unwrap_or_else(|| name.to_owned()));
        let at = Some(Access::of(event, *program, true));
        Self { kernel, at, ..Self::bare(pid, "fault", error, String::new()) }
    }

    fn bare(pid: u32, check: &str, text: &str, detail: String) -> Self {
        Self {
            check: check.to_owned(),
            text: text.to_owned(),
            detail,
            kernel: None,
            at: None,
            address: None,
            location: None,
            other: None,
            count: 1,
            seeds: Vec::new(),
            pid,
        }
    }

    /// Whether it is the same mistake, of another run or process: addresses may differ.
    fn is_same(&self, other: &Self) -> bool {
        let place = |found: &Self| {
            found.at.as_ref().map(|at| (at.what.clone(), at.offset.map(|offset| offset.0), at.source.clone()))
        };
        (&self.check, &self.kernel) == (&other.check, &other.kernel)
            && self.text == other.text
            && place(self) == place(other)
    }
}

/// All that was found in one or several runs of a program.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The command line.
    pub command: Vec<String>,
    /// Checks that were on, as a list.
    pub checks: Checks,
    /// Its runs.
    pub runs: Vec<Run>,
    /// Mistakes, each counted once.
    pub errors: usize,
    /// The mistakes, in the order in which they were noticed first.
    pub findings: Vec<Found>,
}

impl Checked {
    /// A program that has not run yet.
    #[must_use]
    pub fn new(command: Vec<String>, checks: Checks) -> Self {
        Self { command, checks, runs: Vec::new(), errors: 0, findings: Vec::new() }
    }

    /// Adds a run, and what its machines left.
    pub fn add(&mut self, seed: Option<u64>, ended: Ended, records: &Records) {
        let (mut launches, mut ended_launches, mut is_told) = (0, 0, false);
        for record in &records.all {
            is_told |= matches!(record, Record::Fault { .. });
            let found = match record {
                Record::Launch { count, .. } => {
                    launches += count;
                    continue;
                }
                Record::Ended { count, .. } => {
                    ended_launches += count;
                    continue;
                }
                Record::Finding { pid, finding } => Found::of(*pid, finding),
                Record::Fault { found: true, .. } => continue,
                Record::Fault { pid, place: Some(place), .. } => Found::of_fault(*pid, place),
                Record::Fault { pid, text, .. } => Found::bare(*pid, "fault", text, String::new()),
                Record::Call { pid, call, text, consequence } => {
                    Found::bare(*pid, "call", &format!("{call}: {text}"), consequence.clone())
                }
                _ => continue,
            };
            self.add_found(seed, found);
        }
        // A user who interrupts it ends its launches too.
        let is_interrupted = [Signal::SIGINT, Signal::SIGTERM].map(|signal| Ended::Signal(signal as i32));
        if launches > ended_launches && !is_told && !is_interrupted.contains(&ended) {
            let unfinished = launches - ended_launches;
            let text = match unfinished {
                1 => "a launch had not ended when the program did".to_owned(),
                _ => format!("{unfinished} launches had not ended when the program did"),
            };
            let advice = "the program waits too briefly or not at all, or a kernel has no end".to_owned();
            self.add_found(seed, Found::bare(0, "fault", &text, advice));
        }
        self.errors = self.findings.len();
        self.runs.push(Run { seed, ended, launches, unreadable_lines: records.unreadable });
    }

    fn add_found(&mut self, seed: Option<u64>, mut found: Found) {
        match self.findings.iter_mut().find(|known| known.is_same(&found)) {
            Some(known) => {
                known.count += found.count;
                known.seeds.extend(seed.filter(|seed| !known.seeds.contains(seed)));
            }
            None => {
                found.seeds.extend(seed);
                self.findings.push(found);
            }
        }
    }

    /// Launches in all runs.
    #[must_use]
    pub fn launches(&self) -> u64 {
        self.runs.iter().map(|run| run.launches).sum()
    }

    /// The code of the first run that did not end with 0.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.runs.iter().map(|run| run.ended.code()).find(|code| *code != 0).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    fn event(pc: u64, thread: u32) -> Event {
        let (block, thread, source) = ([1, 0, 0], [thread, 0, 0], Some("sum.cu:9".to_owned()));
        Event { pc, sass: "STS [R9], R4".to_owned(), block, thread, source }
    }

    fn finding(program: u64, count: u64) -> Finding {
        Finding {
            check: Checks::RACE,
            text: "writes shared memory that another warp accesses".to_owned(),
            detail: String::new(),
            program,
            kernel: Some("_Z3sumPf\u{1b}[2J".to_owned()),
            event: event(program + 0x240, 32),
            address: Some(0x80),
            location: None,
            earlier: Some(event(program + 0x1f0, 0)),
            count,
        }
    }

    /// The lines of a machine that found these.
    fn records(findings: &[Finding], launches: u64) -> Records {
        let line = |record: &Record, count: u64| {
            let text = serde_json::to_string(record).expect("JSON");
            format!("{},\"count\":{count:>20}}}\n", text.strip_suffix('}').expect("an object"))
        };
        let launch = Record::Launch { pid: 7, sm: 87, checks: Checks::RACE, count: launches };
        let lines = findings
            .iter()
            .map(|it| line(&Record::Finding { pid: 7, finding: Box::new(it.clone()) }, it.count));
        let ended = line(&Record::Ended { pid: 7, count: launches }, launches);
        let text: String = lines.chain([line(&launch, launches), ended]).collect();
        Records::read(text.as_bytes())
    }

    fn text(checked: &Checked) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        checked.print(&mut out).expect("memory takes everything");
        String::from_utf8(out.into_inner()).expect("reports are UTF-8")
    }

    #[test]
    fn runs_with_several_seeds_are_one_report() {
        let mut checked = Checked::new(vec!["./sum".to_owned()], Checks::RACE);
        checked.add(Some(1), Ended::Exited(0), &records(&[finding(0x1000, 3)], 2));
        checked.add(Some(2), Ended::Signal(11), &records(&[], 1));
        checked.add(Some(3), Ended::Exited(1), &records(&[finding(0x9000, 4)], 2));
        assert_eq!((checked.errors, checked.launches(), checked.code()), (1, 5, 139));
        let found = &checked.findings[0];
        assert_eq!((found.count, found.seeds.as_slice()), (7, [1, 3].as_slice()));
        let shown = text(&checked);
        for line in [
            "========= race: writes shared memory that another warp accesses\n",
            "=========     at 0x240 in _Z3sumPf\u{fffd}[2J: STS [R9], R4\n",
            "=========     in sum.cu:9\n",
            "=========     by thread (32,0,0) in block (1,0,0)\n",
            "=========     address 0x80\n",
            "=========     the other access: at 0x1f0: STS [R9], R4\n",
            "=========     7 times, with seeds 1 and 3 of 3 seeds\n",
            "========= with seed 2 the program was ended by signal 11 (SIGSEGV)\n",
            "========= ERROR SUMMARY: 1 error\n",
        ] {
            assert!(shown.contains(line), "{line:?}: {shown}");
        }
        assert!(shown.lines().all(|line| line.starts_with("=========")), "{shown}");
    }

    #[test]
    fn a_program_without_a_launch_was_not_checked() {
        let mut checked = Checked::new(vec!["true".to_owned()], Checks::all());
        checked.add(None, Ended::Exited(0), &Records::read(b""));
        let shown = text(&checked);
        assert!(shown.contains("========= no launch was seen: nothing was checked\n"), "{shown}");
        assert!(shown.ends_with("========= ERROR SUMMARY: 0 errors\n"), "{shown}");
    }

    #[test]
    fn faults_and_calls_are_mistakes_too_and_torn_lines_are_told() {
        let mut checked = Checked::new(vec!["./x".to_owned()], Checks::all());
        let lines = b"{\"record\":\"fault\",\"pid\":7,\"text\":\"an error\",\"count\":   1}\n\
            {\"record\":\"fault\",\"pid\":7,\"text\":\"of a finding\",\"found\":true,\"count\":   1}\n\
            {\"record\":\"call\",\"pid\":7,\"call\":\"mmap\",\"text\":\"a mistake\",\"consequence\":\"a freeze\",\"count\":1}\n\
            {\"record\":\"find";
        checked.add(None, Ended::Exited(0), &Records::read(lines));
        assert_eq!((checked.errors, checked.runs[0].unreadable_lines), (2, 1));
        let shown = text(&checked);
        for line in [
            "========= fault: an error\n",
            "========= call: mmap: a mistake\n=========     a freeze\n",
            "========= 1 line of findings could not be read\n",
        ] {
            assert!(shown.contains(line), "{line:?}: {shown}");
        }
        let document = checked.json().expect("JSON");
        assert_eq!((&document["schema"], &document["errors"]), (&"nvdiag.check/1".into(), &2.into()));
        assert_eq!(document["runs"][0]["ended"]["exited"], 0);
    }

    #[test]
    fn a_fault_has_its_place_and_a_launch_that_had_not_ended_is_one() {
        let place = FaultPlace {
            error: "the SM stopped the launch: ILLEGAL_INSTR_ENCODING".to_owned(),
            program: 0x1000,
            kernel: Some("_Z4trapv".to_owned()),
            event: event(0x1180, 33),
        };
        let fault = Record::Fault {
            pid: 7,
            text: "at pc 0x1180".to_owned(),
            found: false,
            place: Some(Box::new(place)),
        };
        let launch = Record::Launch { pid: 7, sm: 87, checks: Checks::RACE, count: 0 };
        let lines = |all: &[(&Record, u64)]| {
            let line = |(record, count): &(&Record, u64)| {
                let text = serde_json::to_string(record).expect("JSON");
                format!("{},\"count\":{count:>20}}}\n", text.strip_suffix('}').expect("an object"))
            };
            Records::read(all.iter().map(line).collect::<String>().as_bytes())
        };
        let errors = |records: &Records, ended: Ended| {
            let mut checked = Checked::new(vec!["./x".to_owned()], Checks::all());
            checked.add(None, ended, records);
            text(&checked)
        };
        let shown = errors(&lines(&[(&launch, 1), (&fault, 1)]), Ended::Exited(1));
        for line in [
            "fault: the SM stopped the launch: ",
            "at 0x180 in trap(): ",
            "in sum.cu:9",
            "by thread (33,0,0)",
            "1 error\n",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        let unfinished = lines(&[(&launch, 3), (&Record::Ended { pid: 7, count: 0 }, 1)]);
        assert!(errors(&unfinished, Ended::Exited(0)).contains("fault: 2 launches had not ended"));
        assert!(errors(&unfinished, Ended::Signal(2)).ends_with("SUMMARY: 0 errors\n"), "the user ended it");
    }
}
