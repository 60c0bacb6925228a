//! The requests of hcq beside those that ran on other people's Orin (`hcq/tests/data/field-requests.txt`): they
//! are the same, or differ as `field-differences.txt` lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::fd::RawFd;
use std::time::Duration;

use hcq::{Device, DeviceOptions};

use super::spy::{Call, Spy, words};

const REQUESTS: &str = include_str!("../../data/field-requests.txt");
const DIFFERENCES: &str = include_str!("../../data/field-differences.txt");

/// Arguments that are compared, with the number of their 32-bit word.
const ARGUMENTS: &[(&str, &[(&str, usize)])] = &[
    ("NVGPU_GPU_IOCTL_GET_CHARACTERISTICS", &[("size", 0)]),
    (
        "NVGPU_GPU_IOCTL_ALLOC_AS",
        &[("big_page_size", 0), ("flags", 2), ("va_range_start", 4), ("va_range_end", 6)],
    ),
    ("NVGPU_GPU_IOCTL_OPEN_TSG", &[("flags", 1)]),
    ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", &[("type", 0), ("veid", 2)]),
    ("NVGPU_TSG_IOCTL_BIND_CHANNEL_EX", &[("subcontext_id", 1)]),
    ("NVGPU_IOCTL_CHANNEL_WDT", &[("wdt_status", 0), ("timeout_ms", 1)]),
    (
        "NVGPU_IOCTL_CHANNEL_SETUP_BIND",
        &[("num_gpfifo_entries", 0), ("num_inflight_jobs", 1), ("flags", 2), ("work_submit_token", 5)],
    ),
    ("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX", &[("class_num", 0), ("flags", 1)]),
    ("NVGPU_AS_IOCTL_MAP_BUFFER_EX", &[("flags", 0), ("kinds", 1), ("page_size", 3)]),
];
/// Arguments of 64 bits among them.
const WIDE: [&str; 2] = ["va_range_start", "va_range_end"];
/// The tag of a buffer is in the upper half of its flags.
const TAG: u32 = 16;

/// A call: what is lined up with another's, and its arguments.
#[derive(Clone, Debug, Default)]
struct Event {
    key: String,
    arguments: BTreeMap<String, String>,
}

impl Event {
    fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), arguments: BTreeMap::new() }
    }

    fn set(&mut self, name: &str, value: u64) {
        self.arguments.insert(name.to_owned(), format!("{value:#x}"));
    }

    /// An object's class is part of what it is.
    fn named(mut self) -> Self {
        if let Some(class) = self.arguments.remove("class_num") {
            self.key += &format!(" {class}");
        }
        self
    }

    /// A line of the file.
    fn read(line: &str) -> Self {
        let (mut event, mut key) = (Self::default(), Vec::new());
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => drop(event.arguments.insert(name.to_owned(), value.to_owned())),
                None if word.contains('+') => drop(event.arguments.insert("by".into(), word.into())),
                None => key.push(word),
            }
        }
        event.key = key.join(" ");
        event.named()
    }
}

/// The traces of the file, by name.
fn field() -> BTreeMap<&'static str, Vec<Event>> {
    let mut traces = BTreeMap::new();
    let mut current: Option<&mut Vec<Event>> = None;
    for line in REQUESTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("trace ") {
            Some(name) => current = Some(traces.entry(name).or_default()),
            None => current.as_mut().expect("a trace begins").push(Event::read(line)),
        }
    }
    traces
}

