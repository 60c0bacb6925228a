//! The steps: the claim of each, the expected result, and the remedy where it differs.

use std::time::Duration;

use crate::bringup::rig::Platform;

/// One step, as it is planned.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its number, from 1.
    pub number: u32,
    /// Its name.
    pub title: &'static str,
    /// Claim that it proves.
    pub proves: &'static str,
    /// Expected result. The step fails where work is not done; other differences are facts of its result.
    pub expects: &'static str,
    /// Remedy where the result differs.
    pub remedy: &'static str,
    /// Remedy where the driver answers `EBUSY`.
    pub busy: Option<&'static str>,
    /// The steps it rests on: it means nothing when one of these failed.
    pub needs: &'static [u32],
    /// Why a desktop GPU has nothing to do here; `None` where it has.
    pub jetson_only: Option<&'static str>,
    /// Notice to the user before it runs.
    pub notice: Option<&'static str>,
    /// An environment variable and its value, with which the step runs first: if that passes and the step
    /// itself does not, the defect is in the part that the variable leaves out.
    pub first_with: Option<(&'static str, &'static str)>,
    /// Time limit, after which its process is ended.
    pub deadline: Duration,
}

/// A step without the rare parts.
const fn step(number: u32, title: &'static str, needs: &'static [u32]) -> Step {
    Step {
        number,
        title,
        proves: "",
        expects: "",
        remedy: "",
        busy: None,
        needs,
        jetson_only: None,
        notice: None,
        first_with: None,
        deadline: Duration::from_secs(60),
    }
}

impl Step {
    const fn says(mut self, proves: &'static str, expects: &'static str, remedy: &'static str) -> Self {
        (self.proves, self.expects, self.remedy) = (proves, expects, remedy);
        self
    }

    const fn if_busy(mut self, busy: &'static str) -> Self {
        self.busy = Some(busy);
        self
    }

    const fn on_jetsons(mut self, why: &'static str) -> Self {
        self.jetson_only = Some(why);
        self
    }

    const fn announced(mut self, notice: &'static str) -> Self {
        self.notice = Some(notice);
        self
    }

    const fn within(mut self, seconds: u64) -> Self {
        self.deadline = Duration::from_secs(seconds);
        self
    }

    const fn first_with(mut self, variable: &'static str, value: &'static str) -> Self {
        self.first_with = Some((variable, value));
        self
    }

    /// Returns the remedies for all answers of the driver.
    #[must_use]
    pub fn if_not(&self) -> String {
        match self.busy {
            Some(busy) => format!("EBUSY: {busy}. Else: {}", self.remedy),
            None => self.remedy.to_owned(),
        }
    }

    /// Why it is not run on a platform.
    #[must_use]
    pub fn skipped_on(&self, platform: Platform) -> Option<&'static str> {
        self.jetson_only.filter(|_| platform == Platform::Desktop)
    }
}

/// Numbers of the steps that run `llm-demo`.
pub const WITH_MODEL: std::ops::RangeInclusive<u32> = 20..=SOAK;

/// Number of the step whose duration is an option.
pub const SOAK: u32 = 21;

/// Numbers of the steps whose work settings of `hcq` decide: submissions, launches, chains.
pub const WITH_SETTINGS: std::ops::RangeInclusive<u32> = 9..=16;

/// Attach the file that this command writes.
const REPORT: &str = "report it with the file that this command writes";

