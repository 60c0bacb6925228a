//! Random calls with random handles, live, freed, of the wrong kind and of two devices, against a model that is
//! too simple to be wrong.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use hcq_c::hcq_status::{self, *};
use hcq_c::*;
use proptest::prelude::*;

const DEADLINE: i64 = 60_000_000_000;

#[derive(Clone, Debug)]
enum Op {
    Alloc { device: usize, words: u64 },
    NewArgs,
    OpenQueue { device: usize, copies: bool },
    Free { of: Kind, handle: usize },
    Write { buffer: usize, offset: u64, byte: u8, len: usize },
    Read { buffer: usize, offset: u64, len: usize },
    AddBuffer { args: usize, buffer: usize },
    AddWord { args: usize, word: u32 },
    Clear { args: usize },
    Launch { queue: usize, args: usize },
    Copy { queue: usize, from: (usize, u64), to: (usize, u64), len: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Buffer,
    Args,
    Queue,
}

#[derive(Clone, Debug, PartialEq)]
enum Argument {
    Buffer { object: usize, device: usize },
    Word(u32),
}

/// What the model knows of a handle that was handed out.
#[derive(Debug)]
struct Handle {
    kind: Kind,
    raw: *mut c_void,
    live: bool,
    device: usize,
    /// Content of a buffer, which also launches reach that were recorded before its handle was freed.
    bytes: Vec<u8>,
    copies: bool,
    args: Vec<Argument>,
    failed: Option<hcq_status>,
}

/// Two devices, a kernel on the first, and all handles so far.
struct World {
    devices: [*mut hcq_device; 2],
    program: *mut hcq_program,
    fill: *mut hcq_kernel,
    handles: Vec<Handle>,
}

#[track_caller]
fn ok(status: hcq_status) {
    assert_eq!(status, HCQ_OK);
}

impl World {
    fn new() -> Self {
        let mut world =
            Self { devices: [null_mut(); 2], program: null_mut(), fill: null_mut(), handles: vec![] };
        let cubin = include_bytes!("../../../hcq/tests/kernels/endings.sm_87.cubin");
        let image = hcq_image { data: cubin.as_ptr().cast(), len: cubin.len() };
        // SAFETY: the pointers are those of the fields, of the cubin and of texts.
        unsafe {
            for device in &mut world.devices {
                ok(hcq_device_open(c"sim".as_ptr(), null(), device));
            }
            ok(hcq_program_load(world.devices[0], &image, 1, &mut world.program));
            ok(hcq_program_kernel(world.program, c"fill".as_ptr(), &mut world.fill));
        }
        world
    }

    fn add(&mut self, kind: Kind, raw: *mut c_void, device: usize) -> &mut Handle {
        assert!(
            !raw.is_null() && self.handles.iter().all(|handle| handle.raw != raw),
            "{raw:p} was one before"
        );
        let handle = Handle {
            kind,
            raw,
            live: true,
            device,
            bytes: vec![],
            copies: false,
            args: vec![],
            failed: None,
        };
        self.handles.push(handle);
        self.handles.last_mut().unwrap()
    }

    /// A handle by a number: mostly a live one of `kind`, else any that was handed out, or null. With it the answer of
    /// a call for `kind`.
    fn pick(&self, number: usize, kind: Kind) -> (Option<usize>, *mut c_void, hcq_status) {
        let right = |at: &usize| self.handles[*at].kind == kind && self.handles[*at].live;
        let fitting: Vec<usize> = (0..self.handles.len()).filter(right).collect();
        let at = match number % 4 {
            1.. if !fitting.is_empty() => fitting[number / 4 % fitting.len()],
            _ => number / 4 % (self.handles.len() + 1),
        };
        let Some(handle) = self.handles.get(at) else { return (None, null_mut(), HCQ_ERROR_HANDLE_NULL) };
        let status = match () {
            () if handle.kind != kind => HCQ_ERROR_HANDLE_KIND,
            () if !handle.live => HCQ_ERROR_HANDLE_FREED,
            () => HCQ_OK,
        };
        (Some(at), handle.raw, status)
    }

