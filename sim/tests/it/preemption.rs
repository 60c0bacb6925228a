//! Context switches: the driver's actions when the engine is to leave a group whose kernel does not give way.

use crate::machine::kernel::Fill;
use crate::machine::*;
use crate::sm::asm;
use ga10b_sim::{Session, SimConfig, Time, VirtualClock};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::*;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const WFI: u32 = NVGPU_COMPUTE_PREEMPTION_MODE_WFI;
const CTA: u32 = NVGPU_COMPUTE_PREEMPTION_MODE_CTA;
const CILP: u32 = NVGPU_COMPUTE_PREEMPTION_MODE_CILP;
/// Time that the driver waits for a preemption.
const PREEMPTION: Duration = Duration::from_millis(100);

/// A machine in virtual time, in which an instruction takes 20 ns: some milliseconds for a turn of a kernel.
fn beside(session: Session) -> (Machine, VirtualClock) {
    on(VirtualClock::new(Duration::from_nanos(20)), session)
}

/// One on which time-outs of seconds come soon.
fn hurried(session: Session) -> (Machine, VirtualClock) {
    on(VirtualClock::default(), session)
}

fn on(clock: VirtualClock, session: Session) -> (Machine, VirtualClock) {
    let time = Time::Virtual(clock.clone());
    let config = SimConfig { sm_count: 4, memory: 4 << 30, time, session, ..SimConfig::default() };
    (Machine::with(config), clock)
}

fn set_mode(channel: &Channel<'_>, compute_preempt_mode: u32) -> Result<i32, Errno> {
    let mut args = nvgpu_preemption_mode_args { graphics_preempt_mode: 0, compute_preempt_mode };
    ask(&channel.machine.sim, channel.fd.as_fd(), &mut args)
}

fn alloc(channel: &Channel<'_>, class_num: u32) -> Result<i32, Errno> {
    let mut args = nvgpu_alloc_obj_ctx_args { class_num, ..Default::default() };
    ask(&channel.machine.sim, channel.fd.as_fd(), &mut args)
}

/// Sets the mode as a client does that allocated the copy class last.
fn choose(channel: &Channel<'_>, compute_preempt_mode: u32) -> Result<i32, Errno> {
    alloc(channel, 0xc7c0).and_then(|_| set_mode(channel, compute_preempt_mode))
}

/// Two channels of one group.
fn pair(machine: &Machine) -> (Channel<'_>, Channel<'_>) {
    let tsg = machine.tsg();
    let other = tsg.try_clone().unwrap();
    (machine.channel_in(tsg), machine.channel_in(other))
}

/// The compute preemption mode of the only group.
fn mode(machine: &Machine) -> u32 {
    let sched = machine.sim.open(c"/dev/nvgpu/igpu0/sched", OFlag::O_RDWR).unwrap();
    let mut args = nvgpu_sched_tsg_get_params_args::default();
    ask(&machine.sim, sched.as_fd(), &mut args).unwrap();
    machine.sim.close(sched).unwrap();
    args.compute_preempt_mode
}

/// A kernel that waits for the flag at the begin of a buffer.
struct Waiting {
    memory: Buffer,
    _kernel: Fill,
}

impl Waiting {
    /// Returns when it runs.
    fn start(machine: &Machine, channel: &mut Channel<'_>, clock: &VirtualClock) -> Self {
        channel.start();
        let (kernel, memory) = (Fill::waiting(machine), machine.buffer(4096));
        let before = clock.now();
        let launch = kernel.describe_pointers(memory.va, memory.va + 64);
        kernel.launch(channel, &launch, memory.va + 128, 1);
        run_until(clock, before + Duration::from_millis(1));
        Self { memory, _kernel: kernel }
    }

    /// Ends it, and waits for its end.
    fn end(&self) {
        self.memory.u32(0).store(5, Ordering::Release);
        let start = Instant::now();
        while self.memory.u64(128).load(Ordering::Acquire) != 1 {
            assert!(start.elapsed() < DEADLINE, "the kernel does not end");
            std::thread::yield_now();
        }
    }
}

/// Waits until kernels have worked up to a moment.
fn run_until(clock: &VirtualClock, moment: Duration) {
    let start = Instant::now();
    while clock.now() < moment {
        assert!(start.elapsed() < DEADLINE, "nothing runs");
        std::thread::yield_now();
    }
}

fn log_has(machine: &Machine, part: &str) -> bool {
    machine.sim.kernel_log().iter().any(|line| line.contains(part))
}

fn notified(channel: &Channel<'_>) -> bool {
    channel.notifier.u32(12).load(Ordering::Acquire) >> 16 != 0
}

