//! The side of the process that has the machine.

use crate::caller::message::{Message, address, answer, as_fd, kind, limit_waits, peer, receive, send};
use crate::caller::visitor::{Visitor, serving};
use crate::driver::machine::Machine;
use crate::driver::nodes::dispatch;
use crate::own_thread::mark_own_thread;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, accept4, bind, listen, shutdown, socket,
};
use nvgpu_sys as abi;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The only node that is opened for a visitor.
const DEBUG_NODE: &str = "/dev/nvgpu/igpu0/dbg";
/// Requests that a visitor may make on copied descriptors: those that read and change nothing. The visitor's own
/// sessions serve all requests.
const READ_ONLY: [u32; 3] = [
    abi::NVGPU_GPU_IOCTL_GET_CHARACTERISTICS,
    abi::NVGPU_AS_IOCTL_GET_VA_REGIONS,
    abi::NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE,
];

/// Waits for visitors on its own thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    door: Arc<Door>,
    thread: Option<JoinHandle<()>>,
}

/// Entry of visitors.
#[derive(Debug)]
struct Door {
    listener: OwnedFd,
    closed: AtomicBool,
    /// A copy of the present visitor's socket, to end the visit with.
    inside: Mutex<Option<OwnedFd>>,
}

impl Door {
    fn inside(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Opens the machine of this process to visitors.
    ///
    /// # Errors
    /// `EADDRINUSE` when another machine of this process is open to them.
    pub(crate) fn open(machine: Arc<Machine>) -> Result<Self, Errno> {
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        bind(listener.as_raw_fd(), &address(std::process::id())?)?;
        listen(&listener, Backlog::new(4)?)?;
        let door = Arc::new(Door { listener, closed: AtomicBool::new(false), inside: Mutex::new(None) });
        let behind = Arc::clone(&door);
        let thread = std::thread::Builder::new()
            .name("ga10b-visits".to_owned())
            .spawn(move || wait(&machine, &behind))
            .map_err(|_| Errno::EAGAIN)?;
        Ok(Self { door, thread: Some(thread) })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.door.closed.store(true, Ordering::SeqCst);
        // Wakes the thread: no visitor is accepted any more, and no request of an accepted one arrives.
        let _ = shutdown(self.door.listener.as_raw_fd(), Shutdown::Both);
        if let Some(socket) = &*self.door.inside() {
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread for visitors of the simulated machine panicked");
        }
    }
}

/// Takes one visitor after the other.
fn wait(machine: &Arc<Machine>, door: &Door) {
    mark_own_thread();
    loop {
        let socket = match accept4(door.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
            // SAFETY: the kernel made the descriptor just now, and nothing else knows of it.
            Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
            Err(Errno::EINTR | Errno::ECONNABORTED) => continue,
            Err(_) => return,
        };
        let same_user = peer(socket.as_fd()).is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw());
        if !same_user || limit_waits(socket.as_fd()).is_err() {
            continue;
        }
        *door.inside() = socket.try_clone().ok();
        if door.closed.load(Ordering::SeqCst) {
            return;
        }
        let visitor = Rc::new(Visitor { socket });
        while let Ok(Some(message)) = receive(visitor.socket.as_fd()) {
            if serve(machine, &visitor, &message).is_err() {
                break;
            }
            if let Some(fd) = message.fd {
                machine.close(fd);
            }
        }
        *door.inside() = None;
        machine.collect_closed();
    }
}

fn serve(machine: &Arc<Machine>, visitor: &Rc<Visitor>, message: &Message) -> Result<(), Errno> {
    let socket = visitor.socket.as_fd();
    match message.head.kind {
        kind::OPEN if message.content == DEBUG_NODE.as_bytes() => {
            match dispatch::open(machine, DEBUG_NODE, OFlag::O_RDWR) {
                Ok(fd) => send(socket, answer(Ok(0)), &[], Some(fd.as_fd())),
                Err(errno) => send(socket, answer(Err(errno)), &[], None),
            }
        }
        kind::OPEN => send(socket, answer(Err(Errno::EACCES)), &[], None),
        kind::NAME => {
            let name = as_fd(&message.fd).ok().and_then(|fd| name(machine, fd));
            match name {
                Some(name) => send(socket, answer(Ok(0)), name.as_bytes(), None),
                None => send(socket, answer(Err(Errno::ENOENT)), &[], None),
            }
        }
        kind::IOCTL => {
            let mut argument = message.content.clone();
            let reply = ioctl(machine, visitor, message, &mut argument);
            send(socket, answer(reply), &argument, None)
        }
        _ => Err(Errno::EPROTO),
    }
}

/// Returns the name of the file that a descriptor is open on, as `/proc/<pid>/fd` shows it on a real machine.
fn name(machine: &Machine, fd: BorrowedFd<'_>) -> Option<String> {
    // The machine's own ends of the same pipes are in this process too.
    let flags = fcntl(fd, FcntlArg::F_GETFL).ok()?;
    if flags & OFlag::O_ACCMODE.bits() == OFlag::O_WRONLY.bits() {
        return None;
    }
    dispatch::name(machine, fd).or_else(|| machine.buffer_facts(fd).map(|_| "/dmabuf:".to_owned()))
}

fn ioctl(
    machine: &Arc<Machine>,
    visitor: &Rc<Visitor>,
    message: &Message,
    argument: &mut [u8],
) -> Result<i32, Errno> {
    let fd = as_fd(&message.fd)?;
    let request = message.head.number;
    if !READ_ONLY.contains(&request) && name(machine, fd).as_deref() != Some(DEBUG_NODE) {
        return Err(Errno::EPERM);
    }
    serving(visitor, || dispatch::ioctl(machine, fd, request, argument))
}
