//! Follows threads from call to call and makes events of those that go to GPU nodes.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::time::Instant;

use ga10b_capture::{MOST_BYTES, Record, TRACE_MARK, TraceMark};
use nvdiag::Hex;
use nvdiag::trace::submission::{Kernels, Submission};
use nvdiag::trace::{Bytes, Call, Event, Memory, abi, is_gpu_node, node_name};
use zerocopy::FromBytes;

use crate::cmd::trace::kernel::{self, Resume, Stop, SystemCall};

/// Longest path that is read.
const MAX_PATH: usize = 4096;

/// End of a traced program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It runs on: the user ended the tracing, or the reader of the trace has gone.
    Detached,
    /// This signal to the tracer ended the tracing, and the program where the tracer had started it.
    Requested(i32),
}

/// Receiver of the trace.
pub trait Events {
    /// A call, or a submission.
    fn event(&mut self, event: Event);
    /// A second has passed: the events so far are written.
    fn flush(&mut self);
    /// Whether anything takes events still.
    fn listens(&self) -> bool;
}

/// Seconds that a program has to end after a signal that ends the trace.
const GRACE: u32 = 2;

/// A traced program.
pub struct Tracer<'s> {
    start: Instant,
    threads: HashMap<i32, Thread>,
    main: i32,
    /// Whether the kernel stops threads at every call, for want of a filter.
    every_call: bool,
    /// Names of nodes that count as a GPU's, besides those that are known.
    nodes: Vec<String>,
    /// An event that is passed on after its thread has been resumed: decoding a submission takes longer than
    /// reading it, and rings fill up meanwhile.
    later: Option<Event>,
    kernels: Kernels,
    sink: &'s mut dyn Events,
    /// Whether the tracer started the program, which ends with it then.
    started: bool,
    /// Seconds since a signal for the end was passed to the program.
    ending: Option<u32>,
    main_has_ended: bool,
}

#[derive(Default)]
struct Thread {
    pid: i32,
    /// A call that has begun.
    pending: Option<Pending>,
    /// A call served inside the program, which it reported by marks.
    marked: Option<Pending>,
}

struct Pending {
    began: Instant,
    call: Call,
}

impl<'s> Tracer<'s> {
    /// Starts a program.
    ///
    /// # Errors
    /// Those of starting and of tracing a child.
    pub fn spawn(
        command: &[CString],
        variables: &[(CString, CString)],
        filtered: bool,
        nodes: Vec<String>,
        sink: &'s mut dyn Events,
    ) -> io::Result<Self> {
        let start = Instant::now();
        let main = kernel::spawn(command, variables, filtered)?;
        kernel::on_signals(false);
        Ok(Self {
            start,
            threads: HashMap::new(),
            main,
            every_call: !filtered,
            nodes,
            later: None,
            kernels: Kernels::default(),
            sink,
            started: true,
            ending: None,
            main_has_ended: false,
        })
    }