/// The calls of hcq, in the file's terms. Buffers are named by what they turn out to be for.
fn ours(calls: &[Call], role_at: impl Fn(u64) -> &'static str) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    // The last buffer made, and the event of the buffer behind each descriptor, and of its mapping by the CPU.
    let (mut making, mut buffers) = (None, BTreeMap::<RawFd, usize>::new());
    let mut mapped = BTreeMap::<RawFd, usize>::new();
    let role = |events: &mut Vec<Event>, of: [Option<&usize>; 2], role: &str| {
        for event in of.into_iter().flatten() {
            write!(events[*event].key, " {role}").unwrap();
        }
    };
    for call in calls {
        let (name, argument) = match call {
            Call::Open(path) => {
                events.push(Event::new(format!("open {path}")));
                continue;
            }
            Call::Map(fd) if buffers.contains_key(fd) => {
                mapped.insert(*fd, events.len());
                events.push(Event::new("mmap"));
                continue;
            }
            Call::Map(_) => {
                events.push(Event::new("mmap doorbell"));
                continue;
            }
            Call::Unmap | Call::Close(_) => continue,
            Call::Request(name, bytes) => (*name, words(bytes)),
        };
        let mut event = Event::new(name);
        match name {
            "NVMAP_IOC_CREATE" => {
                making = Some(events.len());
                event.key = "buffer".into();
                event.arguments.insert("by".into(), name.into());
                event.set("size", argument[0].into());
                events.push(event);
                continue;
            }
            "NVMAP_IOC_ALLOC" | "NVMAP_IOC_GET_FD" | "NVMAP_IOC_FREE" => {
                let at = making.expect("a buffer is made");
                let buffer = &mut events[at];
                let by = format!("{}+{name}", buffer.arguments["by"]);
                buffer.arguments.insert("by".into(), by);
                match name {
                    "NVMAP_IOC_ALLOC" => {
                        buffer.set("heap_mask", argument[1].into());
                        buffer.set("caching", u64::from(argument[2] & nvgpu_sys::NVMAP_HANDLE_CACHE_FLAG));
                        buffer.set("tag", u64::from(argument[2] >> TAG));
                        buffer.set("align", argument[3].into());
                        buffer.set("numa_nid", argument[4].into());
                    }
                    "NVMAP_IOC_GET_FD" => drop(buffers.insert(argument[0].cast_signed(), at)),
                    _ => {}
                }
                continue;
            }
            "NVGPU_IOCTL_CHANNEL_SETUP_BIND" => {
                for (word, what) in [(3, "userd"), (4, "ring")] {
                    let fd = argument[word].cast_signed();
                    role(&mut events, [buffers.get(&fd), mapped.get(&fd)], what);
                }
            }
            "NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER" => {
                let fd = argument[4].cast_signed();
                role(&mut events, [buffers.get(&fd), mapped.get(&fd)], "notifier");
            }
            "NVGPU_AS_IOCTL_MAP_BUFFER_EX" => {
                let fd = argument[2].cast_signed();
                let what = role_at(u64::from(argument[8]) | u64::from(argument[9]) << 32);
                role(&mut events, [buffers.get(&fd), mapped.get(&fd)], what);
                event.key += &format!(" {what}");
            }
            _ => {}
        }
        let known = ARGUMENTS.iter().find(|(request, _)| *request == name).map_or(&[][..], |(_, all)| all);
        for (name, word) in known {
            let upper = if WIDE.contains(name) { u64::from(argument[word + 1]) << 32 } else { 0 };
            event.set(name, u64::from(argument[*word]) | upper);
        }
        events.push(event.named());
    }
    events
}

/// Memory may be had sooner or later: what is asked of the driver for other things is lined up first.
fn weight(key: &str) -> u32 {
    if key.starts_with("mmap") || key.starts_with("buffer") || key.contains("MAP_BUFFER") { 1 } else { 100 }
}

