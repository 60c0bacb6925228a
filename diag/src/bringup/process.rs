//! A part of the work in a process of its own, which may hang or die without taking the rest with it.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpid, getppid};

/// Most bytes of a stream that are kept.
const LIMIT: usize = 8 << 20;
/// Most characters of a process's output before it failed: the last ones explain it.
const SAID: usize = 2_000;
/// Time for which a stream is read after the process has ended: another process may hold it open.
const REST: Duration = Duration::from_secs(1);

/// Exit of a process.
#[derive(Debug)]
pub enum Ended {
    /// By itself, after it printed this.
    Printed(Vec<u8>),
    /// Otherwise.
    Failed {
        /// With an exit code or a signal.
        status: ExitStatus,
        /// Its output before that.
        printed: Vec<u8>,
        /// The end of its output on standard error.
        said: String,
    },
    /// Not by itself.
    Late(Duration),
    /// Because a signal interrupted this program.
    Interrupted(Signal),
}

impl Ended {
    /// In words.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Printed(_) => "it ended by itself".to_owned(),
            Self::Interrupted(signal) => format!("its process was killed after {signal}"),
            Self::Late(limit) => format!("its process did not end within {limit:?} and was killed"),
            Self::Failed { status, said, .. } => match status.signal() {
                Some(libc::SIGBUS) => {
                    "its process got a bus error (SIGBUS): memory of the driver that it had \
                                       mapped went away, as the doorbell's does when the GPU powers down"
                        .to_owned()
                }
                Some(signal) => format!("its process was ended by signal {signal}: {said}"),
                None => format!("its process ended with {status}: {said}"),
            },
        }
    }
}

/// Runs `command` to its end, until `deadline`, or until `stop` names a signal. It ends when this process ends,
/// however that ends.
///
/// # Errors
/// If it cannot be started or ended.
pub fn run(
    command: &mut Command,
    deadline: Duration,
    stop: &dyn Fn() -> Option<Signal>,
) -> anyhow::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A signal from the terminal reaches this program alone, which ends the process and reports it.
    command.process_group(0);
    let parent = getpid();
    let end_with_parent = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // A parent that was gone before the call sends no signal.
        if getppid() == parent { Ok(()) } else { Err(io::Error::from(Errno::ESRCH)) }
    };
    // SAFETY: between fork and exec the closure makes two system calls, and neither allocates nor locks.
    unsafe { command.pre_exec(end_with_parent) };
    let mut child = command.spawn().context("cannot start the process")?;
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for the process")? {
            break status;
        }
        if let Some(signal) = stop() {
            end(&mut child, Duration::from_secs(2))?;
            return Ok(Ended::Interrupted(signal));
        }
        if began.elapsed() > deadline {
            end(&mut child, Duration::from_secs(10))?;
            return Ok(Ended::Late(deadline));
        }
        thread::sleep(Duration::from_millis(5));
    };
    let until = Instant::now() + REST;
    let (printed, said) = (read_until(&stdout, until), read_until(&stderr, until));
    Ok(match status.success() {
        true => Ended::Printed(printed),
        false => Ended::Failed { status, printed, said: last(&said) },
    })
}

/// Kills a process and those that it has started, and waits for its end. One that is in the kernel may not
/// end before the driver releases it; a wait without limit would hang as well.
fn end(child: &mut Child, patience: Duration) -> anyhow::Result<()> {
    // Its number is that of its group, and of no other process: its end was not waited for yet.
    killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).context("cannot end the process")?;
    let began = Instant::now();
    while child.try_wait()?.is_none() && began.elapsed() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Reads a stream to its end in a thread, and passes its bytes on, piece by piece.
fn collect(stream: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (pieces, received): (Sender<Vec<u8>>, _) = channel();
    thread::spawn(move || {
        let Some(mut stream) = stream else { return };
        let mut buffer = vec![0; 64 << 10];
        let mut left = LIMIT;
        // Bytes read before an error are kept.
        loop {
            let count = match stream.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => return,
                Ok(count) => count,
            };
            let kept = count.min(left);
            left -= kept;
            if kept > 0 && pieces.send(buffer[..kept].to_vec()).is_err() {
                return;
            }
        }
    });
    received
}

/// Reads a stream up to its end, or up to a time.
fn read_until(pieces: &Receiver<Vec<u8>>, until: Instant) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        match pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(piece) => bytes.extend(piece),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return bytes,
        }
    }
}

/// The end of a program's output, without its name.
fn last(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let text = text.trim_end().trim_start_matches("nvdiag: ");
    let skipped = text.chars().count().saturating_sub(SAID);
    text.chars().skip(skipped).collect()
}