/// All steps, in order.
pub const STEPS: [Step; 21] = [
    step(1, "the machine", &[]).says(
        "the nodes can be opened by this user",
        "no bad check of `nvdiag doctor`, and the driver's nodes open",
        "`nvdiag doctor` names what to do for each check",
    ),
    step(2, "what the GPU is", &[1]).says(
        "the GPU is one that this program can use, and what the driver says of it",
        "an answer, and no chip of another module; as facts: ga10b, 328 bytes of characteristics, SM 8.7, classes \
         C7C0, C7B5, C76F, no big pages, I/O coherence",
        "a chip that is no ga10b cannot be used; `nvdiag info --all` prints every field",
    ),
    step(3, "its size", &[2]).says(
        "the driver counts the SMs, which stacks and grids are sized by",
        "a number; as facts: 2 to 16, even (16 on a full AGX Orin, 8 in its 30 W mode), and a heap about as large \
         as the RAM",
        "`sudo nvpmodel -q` shows the power mode; a refused heap query costs the size alone",
    ),
    step(4, "memory", &[2])
        .says(
            "nvmap allocates, and two CPU mappings see the same bytes",
            "write-combined and cacheable memory: zeroed, keeps a pattern; as a fact: handles from 0x80000000 on",
            "a refused request names what this nvmap lacks; memory that is used up: `nvdiag doctor`",
        )
        .on_jetsons("nvmap is a Jetson's; memory of this driver is part of the steps from 11 on"),
    step(5, "addresses", &[2])
        .says(
            "the driver's address allocator gives what is asked for: windows and buffers lie where they must",
            "an address space, and three reservations returned unchanged",
            "the error names the request and the address that this driver gives otherwise: report it with the file",
        )
        .on_jetsons("the desktop driver lays out addresses by itself"),
    step(6, "the doorbell", &[2])
        .says(
            "a channel group opens and the user-mode register page can be mapped",
            "a mapping; as facts: its first word, a running time, EBUSY for a second mapping",
            "the error names the request: report it with the file; a bus error: the GPU is powered off (step 17)",
        )
        .if_busy("another mapping of this process")
        .on_jetsons("the desktop driver's doorbell is part of the steps from 11 on"),
    step(7, "a channel", &[4, 5, 6])
        .says(
            "a channel binds to address space and group, and takes our ring: in the asynchronous subcontext \
             (VEID 1), which ran on an Orin, then in the synchronous one (VEID 0)",
            "a token in one of them; as a fact: 511 on an idle machine, a lower one beside other programs",
            "the error names the request; one subcontext is enough, and the table of settings says for what",
        )
        .on_jetsons("requests of nvgpu"),
    step(8, "its context", &[7])
        .says(
            "the GPU's firmware makes a context",
            "compute and copy object; about 1 s the first time after boot, then about 1 ms; as a fact: whether \
             preemption between instructions (CILP) is accepted. One warning about the RTV circular buffer in the \
             kernel log is harmless",
            "the error names the request: report the kernel log with the file",
        )
        .if_busy("another program runs a kernel that cannot be preempted: end it")
        .on_jetsons("requests of nvgpu"),
    step(9, "the first submission", &[8])
        .says(
            "the host engine fetches our ring and our commands, and its write reaches the CPU: in both \
             subcontexts, from cacheable and from write-combined commands, into both kinds of memory",
            "the values within milliseconds for one of the four; as facts: which, when GP_GET follows, how far the \
             release's time is from GET_GPU_TIME",
            "none works: report the kernel log with the file; the table of settings shows what hcq gets done",
        )
        .on_jetsons("the ring is written here by hand; step 11 makes the first submission of this driver"),
    step(10, "the memory windows", &[9])
        .says(
            "the compute engine takes both windows",
            "a release after them in one subcontext, and no `sked exception` in the kernel log; without that log \
             the step is not seen",
            "windows that overlap, or lie where the driver has its own range",
        )
        .on_jetsons("methods written by hand; step 12 sets them on this driver"),
    step(11, "the copy engine", &[1, 3, 10]).says(
        "the copy engine moves data, over page borders",
        "4 KiB, then 64 MiB: identical",
        "`nvdiag esr` explains what the driver logged",
    ),
    step(12, "the first kernel", &[11])
        .says(
            "a launch descriptor of ours is accepted and its code runs",
            "one block stores a constant: with the descriptor closest to what ran on an Orin before \
             (HCQ_CONSERVATIVE=1), then with hcq's own",
            "the table of settings after the steps names the shortest change that works: report the file",
        )
        .first_with("HCQ_CONSERVATIVE", "1"),
    step(13, "the stack", &[12]).says(
        "local memory is large enough for every warp of every SM",
        "each thread of a full GPU finds its own pattern again",
        REPORT,
    ),
    step(14, "coherency", &[12])
        .says(
            "CPU and GPU see each other's writes to the same lines, in both directions",
            "0 words that differ; again with buffers that the GPU's cache may keep (HCQ_GPU_CACHE=on)",
            "with the cache on alone: leave HCQ_GPU_CACHE unset. Else: report it, and use nothing until then",
        )
        .within(180),
    step(15, "atomics", &[12]).says(
        "atomic operations on memory of the CPU lose nothing",
        "grid-wide counters: exact",
        "the driver's setting of system-memory atomics: report it with the file",
    ),
    step(16, "chains of launches", &[12])
        .says(
            "launches schedule each other, the last one releases its own semaphore, and the rings wrap",
            "300 dependent launches in one submission, and more submissions than the ring has entries: exact",
            "the table of settings after the steps names the shortest change that works: report the file",
        )
        .within(120),
    step(17, "idle and awake", &[12]).says(
        "the doorbell stays usable while a channel keeps the GPU powered, and the GPU wakes up again",
        "no bus error after 2 s of idleness, and a new device after 2 s without any",
        "runtime power management: cat /sys/class/devfreq/17000000.gpu/device/power/control; `on` keeps it awake",
    ),
    step(18, "queues beside a running kernel", &[12]).says(
        "queues open and close while a kernel of half a second runs, and it is not disturbed",
        "all work ends; as a fact: no teardown of a channel group in the kernel log, without which the step is not \
         seen",
        "open all queues before the first launch, and close them after the last",
    ),
    step(19, "faults", &[12])
        .says(
            "what goes wrong is reported, with address and channel, and stops this program's channel alone",
            "unmapped load, misaligned load, window and trap: each reported, the last three as their kind, and a \
             new device works after each; as facts: notifier, GET_TIMEDOUT and how late it comes, the log's lines",
            "report the kernel log with the file; where the machine needs a reboot now, that of the last boot \
             (journalctl -k -b -1)",
        )
        .announced(
            "provokes GPU faults on purpose, which the driver logs; by its source it stops this program's \
             channel alone. Save your work all the same",
        ),
    step(20, "a language model", &[13, 15, 16])
        .says(
            "everything together: a language model computes on the GPU what it computes on the CPU",
            "`llm-demo verify`: logits of the embedded model within the bounds of the CPU reference, with engines \
             `batch` and `stream`. Not run where llm-demo is not installed beside nvdiag",
            "`llm-demo verify` by hand shows each bound; `--engine batch` is the same without the persistent step",
        )
        .within(600),
    step(SOAK, "beside other work", &[17, 18, 20])
        .says(
            "a long run beside other users of the GPU",
            "`llm-demo verify --greedy`, again and again: the same tokens by both engines, and no notifier 8; as a fact: no late context switch in the kernel log",
            "notifier 8: the context-switch budget; `systemctl isolate multi-user.target` ends the desktop",
        )
        .announced(
            "loads the GPU for as long as --soak says; for the real test open a desktop and a WebGL page first, \
             and give it an hour",
        )
        .within(300),
];

/// The step of a number.
#[must_use]
pub fn find(number: u32) -> Option<&'static Step> {
    STEPS.iter().find(|step| step.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_in_order_and_rest_on_earlier_ones() {
        for (step, number) in STEPS.iter().zip(1..) {
            assert_eq!(step.number, number);
            assert!(step.needs.iter().all(|needed| *needed < number), "step {number}");
            for text in [step.title, step.proves, step.expects, step.remedy] {
                assert!(!text.is_empty() && !text.contains('\n'), "step {number}");
            }
        }
    }

    #[test]
    fn a_desktop_gpu_needs_no_step_that_it_skips_but_through_others() {
        let skipped: Vec<u32> =
            STEPS.iter().filter(|s| s.skipped_on(Platform::Desktop).is_some()).map(|s| s.number).collect();
        assert_eq!(skipped, [4, 5, 6, 7, 8, 9, 10]);
    }
}
