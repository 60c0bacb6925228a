//! Kernel interfaces of tracing: `fork`, `ptrace`, `wait`, a seccomp filter, and other processes' memory.

#![allow(unsafe_code, reason = "the C library's functions for tracing take raw numbers and pointers")]

use std::ffi::{CString, c_int, c_long, c_void};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Stop of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It ended with this code.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// It is about to make a system call, or has made one.
    SystemCall,
    /// The filter stopped it at a system call.
    Filtered,
    /// Its process was stopped by this signal.
    Group(i32),
    /// A signal is about to reach it.
    Signal(i32),
    /// Something else that needs no answer: a new thread, a new program.
    Other,
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCall {
    /// It begins.
    Entry {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// It ended with this result: a value, or an errno as a negative number.
    Exit(i64),
}

/// Continuation of a stopped thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Up to the next stop of the filter.
    Run,
    /// Up to the next system call, or the end of this one.
    ToSystemCall,
    /// Not at all, until its process is continued.
    Listen,
}

fn check(answer: c_long) -> io::Result<c_long> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The options every traced thread gets: its children are traced too, kinds of stops differ.
fn options(kill_with_us: bool) -> c_int {
    let follow = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;
    let tell = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESECCOMP;
    follow | tell | if kill_with_us { libc::PTRACE_O_EXITKILL } else { 0 }
}

/// Begins to trace a running thread.
pub fn seize(tid: i32, kill_with_us: bool) -> io::Result<()> {
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: the request takes numbers alone.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, none, options(kill_with_us) as c_long) }).map(drop)
}

/// Stops a traced thread.
pub fn interrupt(tid: i32) -> io::Result<()> {
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: the request takes numbers alone.
    check(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, none, none) }).map(drop)
}

/// Lets a stopped thread go on, with a signal if it is not 0.
pub fn resume(tid: i32, how: Resume, signal: i32) -> io::Result<()> {
    let request = match how {
        Resume::Run => libc::PTRACE_CONT,
        Resume::ToSystemCall => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: the requests take numbers alone.
    check(unsafe { libc::ptrace(request, tid, none, c_long::from(signal)) }).map(drop)
}

/// Waits for the next stop of any traced thread; `None` when there is none left.
///
/// # Errors
/// `Interrupted` when a signal reached this process.
pub fn wait() -> io::Result<Option<(i32, Stop)>> {
    let mut status = 0;
    // SAFETY: `status` is an integer that outlives the call.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
    if tid < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(error) };
    }
    let stop = if libc::WIFEXITED(status) {
        Stop::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Stop::Killed(libc::WTERMSIG(status))
    } else {
        let signal = libc::WSTOPSIG(status);
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
            0 => Stop::Signal(signal),
            libc::PTRACE_EVENT_SECCOMP => Stop::Filtered,
            libc::PTRACE_EVENT_STOP if stops.contains(&signal) => Stop::Group(signal),
            _ => Stop::Other,
        }
    };
    Ok(Some((tid, stop)))
}

/// The system call at which a thread is stopped; `None` if it is stopped at something else.
pub fn system_call(tid: i32) -> io::Result<Option<SystemCall>> {
    /// `PTRACE_SYSCALL_INFO_ENTRY`, `_EXIT` and `_SECCOMP`.
    const ENTRY: u8 = 1;
    const EXIT: u8 = 2;
    const SECCOMP: u8 = 3;
    /// `struct ptrace_syscall_info`: the kind of stop, then number and arguments, or the result.
    #[repr(C, align(8))]
    struct Info([u8; 88]);
    let mut info = Info([0; 88]);
    let size = size_of_val(&info);
    // SAFETY: the kernel writes `size` bytes at most.
    check(unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, size, &raw mut info) })?;
    let word = |index: usize| info.0[24 + index * 8..].first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
    Ok(match info.0[0] {
        ENTRY | SECCOMP => {
            Some(SystemCall::Entry { number: word(0), arguments: std::array::from_fn(|i| word(1 + i)) })
        }
        EXIT => Some(SystemCall::Exit(word(0).cast_signed())),
        _ => None,
    })
}

/// Reads memory of another process: as much of `len` bytes as is mapped there.
pub fn read_memory(tid: i32, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; len];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: len };
    // SAFETY: `local` describes `bytes`; the other address is in another address space and only read there.
    let read = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
    bytes.truncate(usize::try_from(read).unwrap_or(0));
    bytes
}

/// Whether the kernel has filters that stop a traced thread.
pub fn has_filters() -> bool {
    let action = libc::SECCOMP_RET_TRACE;
    // SAFETY: the kernel reads one integer, which outlives the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    answer == 0
}

/// The machine as filters name it, `AUDIT_ARCH_*`.
#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
/// The machine as filters name it, `AUDIT_ARCH_*`.
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

