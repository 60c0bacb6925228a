//! A trace as a time line, in the trace-event format that Perfetto (<https://ui.perfetto.dev>) and Chrome
//! display: a row for each thread with its calls, a row for each queue with its work, and an arrow from each
//! release of a semaphore to the acquire that waited for it.
//!
//! Calls have their times. Of work the order is known and the time of its submission: a slice starts there, or
//! behind the work before it, and is [`WIDTH_NS`] wide; a queue that waits goes on at the release. Format:
//! "Trace Event Format", the JSON array form, of the Chromium project.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::demangle::shown;
use crate::trace::decode::decode;
use crate::trace::event::{Call, Event};
use crate::trace::submission::{Decoded, DecodedLaunch, Semaphore, Submission, Submissions, Work};

/// Width of a slice of work, whose duration is not known.
const WIDTH_NS: u64 = 1000;
/// Numbers of rows of queues: above every thread's.
const QUEUES: i64 = 1 << 30;

/// A place on the time line.
#[derive(Clone, Copy, Debug)]
struct Place {
    row: i64,
    ns: u64,
}

/// The work of a queue that is not placed yet.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(u64, Work)>,
    /// End of the last slice.
    end_ns: u64,
}

/// Writes a trace as a time line.
#[derive(Debug, Default)]
pub struct Timeline {
    submissions: Submissions,
    /// By process and number.
    queues: BTreeMap<(i32, u32), Queue>,
    /// The releases so far, by process and address, then payload.
    releases: BTreeMap<(i32, u64), BTreeMap<u64, Place>>,
    threads: HashSet<i32>,
    arrows: u64,
    is_begun: bool,
}