    fn run(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Alloc { device, words } => {
                let mut made = null_mut();
                // SAFETY: the pointer is that of a variable.
                let got = unsafe { hcq_buffer_alloc(self.devices[device], 4 * words, &mut made) };
                prop_assert_eq!(got, if words == 0 { HCQ_ERROR_MEMORY_EMPTY_BUFFER } else { HCQ_OK });
                prop_assert_eq!(made.is_null(), words == 0);
                if got == HCQ_OK {
                    let bytes = vec![0; 4 * words as usize];
                    // SAFETY: so many bytes are there.
                    ok(unsafe { hcq_buffer_write(made, 0, bytes.as_ptr().cast(), bytes.len()) });
                    self.add(Kind::Buffer, made.cast(), device).bytes = bytes;
                }
            }
            Op::NewArgs => {
                let mut made = null_mut();
                // SAFETY: the pointer is that of a variable.
                ok(unsafe { hcq_args_new(&mut made) });
                self.add(Kind::Args, made.cast(), 0);
            }
            Op::OpenQueue { device, copies } => {
                let mut made = null_mut();
                let open = if copies { hcq_queue_open_copy } else { hcq_queue_open };
                // SAFETY: the pointer is that of a variable.
                ok(unsafe { open(self.devices[device], &mut made) });
                self.add(Kind::Queue, made.cast(), device).copies = copies;
            }
            Op::Free { of, handle } => {
                let (at, raw, wanted) = self.pick(handle, of);
                let got = match of {
                    Kind::Buffer => hcq_buffer_free(raw.cast()),
                    Kind::Args => hcq_args_free(raw.cast()),
                    Kind::Queue => hcq_queue_free(raw.cast()),
                };
                prop_assert_eq!(got, at.map_or(HCQ_OK, |_| wanted));
                if let Some(at) = at.filter(|_| got == HCQ_OK) {
                    self.handles[at].live = false;
                }
            }
            Op::Write { .. } | Op::Read { .. } => self.access(op)?,
            Op::AddBuffer { .. } | Op::AddWord { .. } | Op::Clear { .. } => self.add_argument(op)?,
            Op::Launch { queue, args } => self.launch(queue, args)?,
            Op::Copy { queue, from, to, len } => self.copy(queue, from, to, len)?,
        }
        Ok(())
    }

    fn access(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let bounds = |size: usize, offset: u64, len: usize| match offset.checked_add(len as u64) {
            Some(end) if end <= size as u64 => HCQ_OK,
            _ => HCQ_ERROR_MEMORY_OUT_OF_BOUNDS,
        };
        match *op {
            Op::Write { buffer, offset, byte, len } => {
                let (at, raw, mut wanted) = self.pick(buffer, Kind::Buffer);
                let bytes = vec![byte; len];
                if wanted == HCQ_OK {
                    wanted = bounds(self.handles[at.unwrap()].bytes.len(), offset, len);
                }
                // SAFETY: so many bytes are there.
                let got = unsafe { hcq_buffer_write(raw.cast(), offset, bytes.as_ptr().cast(), len) };
                prop_assert_eq!(got, wanted);
                if got == HCQ_OK {
                    self.handles[at.unwrap()].bytes[offset as usize..][..len].copy_from_slice(&bytes);
                }
            }
            Op::Read { buffer, offset, len } => {
                let (at, raw, mut wanted) = self.pick(buffer, Kind::Buffer);
                let mut bytes = vec![0xee; len];
                if wanted == HCQ_OK {
                    wanted = bounds(self.handles[at.unwrap()].bytes.len(), offset, len);
                }
                // SAFETY: so many bytes are there.
                let got = unsafe { hcq_buffer_read(raw.cast(), offset, bytes.as_mut_ptr().cast(), len) };
                prop_assert_eq!(got, wanted);
                if got == HCQ_OK {
                    prop_assert_eq!(&bytes[..], &self.handles[at.unwrap()].bytes[offset as usize..][..len]);
                }
            }
            _ => unreachable!(),
        }
        Ok(())
    }