    /// Follows a running process.
    ///
    /// # Errors
    /// Those of reading its threads and of tracing them: `EPERM` without the right to.
    pub fn attach(pid: u32, nodes: Vec<String>, sink: &'s mut dyn Events) -> io::Result<Self> {
        let main = i32::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match kernel::seize(tid, false).and_then(|()| kernel::interrupt(tid)) {
                // Threads that ended meanwhile are none of ours.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                done => done?,
            }
        }
        kernel::on_signals(true);
        Ok(Self {
            start: Instant::now(),
            threads: HashMap::new(),
            main,
            every_call: true,
            nodes,
            later: None,
            kernels: Kernels::default(),
            sink,
            started: false,
            ending: None,
            main_has_ended: false,
        })
    }

    /// Runs until the program ends, and everything it started.
    ///
    /// # Errors
    /// Those of `ptrace`.
    pub fn run(mut self) -> io::Result<End> {
        let mut end = End::Detached;
        loop {
            if let Some(end) = self.requests() {
                return Ok(end);
            }
            let (tid, stop) = match kernel::wait() {
                Ok(Some(stopped)) => stopped,
                Ok(None) => return Ok(end),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let how = match stop {
                Stop::Exited(_) | Stop::Killed(_) => {
                    self.ended(tid);
                    if tid == self.main {
                        self.main_has_ended = true;
                        end = if let Stop::Exited(code) = stop { End::Exited(code) } else { end };
                        end = if let Stop::Killed(signal) = stop { End::Killed(signal) } else { end };
                    }
                    continue;
                }
                Stop::SystemCall | Stop::Filtered => {
                    self.system_call(tid);
                    None
                }
                Stop::Group(_) => Some((Resume::Listen, 0)),
                Stop::Signal(signal) => Some((self.go_on(tid), signal)),
                Stop::Other => None,
            };
            let (how, signal) = how.unwrap_or_else(|| (self.go_on(tid), 0));
            match kernel::resume(tid, how, signal) {
                // Killed meanwhile: its end is reported next.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                done => done?,
            }
            if let Some(event) = self.later.take() {
                self.sink.event(event);
            }
        }
    }

    /// Handles requests of the user and the clock; returns how the trace ends, if it does.
    fn requests(&mut self) -> Option<End> {
        let ticked = kernel::take_tick();
        if ticked {
            self.sink.flush();
        }
        // Threads go on by themselves when a tracer ends that did not start them.
        let signal = match kernel::requested_end() {
            Some(libc::SIGINT) => return Some(End::Detached),
            Some(signal) if !self.started => return Some(End::Requested(signal)),
            Some(signal) => signal,
            None if !self.started && !self.sink.listens() => return Some(End::Detached),
            None => return None,
        };
        match &mut self.ending {
            None => {
                if !self.main_has_ended {
                    kernel::signal(self.main, signal);
                }
                self.ending = Some(0);
            }
            Some(seconds) => *seconds += u32::from(ticked),
        }
        // Processes that have not ended by now end with their tracer.
        let is_over = self.main_has_ended || self.ending.is_some_and(|seconds| seconds > GRACE);
        is_over.then_some(End::Requested(signal))
    }

    fn go_on(&self, tid: i32) -> Resume {
        let pending = self.threads.get(&tid).is_some_and(|thread| thread.pending.is_some());
        if pending || self.every_call { Resume::ToSystemCall } else { Resume::Run }
    }

    /// A thread ended: a call that it was in never returned.
    fn ended(&mut self, tid: i32) {
        let Some(thread) = self.threads.remove(&tid) else { return };
        for Pending { began, call } in [thread.pending, thread.marked].into_iter().flatten() {
            let start_ns = began.duration_since(self.start).as_nanos() as u64;
            self.sink.event(Event { start_ns, duration_ns: None, pid: thread.pid, tid, result: 0, call });
        }
    }

    fn system_call(&mut self, tid: i32) {
        let now = Instant::now();
        // Without an answer it was killed meanwhile.
        let Ok(call) = kernel::system_call(tid) else { return };
        let thread =
            self.threads.entry(tid).or_insert_with(|| Thread { pid: process_of(tid), ..Thread::default() });
        match call {
            Some(SystemCall::Entry { number, arguments })
                if number == libc::SYS_prctl as u64 && arguments[0] == u64::from(TRACE_MARK) =>
            {
                self.mark(tid, now, arguments[1]);
            }
            Some(SystemCall::Entry { number, arguments }) => {
                let call = begun(tid, number, arguments, &self.nodes);
                thread.pending = call.map(|call| Pending { began: now, call });
            }
            Some(SystemCall::Exit(result)) => {
                if let Some(pending) = thread.pending.take() {
                    self.finish(tid, pending, result, now);
                }
            }
            None => {}
        }
    }

    fn finish(&mut self, tid: i32, pending: Pending, result: i64, now: Instant) {
        let Pending { began, mut call } = pending;
        if let Call::Ioctl { argument, input, output, memory, .. } = &mut call {
            output.0 = kernel::read_memory(tid, argument.0, input.0.len());
            for Memory { address, input, output } in memory {
                output.0 = kernel::read_memory(tid, address.0, input.0.len());
            }
        }
        let start_ns = began.duration_since(self.start).as_nanos() as u64;
        let duration_ns = Some(now.duration_since(began).as_nanos() as u64);
        let pid = self.threads.get(&tid).map_or(tid, |thread| thread.pid);
        self.sink.event(Event { start_ns, duration_ns, pid, tid, result, call });
    }

    /// Returns the event of a submission that the program reports.
    fn submission(&mut self, tid: i32, now: Instant, mark: &TraceMark) -> Option<Event> {
        let len = usize::try_from(mark.result).unwrap_or(0).min(MOST_BYTES);
        let record = Record::from_bytes(&kernel::read_memory(tid, mark.argument, len))?;
        let start_ns = now.duration_since(self.start).as_nanos() as u64;
        let pid = self.threads.get(&tid).map_or(tid, |thread| thread.pid);
        let mut submission = Submission::from(record);
        // While the process is there: it may end once its thread goes on.
        self.kernels.name(pid, &mut submission);
        let call = Call::Submission(submission);
        Some(Event { start_ns, duration_ns: Some(0), pid, tid, result: 0, call })
    }

    /// The program reports a call that the software GPU inside it serves.
    fn mark(&mut self, tid: i32, now: Instant, address: u64) {
        let bytes = kernel::read_memory(tid, address, size_of::<TraceMark>());
        let Ok(mark) = TraceMark::read_from_bytes(&bytes) else { return };
        if mark.kind == TraceMark::SUBMISSION {
            self.later = self.submission(tid, now, &mark);
            return;
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let name = kernel::read_memory(tid, mark.name, (mark.name_len as usize).min(MAX_PATH));
        let node = String::from_utf8_lossy(&name).into_owned();
        let (fd, flags) = (mark.fd, u64::from(mark.flags));
        let call = match mark.kind {
            TraceMark::END => {
                if let Some(pending) = thread.marked.take() {
                    self.finish(tid, pending, mark.result, now);
                }
                return;
            }
            TraceMark::IOCTL => ioctl(tid, fd, node, mark.request, mark.argument),
            TraceMark::OPEN => Call::Open { path: node, flags },
            TraceMark::CLOSE => Call::Close { fd, node },
            TraceMark::MMAP => Call::Mmap {
                fd,
                node,
                address: Hex(0),
                length: mark.argument,
                protection: u64::from(mark.request),
                flags,
                offset: Hex(mark.result.cast_unsigned()),
            },
            _ => return,
        };
        thread.marked = Some(Pending { began: now, call });
    }
}

/// The process of a thread.
fn process_of(tid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    group.unwrap_or(tid)
}

/// Returns the GPU node that a descriptor is open on, if it is one.
fn node(tid: i32, fd: i32, nodes: &[String]) -> Option<String> {
    if fd < 0 {
        return None;
    }
    let link = fs::read_link(format!("/proc/{tid}/fd/{fd}")).ok()?;
    let name = node_name(link.to_str()?).to_owned();
    is_ours(&name, nodes).then_some(name)
}

fn is_ours(name: &str, nodes: &[String]) -> bool {
    is_gpu_node(name) || nodes.iter().any(|node| name.starts_with(node))
}

/// A call that begins, if it is one to follow.
fn begun(tid: i32, number: u64, arguments: [u64; 6], nodes: &[String]) -> Option<Call> {
    // Descriptors are 32 bits; the bits above them in a register mean nothing.
    let (number, first) = (i64::try_from(number).ok()?, arguments[0] as u32 as i32);
    match number {
        libc::SYS_ioctl => {
            Some(ioctl(tid, first, node(tid, first, nodes)?, arguments[1] as u32, arguments[2]))
        }
        libc::SYS_openat => opened(tid, arguments[1], arguments[2], nodes),
        libc::SYS_openat2 => {
            let how = kernel::read_memory(tid, arguments[2], 8);
            let flags = how.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            opened(tid, arguments[1], flags, nodes)
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => opened(tid, arguments[0], arguments[1], nodes),
        libc::SYS_close => Some(Call::Close { fd: first, node: node(tid, first, nodes)? }),
        libc::SYS_dup | libc::SYS_dup3 => Some(Call::Dup { fd: first, node: node(tid, first, nodes)? }),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => Some(Call::Dup { fd: first, node: node(tid, first, nodes)? }),
        libc::SYS_fcntl => {
            let copies = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&(arguments[1] as i32));
            Some(Call::Dup { fd: first, node: node(tid, first, nodes).filter(|_| copies)? })
        }
        libc::SYS_mmap => {
            let fd = arguments[4] as u32 as i32;
            Some(Call::Mmap {
                fd,
                node: node(tid, fd, nodes)?,
                address: Hex(arguments[0]),
                length: arguments[1],
                protection: arguments[2],
                flags: arguments[3],
                offset: Hex(arguments[5]),
            })
        }
        _ => None,
    }
}

fn opened(tid: i32, path: u64, flags: u64, nodes: &[String]) -> Option<Call> {
    // A path may end just before memory that is not mapped: what can be read is enough.
    let to_page_end = 4096 - (path as usize & 4095);
    let mut bytes = kernel::read_memory(tid, path, to_page_end);
    if !bytes.contains(&0) {
        bytes.extend(kernel::read_memory(tid, path + bytes.len() as u64, MAX_PATH));
    }
    let path = String::from_utf8_lossy(bytes.split(|b| *b == 0).next()?).into_owned();
    is_ours(&path, nodes).then_some(Call::Open { path, flags })
}

fn ioctl(tid: i32, fd: i32, node: String, request: u32, argument: u64) -> Call {
    let input = kernel::read_memory(tid, argument, abi::argument_bytes(&node, request));
    let layout = abi::request(&node, request).and_then(|known| known.layout(input.len()));
    let memory = layout.map_or(Vec::new(), |layout| abi::pointers(layout, &input));
    let memory = memory.iter().map(|pointer| Memory {
        address: Hex(pointer.address),
        input: Bytes(kernel::read_memory(tid, pointer.address, pointer.len)),
        output: Bytes::default(),
    });
    let memory = memory.collect();
    Call::Ioctl {
        fd,
        node,
        request: Hex(request.into()),
        argument: Hex(argument),
        input: Bytes(input),
        output: Bytes::default(),
        memory,
    }
}