impl Timeline {
    /// Adds an event.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn event(&mut self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        let Call::Submission(submission) = &event.call else { return self.call(event, out) };
        let decoded = self.submissions.decode(event.pid, submission);
        self.add(event, submission, decoded, out)?;
        self.advance(false, out)
    }

    /// Writes the work of queues that still wait, and the end.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.advance(true, out)?;
        if !self.is_begun {
            write!(out, "[")?;
        }
        writeln!(out, "\n]")
    }

    fn write(&mut self, value: &Value, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{}\n{value}", if self.is_begun { "," } else { "[" })?;
        self.is_begun = true;
        Ok(())
    }

    fn name(&mut self, pid: i32, row: i64, name: &str, out: &mut dyn Write) -> io::Result<()> {
        let name =
            json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": row, "args": { "name": name } });
        self.write(&name, out)
    }

    fn call(&mut self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        if self.threads.insert(event.tid) {
            self.name(event.pid, event.tid.into(), &format!("thread {}", event.tid), out)?;
        }
        let (call, node) = event.call.name();
        let name = decode(event).map_or_else(
            || call.to_owned(),
            |decoded| decoded.name + &decoded.about.map_or(String::new(), |about| format!(" {about}")),
        );
        let args = json!({ "node": node, "result": event.result });
        let length = event.duration_ns.unwrap_or(0);
        self.slice(event.pid, Place { row: event.tid.into(), ns: event.start_ns }, length, &name, &args, out)
    }

    fn slice(
        &mut self,
        pid: i32,
        place: Place,
        length_ns: u64,
        name: &str,
        args: &Value,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let slice = json!({ "ph": "X", "name": name, "pid": pid, "tid": place.row, "ts": us(place.ns),
            "dur": us(length_ns), "args": args });
        self.write(&slice, out)
    }

    fn add(
        &mut self,
        event: &Event,
        submission: &Submission,
        decoded: Decoded,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let number = submission.channel.number;
        if !self.queues.contains_key(&(event.pid, number)) {
            let name = format!("queue {number} ({})", decoded.class_name.unwrap_or("a channel"));
            self.name(event.pid, QUEUES + i64::from(number), &name, out)?;
        }
        let queue = self.queues.entry((event.pid, number)).or_default();
        let work = decoded.entries.into_iter().flat_map(|entry| entry.work);
        queue.waiting.extend(work.map(|work| (event.start_ns, work)));
        Ok(())
    }

    /// Places the work of all queues, up to acquires whose release has not come. With `all`, these too.
    fn advance(&mut self, all: bool, out: &mut dyn Write) -> io::Result<()> {
        let keys: Vec<(i32, u32)> = self.queues.keys().copied().collect();
        loop {
            let mut has_placed = false;
            for key in &keys {
                while self.next(*key, false, out)? {
                    has_placed = true;
                }
            }
            // A semaphore that the CPU or another process releases: the first that waits goes on.
            if !has_placed && all {
                for key in &keys {
                    has_placed = has_placed || self.next(*key, true, out)?;
                }
            }
            if !has_placed {
                return Ok(());
            }
        }
    }

    /// Places the next work of a queue; whether there was some that does not wait.
    fn next(&mut self, key: (i32, u32), even_waiting: bool, out: &mut dyn Write) -> io::Result<bool> {
        let (pid, number) = key;
        let Some(queue) = self.queues.get_mut(&key) else { return Ok(false) };
        let Some((submitted, work)) = queue.waiting.front() else { return Ok(false) };
        let start = queue.end_ns.max(*submitted);
        let acquired = match work {
            Work::Semaphore(semaphore) if !is_release(semaphore) => {
                let by_payload = self.releases.get(&(pid, semaphore.address.0));
                let payload = semaphore.payload.0;
                // Timelines only grow: the first release that is enough is the one that was waited for.
                let found = by_payload.and_then(|all| match semaphore.operation.ends_with("GEQ") {
                    true => all.range(payload..).next().map(|(_, place)| *place),
                    false => all.get(&payload).copied(),
                });
                if found.is_none() && !even_waiting {
                    return Ok(false);
                }
                found
            }
            _ => None,
        };
        let Some((_, work)) = queue.waiting.pop_front() else { return Ok(false) };
        let length = acquired.map_or(0, |from| from.ns.saturating_sub(start)) + WIDTH_NS;
        queue.end_ns = start + length;
        let place = Place { row: QUEUES + i64::from(number), ns: start };
        for (address, payload) in released(&work) {
            self.releases.entry((pid, address)).or_default().insert(payload, place);
        }
        let (name, args) = slice_of(&work);
        self.slice(pid, place, length, &name, &args, out)?;
        if let Some(from) = acquired {
            self.arrows += 1;
            let arrow = |ph: &str, at: Place| {
                json!({ "ph": ph, "id": self.arrows, "bp": "e", "name": "fence", "cat": "fence", "pid": pid,
                    "tid": at.row, "ts": us(at.ns) })
            };
            let end = Place { ns: start + length - WIDTH_NS / 2, ..place };
            for end in [arrow("s", from), arrow("f", end)] {
                self.write(&end, out)?;
            }
        }
        Ok(true)
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn is_release(semaphore: &Semaphore) -> bool {
    !semaphore.operation.starts_with("ACQ")
}

/// Addresses and payloads that a piece of work releases.
fn released(work: &Work) -> Vec<(u64, u64)> {
    match work {
        Work::Semaphore(semaphore) if is_release(semaphore) => {
            vec![(semaphore.address.0, semaphore.payload.0)]
        }
        Work::Launch(launch) => {
            let described = launch.qmd.as_ref().and_then(|qmd| qmd.launch.as_ref());
            let releases = described.into_iter().flat_map(|launch| &launch.releases);
            releases.map(|release| (release.address.0, release.payload.0)).collect()
        }
        _ => Vec::new(),
    }
}

/// Name and arguments of a slice.
fn slice_of(work: &Work) -> (String, Value) {
    match work {
        Work::Launch(launch) => {
            let DecodedLaunch { address, qmd, kernel, arguments, arguments_size_bytes, .. } = &**launch;
            let name = kernel.as_ref().map_or_else(|| "launch".to_owned(), |name| shown(name));
            let what = qmd.as_ref().and_then(|qmd| qmd.launch.as_ref());
            let args = json!({ "grid": what.map(|launch| launch.grid), "block": what.map(|launch| launch.block),
                "shared_bytes": what.map(|launch| launch.shared_bytes), "program": what.map(|l| l.program),
                "arguments": arguments, "arguments_size_bytes": arguments_size_bytes, "qmd": address });
            (name, args)
        }
        Work::Copy(copy) => {
            let name = match (copy.from, copy.fill) {
                (_, Some(_)) => "fill",
                (None, None) => "upload",
                _ => "copy",
            };
            (name.to_owned(), json!(copy))
        }
        Work::Semaphore(semaphore) => {
            let what = if is_release(semaphore) { "release" } else { "acquire" };
            (format!("{what} {}", semaphore.payload), json!(semaphore))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::Hex;

    fn semaphore(operation: &'static str, payload: u64) -> Work {
        let (address, payload) = (Hex(0x1000), Hex(payload));
        Work::Semaphore(Semaphore { unit: "host", operation, address, payload, options: Vec::new() })
    }

    /// The events of a time line of queues, each with its work and the time of its submission.
    fn placed(queues: [Vec<(u64, Work)>; 2]) -> Vec<Value> {
        let (mut line, mut out) = (Timeline::default(), Vec::new());
        for (number, work) in (1..).zip(queues) {
            line.queues.insert((7, number), Queue { waiting: work.into(), end_ns: 0 });
        }
        line.advance(false, &mut out).expect("memory takes everything");
        line.finish(&mut out).expect("memory takes everything");
        serde_json::from_slice(&out).expect("a JSON document")
    }

    fn row(events: &[Value], queue: i64) -> Vec<(String, f64, f64)> {
        let slices = events.iter().filter(|event| event["ph"] == "X" && event["tid"] == QUEUES + queue);
        let number = |value: &Value| value.as_f64().expect("a number");
        slices
            .map(|slice| {
                (slice["name"].as_str().unwrap_or("").to_owned(), number(&slice["ts"]), number(&slice["dur"]))
            })
            .collect()
    }

    #[test]
    fn a_queue_that_waits_goes_on_at_the_release_and_an_arrow_joins_both() {
        let waits = vec![(1000, semaphore("ACQ_STRICT_GEQ", 5)), (1000, semaphore("RELEASE", 9))];
        let releases = vec![(2000, semaphore("RELEASE", 4)), (8000, semaphore("RELEASE", 6))];
        let events = placed([waits, releases]);
        let name = |text: &str| text.to_owned();
        assert_eq!(row(&events, 1), [(name("acquire 0x5"), 1.0, 8.0), (name("release 0x9"), 9.0, 1.0)]);
        assert_eq!(row(&events, 2), [(name("release 0x4"), 2.0, 1.0), (name("release 0x6"), 8.0, 1.0)]);
        let arrows: Vec<_> = events.iter().filter(|event| event["cat"] == "fence").collect();
        let ends: Vec<_> = arrows.iter().map(|end| (&end["ph"], &end["tid"], end["ts"].as_f64())).collect();
        assert_eq!(
            ends,
            [(&json!("s"), &json!(QUEUES + 2), Some(8.0)), (&json!("f"), &json!(QUEUES + 1), Some(8.5))]
        );
        assert_eq!(arrows[0]["id"], arrows[1]["id"]);
    }

    #[test]
    fn what_nobody_here_releases_is_placed_at_the_end_without_an_arrow() {
        let waits = vec![(1000, semaphore("ACQUIRE", 5)), (1000, semaphore("RELEASE", 9))];
        let events = placed([waits, vec![(0, semaphore("RELEASE", 6))]]);
        assert_eq!(row(&events, 1).len(), 2);
        assert!(events.iter().all(|event| event["cat"] != "fence"), "{events:?}");
        let empty = placed([Vec::new(), Vec::new()]);
        assert!(empty.is_empty());
    }
}