#[test]
fn what_needs_the_engine_is_busy_beside_a_kernel_that_does_not_give_way() {
    let (machine, clock) = beside(Session::Headless);
    let (mut first, second) = pair(&machine);
    let waiting = Waiting::start(&machine, &mut first, &clock);
    let start = clock.now();
    assert_eq!(alloc(&second, 0xc7c0), Err(Errno::EBUSY));
    assert!(clock.now() - start >= PREEMPTION);
    assert!(log_has(
        &machine,
        "preempt timed out for tsgid: 0, ctxsw timeout will trigger recovery if needed"
    ));
    assert_eq!(set_mode(&second, WFI), Err(Errno::EBUSY), "also when nothing is to change");
    assert_eq!(ask_bare(&machine.sim, first.fd.as_fd(), NVGPU_IOCTL_CHANNEL_PREEMPT), Err(Errno::EBUSY));
    assert!(!first.is_dead() && !second.is_dead());
    waiting.end();
    assert_eq!((alloc(&second, 0xc7c0), set_mode(&second, CILP)), (Ok(0), Ok(0)));
}

#[test]
fn between_instructions_a_kernel_gives_way_and_goes_on() {
    let (machine, clock) = beside(Session::Headless);
    let (mut first, second) = pair(&machine);
    assert_eq!(choose(&first, CILP), Ok(0));
    let waiting = Waiting::start(&machine, &mut first, &clock);
    assert_eq!((alloc(&second, 0xc7c0), set_mode(&second, CILP)), (Ok(0), Ok(0)));
    assert_eq!(set_mode(&second, CTA), Err(Errno::EINVAL), "modes only go up");
    // Another group gets the engine meanwhile.
    machine.settle();
    assert!(!first.is_dead());
    waiting.end();
}

#[test]
fn a_close_beside_a_kernel_that_does_not_give_way_tears_the_group_down_in_silence() {
    let (machine, clock) = beside(Session::Headless);
    let (mut first, second) = pair(&machine);
    let waiting = Waiting::start(&machine, &mut first, &clock);
    let id = second.token;
    machine.sim.close(second.fd).unwrap();
    assert!(log_has(&machine, &format!("Channel {id} unbind failed, tearing down TSG 0")));
    assert!(first.is_dead() && !notified(&first));
    // Running work continues; later work does not.
    waiting.end();
    first.submit(&release(waiting.memory.va + 256, 1));
    machine.settle();
    assert_eq!(waiting.memory.u64(256).load(Ordering::Acquire), 0);
}

#[test]
fn a_close_is_clean_where_kernels_give_way_and_the_channel_is_at_rest() {
    let (machine, clock) = beside(Session::Headless);
    let (mut first, second) = pair(&machine);
    assert_eq!(choose(&first, CILP), Ok(0));
    let waiting = Waiting::start(&machine, &mut first, &clock);
    machine.sim.close(second.fd).unwrap();
    assert!(!first.is_dead());
    waiting.end();
    // A channel at work is not at rest: its siblings go with it.
    let sibling = machine.channel_in(first.tsg.try_clone().unwrap());
    let _waiting = Waiting::start(&machine, &mut first, &clock);
    machine.sim.close(first.fd).unwrap();
    assert!(sibling.is_dead() && !notified(&sibling));
}

#[test]
fn a_kernel_that_does_not_end_is_silence_on_a_headless_machine() {
    let (machine, clock) = beside(Session::Headless);
    let mut channel = machine.channel();
    let waiting = Waiting::start(&machine, &mut channel, &clock);
    clock.advance(Duration::from_secs(3600));
    run_until(&clock, clock.now() + Duration::from_millis(100));
    assert!(!channel.is_dead() && !notified(&channel) && machine.sim.kernel_log().is_empty());
    waiting.end();
}

#[test]
fn beside_a_desktop_context_switch_time_adds_up_over_the_life_of_a_channel() {
    let (machine, clock) = on(VirtualClock::new(Duration::from_nanos(60)), Session::Desktop);
    let mut channel = machine.channel();
    for _ in 0..2 {
        let waiting = Waiting::start(&machine, &mut channel, &clock);
        run_until(&clock, clock.now() + Duration::from_millis(1200));
        assert!(!channel.is_dead());
        waiting.end();
    }
    let _waiting = Waiting::start(&machine, &mut channel, &clock);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT);
    assert!(log_has(&machine, "tsg=0, info: awaiting ack ms=3100"), "{:#?}", machine.sim.kernel_log());
}

#[test]
fn a_longer_limit_and_preemption_between_instructions_each_avoid_it() {
    for mode in [WFI, CILP] {
        let (machine, clock) = hurried(Session::Desktop);
        let mut channel = machine.channel();
        assert_eq!(choose(&channel, mode), Ok(0));
        if mode == WFI {
            let mut limit = nvgpu_set_timeout_ex_args { timeout: 60_000, flags: 0 };
            ask(&machine.sim, channel.fd.as_fd(), &mut limit).unwrap();
        }
        let waiting = Waiting::start(&machine, &mut channel, &clock);
        run_until(&clock, clock.now() + Duration::from_secs(4));
        assert!(!channel.is_dead());
        // The driver's lines come after the time that they are about.
        let start = Instant::now();
        while mode == WFI && !log_has(&machine, "Host pfifo ctxsw timeout error") {
            assert!(start.elapsed() < DEADLINE, "{:#?}", machine.sim.kernel_log());
            std::thread::yield_now();
        }
        assert_eq!(log_has(&machine, "Host pfifo ctxsw timeout error"), mode == WFI);
        waiting.end();
    }
}