    fn add_argument(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let (Op::AddBuffer { args, .. } | Op::AddWord { args, .. } | Op::Clear { args }) = *op else {
            unreachable!()
        };
        let (at, raw, wanted) = self.pick(args, Kind::Args);
        let (got, argument) = match *op {
            Op::AddBuffer { buffer, .. } => {
                let (object, buffer, of_buffer) = self.pick(buffer, Kind::Buffer);
                let got = hcq_args_buffer(raw.cast(), buffer.cast());
                if wanted == HCQ_OK && of_buffer != HCQ_OK {
                    prop_assert_eq!(got, of_buffer);
                    self.handles[at.unwrap()].args.clear();
                    self.handles[at.unwrap()].failed.get_or_insert(of_buffer);
                    return Ok(());
                }
                (got, object.map(|object| Argument::Buffer { object, device: self.handles[object].device }))
            }
            Op::AddWord { word, .. } => (hcq_args_u32(raw.cast(), word), Some(Argument::Word(word))),
            _ => (hcq_args_clear(raw.cast()), None),
        };
        prop_assert_eq!(got, wanted);
        if got == HCQ_OK {
            let list = &mut self.handles[at.unwrap()];
            match argument {
                Some(argument) => list.args.push(argument),
                None => (list.args, list.failed) = (vec![], None),
            }
        }
        Ok(())
    }

