//! Open files: descriptors that are real to the kernel, and the driver's objects behind them.
//!
//! The program's end of a device node is the read end of a pipe: it can be duplicated, inherited and passed
//! on like any descriptor, its inode identifies it, and the kernel reports when the last copy is closed,
//! because then the write end kept here has no reader. Buffers are memfds, so that mapping them needs no
//! help.

use crate::driver::address_space::space::AddressSpace;
use crate::driver::channel::Channel;
use crate::driver::descriptor::FileKey;
use crate::driver::event::EventFile;
use crate::driver::session::control::CtrlFile;
use crate::driver::session::debugger::DebugSession;
use crate::driver::session::profiler::ProfilerFile;
use crate::driver::tsg::Tsg;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// The object that a descriptor refers to.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// `ctrl`.
    Ctrl(Arc<CtrlFile>),
    /// An address space of `ALLOC_AS`.
    AddressSpace(Arc<AddressSpace>),
    /// A group of channels.
    Tsg(Arc<Tsg>),
    /// A channel.
    Channel(Arc<Channel>),
    /// One enabled event of a TSG.
    Event,
    /// A `dbg` or `prof` session.
    Debug(Arc<DebugSession>),
    /// `prof-dev`.
    Profiler(Arc<ProfilerFile>),
    /// `sched`.
    Sched,
    /// `ctxsw`.
    ContextSwitchTrace,
    /// `nvmap`.
    NvMap,
    /// `nvidiactl` of a display driver.
    Display,
    /// Nodes that have no ioctl a compute client needs (`power`, `nvsched`, `host1x-fence`).
    Other,
}

#[derive(Debug)]
struct OpenFile {
    object: Object,
    far_end: Arc<OwnedFd>,
    name: String,
    /// Access mode and status flags, as `F_GETFL` reports them: those of the pipe are other ones.
    flags: OFlag,
    /// Threads that close a descriptor of it: as in Linux, its end is up to the one that closes the last.
    closers: u32,
}

/// So many files may be closed without notice before the next open searches for them: each costs the program a
/// descriptor.
const CROWD: u32 = 16;

/// All open files of the driver.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    files: HashMap<FileKey, OpenFile>,
    /// Files that another descriptor kept open when one was closed, since the last search of all.
    left_open: u32,
}

impl FileTable {
    /// Opens `object`; `name` receives the number of the new descriptor, as the driver names anonymous inodes.
    pub(crate) fn open(
        &mut self,
        object: Object,
        name: impl FnOnce(i32) -> String,
    ) -> Result<OwnedFd, Errno> {
        let (near, far_end) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let key = FileKey::of(near.as_fd())?;
        let number = near.as_raw_fd();
        let (far_end, name, flags) = (Arc::new(far_end), name(number), OFlag::O_RDWR);
        let file = OpenFile { object, far_end, name, flags, closers: 0 };
        self.files.insert(key, file);
        Ok(near)
    }

    /// Opens an event descriptor.
    pub(crate) fn open_event(&mut self, id: u32) -> Result<(OwnedFd, EventFile), Errno> {
        let (near, far_end) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let key = FileKey::of(near.as_fd())?;
        let number = near.as_raw_fd();
        let far_end = Arc::new(far_end);
        let event = EventFile::new(id, &far_end);
        let name = format!("nvgpu-event{id}-fd{number}");
        let file = OpenFile { object: Object::Event, far_end, name, flags: OFlag::O_RDWR, closers: 0 };
        self.files.insert(key, file);
        Ok((near, event))
    }

    /// Returns the object that a descriptor refers to.
    pub(crate) fn get(&self, key: FileKey) -> Option<Object> {
        self.files.get(&key).map(|f| f.object.clone())
    }

    /// Name of a descriptor's inode.
    pub(crate) fn name(&self, key: FileKey) -> Option<&str> {
        self.files.get(&key).map(|f| f.name.as_str())
    }

    /// Access mode and status flags of a file.
    pub(crate) fn flags(&self, key: FileKey) -> Option<OFlag> {
        self.files.get(&key).map(|f| f.flags)
    }

    /// Changes the flags of a file.
    pub(crate) fn set_flags(&mut self, key: FileKey, flags: OFlag) {
        if let Some(file) = self.files.get_mut(&key) {
            file.flags = flags;
        }
    }

    /// Whether many files may wait for [`Self::take_all_closed`]: a fork still had their descriptors when the
    /// program closed them.
    pub(crate) fn is_crowded(&self) -> bool {
        self.left_open >= CROWD
    }

    /// A thread is about to close a descriptor of `key`, and calls [`Self::take_closed`] then.
    pub(crate) fn begin_close(&mut self, key: FileKey) {
        if let Some(file) = self.files.get_mut(&key) {
            file.closers += 1;
        }
    }

    /// Removes `key` if its last descriptor is closed.
    pub(crate) fn take_closed(&mut self, key: FileKey) -> Option<Object> {
        if let Some(file) = self.files.get_mut(&key) {
            file.closers = file.closers.saturating_sub(1);
        }
        if self.files.get(&key).is_some_and(|f| has_no_reader(&f.far_end)) {
            return self.files.remove(&key).map(|f| f.object);
        }
        self.left_open += u32::from(self.files.contains_key(&key));
        None
    }

    /// Removes every file whose last descriptor is closed, and not by a thread that removes it itself.
    pub(crate) fn take_all_closed(&mut self) -> Vec<Object> {
        self.left_open = 0;
        let closed: Vec<FileKey> = self
            .files
            .iter()
            .filter(|(_, f)| f.closers == 0 && has_no_reader(&f.far_end))
            .map(|(&k, _)| k)
            .collect();
        closed.iter().filter_map(|k| self.files.remove(k)).map(|f| f.object).collect()
    }

    /// Whether a file of this kind is open.
    pub(crate) fn any(&self, kind: impl Fn(&Object) -> bool) -> bool {
        self.files.values().any(|f| kind(&f.object))
    }

    /// Every open object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.files.values().map(|f| &f.object)
    }
}

fn has_no_reader(far_end: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(far_end.as_fd(), PollFlags::empty())];
    nix::poll::poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds[0].revents().is_some_and(|r| r.contains(PollFlags::POLLERR))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fork that keeps descriptors open costs a program no more than so many of its own.
    #[test]
    fn files_that_others_keep_open_make_a_crowd_that_is_searched() {
        let mut table = FileTable::default();
        let mut copies = Vec::new();
        for _ in 0..CROWD {
            assert!(!table.is_crowded());
            let near = table.open(Object::NvMap, |_| String::new()).unwrap();
            let key = FileKey::of(near.as_fd()).unwrap();
            copies.push(near.try_clone().unwrap());
            table.begin_close(key);
            drop(near);
            assert!(table.take_closed(key).is_none(), "a copy is open");
        }
        assert!(table.is_crowded());
        copies.truncate(1);
        assert_eq!(table.take_all_closed().len(), CROWD as usize - 1);
        assert!(!table.is_crowded());
        assert_eq!(table.objects().count(), 1);
    }
}