/// Blocks that wait for the last of four, which sets a flag.
fn blocks_that_wait(machine: &Machine) -> (Fill, Buffer) {
    let (kernel, flag) = (Fill::load(machine), machine.buffer(4096));
    const BLOCK: u8 = 0x25;
    let code = [
        asm::mov(2, flag.va as u32),
        asm::mov(3, (flag.va >> 32) as u32),
        asm::s2r(0, BLOCK),
        asm::isetp_lt(0, 3),
        asm::if_p0(asm::branch(32)),
        asm::mov(1, 1),
        asm::stg(2, 0, 1),
        asm::ldg(4, 2, 0, 4),
        asm::isetp_lt(4, 1),
        asm::if_p0(asm::branch(-48)),
        asm::EXIT,
    ];
    let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    kernel.program.write(0, &bytes);
    (kernel, flag)
}

#[test]
fn a_grid_that_is_caught_half_launched_survives_unless_switches_are_between_blocks() {
    for (mode, survives) in [(WFI, true), (CILP, true), (CTA, false)] {
        let (machine, _clock) = hurried(Session::DesktopAfterBlocks(2));
        let mut channel = machine.channel();
        channel.start();
        assert_eq!(choose(&channel, mode), Ok(0));
        let (kernel, flag) = blocks_that_wait(&machine);
        let launch = kernel.describe(0, 0, 4).block([32, 1, 1]);
        kernel.launch(&mut channel, &launch, flag.va + 128, 1);
        if survives {
            channel.wait(flag.u64(128), 1);
        } else {
            assert_eq!(channel.wait_error(), NVGPU_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT);
        }
    }
}

#[test]
fn modes_are_set_as_the_order_of_classes_has_it() {
    let (machine, _clock) = beside(Session::Headless);
    let copies = machine.copy_channel();
    assert_eq!(mode(&machine), 0, "the copy class leaves the mode unset");
    assert_eq!(set_mode(&copies, CILP), Err(Errno::EINVAL), "the last class is the copy engine's");
    assert_eq!(alloc(&copies, 0xc7c0), Ok(0));
    assert_eq!(mode(&machine), 0, "and the context counts as initialized");
    assert_eq!(set_mode(&copies, CILP), Ok(0));
    assert_eq!(mode(&machine), CILP);
    drop(copies);
    let (machine, _clock) = beside(Session::Headless);
    let both = machine.channel();
    assert_eq!(mode(&machine), WFI, "the compute class sets the default");
    assert_eq!(set_mode(&both, CILP), Err(Errno::EINVAL), "the last class is the copy engine's");
    assert_eq!(set_mode(&both, WFI), Ok(0), "what is set already is accepted");
}

#[test]
fn a_driver_without_preemption_between_instructions_says_so() {
    let machine =
        Machine::with(SimConfig { sm_count: 4, memory: 4 << 30, cilp: false, ..SimConfig::default() });
    let channel = machine.channel();
    assert_eq!(alloc(&channel, 0xc7c0), Ok(0));
    assert_eq!((set_mode(&channel, CILP), set_mode(&channel, CTA)), (Err(Errno::EINVAL), Ok(0)));
    let mut all = nvgpu_gpu_characteristics::default();
    let mut args = nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: 328,
        gpu_characteristics_buf_addr: (&raw mut all) as u64,
    };
    ask(&machine.sim, machine.ctrl.as_fd(), &mut args).unwrap();
    assert_eq!(all.compute_preemption_mode_flags, WFI | CTA);
}

/// A client that abandons a kernel frees the kernel's memory: the fault that follows is none of the kernel's.
#[test]
fn memory_that_is_unmapped_under_a_running_kernel_is_named_in_the_fault() {
    let (machine, clock) = beside(Session::Headless);
    let mut channel = machine.channel();
    let waiting = Waiting::start(&machine, &mut channel, &clock);
    let mut unmap = nvgpu_as_unmap_buffer_args { offset: waiting.memory.va };
    ask(&machine.sim, machine.space.as_fd(), &mut unmap).unwrap();
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT);
    let begin = format!("the program unmapped {:#x} ", waiting.memory.va);
    let start = Instant::now();
    let advice = "If it gave up, let it wait longer";
    while !machine.sim.faults().iter().any(|text| text.starts_with(&begin) && text.contains(advice)) {
        assert!(start.elapsed() < DEADLINE, "{:?}", machine.sim.faults());
        std::thread::yield_now();
    }
}