/// The system calls a filter stops at.
pub fn stopped_calls() -> Vec<c_long> {
    let mut calls = vec![
        libc::SYS_ioctl,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_close,
        libc::SYS_dup,
        libc::SYS_dup3,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([libc::SYS_open, libc::SYS_dup2]);
    calls.extend([libc::SYS_mmap, libc::SYS_fcntl, libc::SYS_prctl]);
    calls
}

/// A filter that stops a thread at the calls of [`stopped_calls`]; not at `mmap` without a file, not at
/// `fcntl` and `prctl` but for copies of descriptors and for marks.
fn filter() -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const HAS_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let jump = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let (allow, trace) =
        (statement(RETURN, libc::SECCOMP_RET_ALLOW), statement(RETURN, libc::SECCOMP_RET_TRACE));
    let argument = |index: usize| statement(LOAD, (offset_of!(libc::seccomp_data, args) + 8 * index) as u32);
    let mut program = vec![
        statement(LOAD, offset_of!(libc::seccomp_data, arch) as u32),
        jump(EQUAL, AUDIT_ARCH, 1, 0),
        allow,
        statement(LOAD, offset_of!(libc::seccomp_data, nr) as u32),
    ];
    for call in stopped_calls() {
        let number = call as u32;
        match call {
            libc::SYS_mmap => program.extend([
                jump(EQUAL, number, 0, 4),
                argument(3),
                jump(HAS_BIT, libc::MAP_ANONYMOUS as u32, 0, 1),
                allow,
                trace,
            ]),
            libc::SYS_fcntl => program.extend([
                jump(EQUAL, number, 0, 5),
                argument(1),
                jump(EQUAL, libc::F_DUPFD as u32, 1, 0),
                jump(EQUAL, libc::F_DUPFD_CLOEXEC as u32, 0, 1),
                trace,
                allow,
            ]),
            libc::SYS_prctl => program.extend([
                jump(EQUAL, number, 0, 4),
                argument(0),
                jump(EQUAL, ga10b_capture::TRACE_MARK, 0, 1),
                trace,
                allow,
            ]),
            _ => program.extend([jump(EQUAL, number, 0, 1), trace]),
        }
    }
    program.push(allow);
    program
}

/// The variable that has `libnvgpu_sim.so` report the calls it serves.
pub const SOFTWARE_TRACE: &std::ffi::CStr = c"NVGPU_SIM_TRACE";

/// Starts a program in a child that this thread traces, stopped before its first instruction; the child's
/// number. `variables` are set in its environment.
///
/// # Errors
/// Those of `fork` and of `ptrace`. That the program cannot be started shows when the child runs: it ends
/// with code 127.
pub fn spawn(command: &[CString], variables: &[(CString, CString)], filtered: bool) -> io::Result<i32> {
    let mut arguments: Vec<*const libc::c_char> = command.iter().map(|a| a.as_ptr()).collect();
    arguments.push(std::ptr::null());
    let filter = if filtered { filter() } else { Vec::new() };
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: this process has one thread, and the child makes system calls alone until it is another program
    // or ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: everything the calls point to was made before the fork.
        unsafe {
            libc::raise(libc::SIGSTOP);
            if filtered {
                // Filters are for those who cannot gain rights by starting a program.
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program);
            }
            // A software ga10b in the program reports its calls then; the user's own setting stays.
            libc::setenv(SOFTWARE_TRACE.as_ptr(), c"1".as_ptr(), 0);
            for (name, value) in variables {
                libc::setenv(name.as_ptr(), value.as_ptr(), 1);
            }
            libc::execvp(arguments[0], arguments.as_ptr());
            libc::_exit(127);
        }
    }
    check(pid.into())?;
    let mut status = 0;
    // SAFETY: `status` is an integer that outlives the call.
    check(unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) }.into())?;
    seize(pid, true)?;
    // SAFETY: a signal to the child made above.
    check(unsafe { libc::kill(pid, libc::SIGCONT) }.into())?;
    Ok(pid)
}

/// The signal that ends the trace; 0 without one.
static REQUESTED: AtomicI32 = AtomicI32::new(0);
static TICKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_request(signal: c_int) {
    REQUESTED.store(signal, Ordering::Relaxed);
}

extern "C" fn note_tick(_: c_int) {
    TICKED.store(true, Ordering::Relaxed);
}

/// The signal by which the user requested an end since [`on_signals`].
pub fn requested_end() -> Option<i32> {
    Some(REQUESTED.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Whether a second has passed since the last call.
pub fn take_tick() -> bool {
    TICKED.swap(false, Ordering::Relaxed)
}

/// Hands a signal to a process.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: the call takes numbers alone. A process that has ended needs no signal.
    unsafe { libc::kill(pid, signal) };
}

/// Has `SIGTERM` and `SIGHUP` request the end, and an interrupt from the terminal too, or leaves that to the
/// traced program. From now on a wait is interrupted each second, for [`take_tick`].
pub fn on_signals(interrupt_ends_tracing: bool) {
    let set = |signal: c_int, action: usize| {
        // SAFETY: the handlers only store to atomics; without SA_RESTART a wait ends early. A signal that is
        // ignored, as `nohup` has SIGHUP, stays so.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut before);
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = action;
            if before.sa_sigaction != libc::SIG_IGN || signal == libc::SIGALRM {
                libc::sigaction(signal, &raw const new, std::ptr::null_mut());
            }
        }
    };
    let request = note_request as extern "C" fn(c_int) as usize;
    set(libc::SIGINT, if interrupt_ends_tracing { request } else { libc::SIG_IGN });
    set(libc::SIGTERM, request);
    set(libc::SIGHUP, request);
    set(libc::SIGALRM, note_tick as extern "C" fn(c_int) as usize);
    let second = libc::timeval { tv_sec: 1, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: second, it_value: second };
    // SAFETY: the kernel reads one struct, which outlives the call.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}