    fn launch(&mut self, queue: usize, args: usize) -> Result<(), TestCaseError> {
        let (at, raw, of_queue) = self.pick(queue, Kind::Queue);
        let (list, args, of_args) = self.pick(args, Kind::Args);
        let mut words = None;
        let wanted = match (of_queue, of_args, list) {
            (HCQ_OK, HCQ_OK, Some(list)) => {
                let (queue, list) = (&self.handles[at.unwrap()], &self.handles[list]);
                let foreign = |argument: &Argument| matches!(argument, Argument::Buffer { device, .. } if *device != queue.device);
                match list.args[..] {
                    _ if list.failed.is_some() => list.failed.unwrap(),
                    _ if list.args.iter().any(foreign) => HCQ_ERROR_FOREIGN_DEVICE,
                    _ if queue.copies => HCQ_ERROR_QUEUE_WRONG_QUEUE,
                    [Argument::Buffer { .. }, Argument::Word(_)] if queue.device != 0 => {
                        HCQ_ERROR_FOREIGN_DEVICE
                    }
                    [Argument::Buffer { object, .. }, Argument::Word(word)] => {
                        words = Some((object, word));
                        HCQ_OK
                    }
                    [_, _] => HCQ_ERROR_LAUNCH_ARGUMENT_WIDTH,
                    _ => HCQ_ERROR_LAUNCH_ARGUMENT_COUNT,
                }
            }
            // A handle that is null stands for no arguments.
            (HCQ_OK, _, None) => match &self.handles[at.unwrap()] {
                queue if queue.copies => HCQ_ERROR_QUEUE_WRONG_QUEUE,
                _ => HCQ_ERROR_LAUNCH_ARGUMENT_COUNT,
            },
            (HCQ_OK, refused, _) | (refused, _, _) => refused,
        };
        let shape = hcq_launch_config { grid: [1; 3], block: [1; 3], dynamic_shared: 0, blocks_per_sm: 0 };
        // SAFETY: the kernel writes a word of the buffer, which has one.
        let got = unsafe { hcq_queue_launch(raw.cast(), self.fill, &shape, args.cast()) };
        prop_assert_eq!(got, wanted);
        if let Some((object, word)) = words {
            self.submit(raw.cast());
            self.handles[object].bytes[..4].copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    fn copy(
        &mut self,
        queue: usize,
        from: (usize, u64),
        to: (usize, u64),
        len: u64,
    ) -> Result<(), TestCaseError> {
        let (at, raw, of_queue) = self.pick(queue, Kind::Queue);
        let (src, from_raw, of_from) = self.pick(from.0, Kind::Buffer);
        let (dst, to_raw, of_to) = self.pick(to.0, Kind::Buffer);
        let first = [of_queue, of_from, of_to].into_iter().find(|status| *status != HCQ_OK);
        let wanted = first.unwrap_or_else(|| {
            let [queue, src, dst] = [at, src, dst].map(|at| &self.handles[at.unwrap()]);
            let out = |buffer: &Handle, offset: u64| offset + len > buffer.bytes.len() as u64;
            match () {
                () if src.device != queue.device || dst.device != queue.device => HCQ_ERROR_FOREIGN_DEVICE,
                () if out(src, from.1) || out(dst, to.1) => HCQ_ERROR_MEMORY_OUT_OF_BOUNDS,
                () if src.raw == dst.raw && from.1.abs_diff(to.1) < len => HCQ_ERROR_MEMORY_OVERLAP,
                () => HCQ_OK,
            }
        });
        let got = hcq_queue_copy(raw.cast(), from_raw.cast(), from.1, to_raw.cast(), to.1, len);
        prop_assert_eq!(got, wanted);
        if got == HCQ_OK {
            self.submit(raw.cast());
            let bytes = self.handles[src.unwrap()].bytes[from.1 as usize..][..len as usize].to_vec();
            self.handles[dst.unwrap()].bytes[to.1 as usize..][..len as usize].copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Hands work over and waits for it: between queues nothing else is ordered.
    fn submit(&self, queue: *mut hcq_queue) {
        let mut point = null_mut();
        // SAFETY: the pointer is that of a variable.
        ok(unsafe { hcq_queue_submit(queue, &mut point) });
        ok(hcq_point_wait(point, DEADLINE));
        ok(hcq_point_free(point));
        assert_eq!(hcq_point_free(point), HCQ_ERROR_HANDLE_FREED);
    }

    fn end(self) {
        for handle in self.handles.iter().filter(|handle| handle.live) {
            ok(match handle.kind {
                Kind::Buffer => hcq_buffer_free(handle.raw.cast()),
                Kind::Args => hcq_args_free(handle.raw.cast()),
                Kind::Queue => hcq_queue_free(handle.raw.cast()),
            });
        }
        ok(hcq_kernel_free(self.fill));
        ok(hcq_program_free(self.program));
        self.devices.into_iter().for_each(|device| ok(hcq_device_free(device)));
    }
}

fn op() -> impl Strategy<Value = Op> {
    let (device, pick, word) = (|| 0..2_usize, || 0..256_usize, || (0..20_u64).prop_map(|n| 4 * n));
    let kind = prop_oneof![Just(Kind::Buffer), Just(Kind::Args), Just(Kind::Queue)];
    prop_oneof![
        3 => (device(), 0..16_u64).prop_map(|(device, words)| Op::Alloc { device, words }),
        1 => Just(Op::NewArgs),
        1 => (device(), any::<bool>()).prop_map(|(device, copies)| Op::OpenQueue { device, copies }),
        2 => (kind, pick()).prop_map(|(of, handle)| Op::Free { of, handle }),
        4 => (pick(), prop_oneof![4 => word(), 1 => Just(u64::MAX)], any::<u8>(), 0..40_usize)
            .prop_map(|(buffer, offset, byte, len)| Op::Write { buffer, offset, byte, len }),
        4 => (pick(), word(), 0..40_usize).prop_map(|(buffer, offset, len)| Op::Read { buffer, offset, len }),
        4 => (pick(), pick()).prop_map(|(args, buffer)| Op::AddBuffer { args, buffer }),
        4 => (pick(), any::<u32>()).prop_map(|(args, word)| Op::AddWord { args, word }),
        1 => pick().prop_map(|args| Op::Clear { args }),
        6 => (pick(), pick()).prop_map(|(queue, args)| Op::Launch { queue, args }),
        4 => (pick(), (pick(), word()), (pick(), word()), 1..5_u64)
            .prop_map(|(queue, from, to, len)| Op::Copy { queue, from, to, len: 4 * len }),
    ]
}

/// Handles that most calls need, so that not all are refused.
fn start() -> Vec<Op> {
    let device = 0;
    vec![
        Op::Alloc { device, words: 16 },
        Op::NewArgs,
        Op::OpenQueue { device, copies: false },
        Op::AddBuffer { args: 1, buffer: 1 },
        Op::AddWord { args: 1, word: 77 },
        Op::Launch { queue: 1, args: 1 },
        Op::Alloc { device: 1, words: 8 },
        Op::OpenQueue { device, copies: true },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn calls_answer_as_the_model_says(ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in start().iter().chain(&ops) {
            world.run(op)?;
        }
        // Freed or not, what a handle was given is right to its end.
        world.end();
    }
}