/// The differences of two lists of calls.
fn differences(theirs: &[Event], ours: &[Event]) -> BTreeSet<String> {
    // The heaviest common subsequence of what the calls are.
    let (n, m) = (theirs.len(), ours.len());
    let mut best = vec![vec![0u32; m + 1]; n + 1];
    for (i, j) in (0..n).rev().flat_map(|i| (0..m).rev().map(move |j| (i, j))) {
        best[i][j] = match theirs[i].key == ours[j].key {
            true => best[i + 1][j + 1] + weight(&theirs[i].key),
            false => best[i + 1][j].max(best[i][j + 1]),
        };
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    let (mut without, mut more) = (Vec::new(), Vec::new());
    while i < n && j < m {
        if theirs[i].key == ours[j].key {
            pairs.push((&theirs[i], &ours[j]));
            (i, j) = (i + 1, j + 1);
        } else if best[i + 1][j] >= best[i][j + 1] {
            without.push(&theirs[i]);
            i += 1;
        } else {
            more.push(&ours[j]);
            j += 1;
        }
    }
    without.extend(&theirs[i..]);
    more.extend(&ours[j..]);
    let mut found = BTreeSet::new();
    for one in without {
        match more.iter().position(|other| other.key == one.key) {
            Some(at) => {
                found.insert(format!("elsewhere: {}", one.key));
                pairs.push((one, more.remove(at)));
            }
            None => drop(found.insert(format!("not sent: {}", one.key))),
        }
    }
    found.extend(more.into_iter().map(|one| format!("also sent: {}", one.key)));
    for (theirs, ours) in pairs {
        for (name, value) in &theirs.arguments {
            let own = ours.arguments.get(name).map_or("nothing", String::as_str);
            if own != value {
                found.insert(format!("{}: {name} {own}, not {value}", theirs.key));
            }
        }
    }
    found
}

/// The requests of hcq in a program that does the same as a trace.
fn trace(name: &str, conservative: bool) -> Vec<Event> {
    let mut options = DeviceOptions::default();
    options.conservative = Some(conservative);
    let spy = Spy::new(0);
    let device: Device = hcq::sys::open_nvgpu(spy.clone(), options).unwrap();
    let mut queue = device.queue().unwrap();
    let second = (name == "two-channels").then(|| device.copy_queue().unwrap());
    if name == "release" {
        queue.submit().unwrap().wait(Duration::from_secs(60)).unwrap();
    }
    let calls: Vec<Call> = spy.trace();
    let map = device.memory_map();
    drop(second);
    // A wait's occasional requests may come or not.
    let calls: Vec<_> = calls
        .into_iter()
        .filter(|call| !matches!(call, Call::Request("NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT", _)))
        .collect();
    ours(&calls, |va| {
        // Small objects share memory, which begins with the first of them.
        let first = map.iter().find(|piece| piece.va.raw() >= va).expect("memory has a use");
        match first.what {
            "command ring" => "commands",
            "launch ring" => "launches",
            what => what,
        }
    })
}

#[test]
fn requests_are_those_that_ran_on_an_orin_or_differ_as_listed() {
    let lines = DIFFERENCES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('|').map(str::trim).collect()).collect();
    let mut listed = BTreeSet::new();
    for row in &rows {
        let [traces, modes, difference, reason] = row[..] else { panic!("{row:?}: four columns") };
        assert!(!reason.is_empty(), "{difference}: no reason");
        for (trace, mode) in traces.split(", ").flat_map(|t| modes.split(", ").map(move |m| (t, m))) {
            let new = listed.insert((trace.to_owned(), mode.to_owned(), difference.to_owned()));
            assert!(new, "listed twice: {trace}, {mode}: {difference}");
        }
    }
    let mut found = BTreeSet::new();
    for (name, theirs) in field() {
        for (mode, conservative) in [("default", false), ("conservative", true)] {
            let all = differences(&theirs, &trace(name, conservative));
            found.extend(all.into_iter().map(|difference| (name.to_owned(), mode.to_owned(), difference)));
        }
    }
    let unlisted: Vec<_> = found.difference(&listed).collect();
    let absent: Vec<_> = listed.difference(&found).collect();
    assert!(
        unlisted.is_empty() && absent.is_empty(),
        "not listed: {unlisted:#?}\nlisted, and not so: {absent:#?}"
    );
}

#[test]
fn differences_are_found_wherever_they_are() {
    let list = |text: &str| text.lines().map(Event::read).collect::<Vec<_>>();
    let theirs = list("open a\nX flags=0x1 n=0x2\nbuffer ring P+Q size=0x8\nmmap y\nZ class_num=0x7");
    let same = differences(&theirs, &theirs);
    assert!(same.is_empty(), "{same:?}");
    let ours = list("open a\nmmap y\nX flags=0x3 n=0x2\nbuffer ring P+R size=0x8\nW\nZ class_num=0x8");
    let all: Vec<String> = differences(&theirs, &ours).into_iter().collect();
    assert_eq!(
        all,
        [
            "X: flags 0x3, not 0x1",
            "also sent: W",
            "also sent: Z 0x8",
            "buffer ring: by P+R, not P+Q",
            "elsewhere: mmap y",
            "not sent: Z 0x7",
        ]
    );
}
