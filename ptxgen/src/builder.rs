//! Writes the body of one kernel: registers, parameters, control flow.
//!
//! Every method takes `&self`, so that expressions nest (`k.add(k.mul(a, b), c)`) and bodies are closures.

use std::cell::RefCell;
use std::fmt;

use crate::layout::Layout;
use crate::pointer::{Global, Multiple, Pointer, Shared};
use crate::reg::{Operand, Pred, Raw, Reg};
use crate::target::{Target, Version};
use crate::ty::{Class, Element, Int, Kind, Number, Ordered, Ty};

/// Requirement on one parameter of a kernel; the kernel's caller must meet it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contract {
    /// A scalar without conditions.
    Any,
    /// A pointer to global memory, aligned to this many bytes.
    Aligned(u32),
    /// A scalar that is a multiple of this.
    MultipleOf(u32),
}

/// One parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the PTX, made of the kernel's and this.
    pub name: String,
    /// PTX type: `u64`, `f32`.
    pub ty: &'static str,
    /// Size and natural alignment in bytes.
    pub bytes: u32,
    /// The requirement that the generated code relies on.
    pub contract: Contract,
}

#[derive(Default)]
struct State {
    lines: Vec<String>,
    registers: [u32; Class::ALL.len()],
    labels: u32,
    params: Vec<Param>,
    shared: Vec<(String, u32, u64)>,
    tables: Vec<(String, Vec<u32>)>,
    dynamic_shared: Option<u32>,
    max_threads: Option<u32>,
    min_blocks: Option<u32>,
    max_registers: Option<u32>,
    rolled: bool,
    version: Version,
    /// The instruction that asks for the newest target.
    needs: Option<(Target, &'static str)>,
}

/// A kernel being written.
pub struct Kernel {
    name: String,
    state: RefCell<State>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        write!(f, "Kernel({}, {} parameters, {} lines)", self.name, state.params.len(), state.lines.len())
    }
}

/// A place in the code to branch to. Bind it once with [`Kernel::bind`].
#[derive(Clone, Copy, Debug)]
pub struct Label(u32);

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

/// A loop being written: how its body leaves it.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    head: Label,
    end: Label,
}

/// Special registers: values that a thread can read about itself and its launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Special {
    TidX,
    TidY,
    TidZ,
    NtidX,
    NtidY,
    NtidZ,
    CtaidX,
    CtaidY,
    CtaidZ,
    NctaidX,
    NctaidY,
    NctaidZ,
    LaneId,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskEq,
    LaneMaskGt,
    LaneMaskGe,
    SmId,
    NsmId,
    Clock,
}

impl Special {
    const fn name(self) -> &'static str {
        match self {
            Special::TidX => "%tid.x",
            Special::TidY => "%tid.y",
            Special::TidZ => "%tid.z",
            Special::NtidX => "%ntid.x",
            Special::NtidY => "%ntid.y",
            Special::NtidZ => "%ntid.z",
            Special::CtaidX => "%ctaid.x",
            Special::CtaidY => "%ctaid.y",
            Special::CtaidZ => "%ctaid.z",
            Special::NctaidX => "%nctaid.x",
            Special::NctaidY => "%nctaid.y",
            Special::NctaidZ => "%nctaid.z",
            Special::LaneId => "%laneid",
            Special::LaneMaskLt => "%lanemask_lt",
            Special::LaneMaskLe => "%lanemask_le",
            Special::LaneMaskEq => "%lanemask_eq",
            Special::LaneMaskGt => "%lanemask_gt",
            Special::LaneMaskGe => "%lanemask_ge",
            Special::SmId => "%smid",
            Special::NsmId => "%nsmid",
            Special::Clock => "%clock",
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl Kernel {
    /// Starts an empty kernel.
    ///
    /// # Panics
    /// If `name` is no PTX identifier: that is a mistake in the program, not in its input.
    pub fn new(name: &str) -> Self {
        assert!(is_identifier(name), "{name:?} is no PTX identifier");
        Self { name: name.to_owned(), state: RefCell::default() }
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters declared so far, in order.
    pub fn params(&self) -> Vec<Param> {
        self.state.borrow().params.clone()
    }

    /// Promises that blocks never have more threads, which lets ptxas spend more registers (`.maxntid`).
    pub fn max_threads(&self, threads: u32) {
        self.state.borrow_mut().max_threads = Some(threads);
    }

    /// Limits registers so that this many blocks of [`Kernel::max_threads`] threads fit on an SM
    /// (`.minnctapersm`).
    pub fn min_blocks_per_sm(&self, blocks: u32) {
        self.state.borrow_mut().min_blocks = Some(blocks);
    }

    /// Gives every thread at most `count` registers (`.maxnreg`). Where warpgroups exchange registers, it is
    /// what each has when a block begins.
    pub fn max_registers(&self, count: u32) {
        self.state.borrow_mut().max_registers = Some(count);
    }

    /// Keeps ptxas from unrolling loops (`.pragma "nounroll"`): less code, and as many instructions in flight
    /// as are written.
    pub fn keep_loops(&self) {
        self.state.borrow_mut().rolled = true;
    }

    /// Has the kernel begin with the code that `first` writes, before all code written so far.
    pub fn begin_with(&self, first: impl FnOnce(&Self)) {
        let rest = std::mem::take(&mut self.state.borrow_mut().lines);
        first(self);
        self.state.borrow_mut().lines.extend(rest);
    }

    /// Raises the PTX version that the module must state.
    pub(crate) fn require(&self, version: Version) {
        let mut state = self.state.borrow_mut();
        state.version = state.version.max(version);
    }

    /// As [`Kernel::require`], for an instruction that targets before `since` lack.
    pub(crate) fn require_target(&self, instruction: &'static str, since: Target, version: Version) {
        self.require(version);
        let mut state = self.state.borrow_mut();
        if state.needs.is_none_or(|(target, _)| target < since) {
            state.needs = Some((since, instruction));
        }
    }

    /// The oldest target that has all instructions used so far, and the one that asks for it; `None` if every
    /// [`Target`] has them.
    pub fn needs(&self) -> Option<(Target, &'static str)> {
        self.state.borrow().needs
    }

    pub(crate) fn version(&self) -> Version {
        self.state.borrow().version
    }

    pub(crate) fn emit(&self, line: String) {
        self.state.borrow_mut().lines.push(line);
    }

    /// A new register whose value is undefined until something is assigned to it.
    pub fn reg<T: Ty>(&self) -> Reg<T> {
        Reg::new(self.raw_reg(T::CLASS).id)
    }

    pub(crate) fn raw_reg(&self, class: Class) -> Raw {
        let mut state = self.state.borrow_mut();
        let count = &mut state.registers[class as usize];
        *count += 1;
        Raw { class, id: *count }
    }

    /// A parameter without conditions. [`kernel_params!`](crate::kernel_params) declares all of a kernel.
    pub fn param<T: Ty>(&self, name: &str) -> Reg<T> {
        self.list::<T>(name, Contract::Any);
        self.load_param(name)
    }

    /// A parameter that the caller promises is a multiple of `of`.
    pub fn param_multiple(&self, name: &str, of: u32) -> Multiple {
        self.list_multiple(name, of);
        Multiple::promised(self.load_param(name), of)
    }

    /// A pointer into global memory that the caller promises is aligned to `align` bytes.
    ///
    /// # Panics
    /// If `align` is no power of two.
    pub fn param_ptr<E: Element>(&self, name: &str, align: u32) -> Pointer<Global, E> {
        self.list_pointer(name, align);
        self.load_pointer(name, align)
    }

    /// Lists a parameter, whose value [`Kernel::load_param`] loads.
    pub(crate) fn list<T: Ty>(&self, name: &str, contract: Contract) {
        assert!(T::BYTES > 0, "parameter {name} cannot be a predicate");
        let ty = if T::KIND == Kind::Opaque { "b32" } else { T::NAME };
        let name = format!("{}_{name}", self.name);
        let mut state = self.state.borrow_mut();
        assert!(state.params.iter().all(|p| p.name != name), "parameter {name} is declared twice");
        state.params.push(Param { name, ty, bytes: T::BYTES, contract });
    }

    pub(crate) fn list_multiple(&self, name: &str, of: u32) {
        self.list::<u32>(name, Contract::MultipleOf(of));
    }

    pub(crate) fn list_pointer(&self, name: &str, align: u32) {
        assert!(align.is_power_of_two(), "alignment {align} of parameter {name} is no power of two");
        self.list::<u64>(name, Contract::Aligned(align));
    }

    pub(crate) fn load_param<T: Ty>(&self, name: &str) -> Reg<T> {
        let value = self.reg::<T>();
        let ty = match (T::KIND, T::BYTES) {
            (Kind::Opaque, _) => "b32",
            (Kind::Float, 2) => "b16",
            _ => T::NAME,
        };
        self.emit(format!("ld.param.{ty} {value}, [{}_{name}];", self.name));
        value
    }

    pub(crate) fn load_pointer<E: Element>(&self, name: &str, align: u32) -> Pointer<Global, E> {
        let generic = self.load_param::<u64>(name);
        let address = self.reg::<u64>();
        self.emit(format!("cvta.to.global.u64 {address}, {generic};"));
        Pointer::aligned(address, align)
    }

    /// A table of the module in global memory, aligned to 16 bytes, which the module is loaded with. Kernels of a
    /// module that name the same table share it.
    ///
    /// # Panics
    /// If `name` is no PTX identifier, or `words` are none.
    pub fn table(&self, name: &str, words: &[u32]) -> Pointer<Global, u32> {
        assert!(is_identifier(name) && !words.is_empty(), "table {name:?} of {} words", words.len());
        let mut state = self.state.borrow_mut();
        if state.tables.iter().all(|(known, _)| known != name) {
            state.tables.push((name.to_owned(), words.to_vec()));
        }
        drop(state);
        let address = self.reg::<u64>();
        self.emit(format!("mov.u64 {address}, {name};"));
        Pointer::aligned(address, Layout::MAX_ACCESS)
    }

    /// The tables that the kernel names, with their words.
    pub(crate) fn tables(&self) -> Vec<(String, Vec<u32>)> {
        self.state.borrow().tables.clone()
    }

    /// A shared-memory array of `len` elements, aligned to 16 bytes.
    pub fn shared<E: Element>(&self, len: u32) -> Pointer<Shared, E> {
        let mut state = self.state.borrow_mut();
        let name = format!("{}_s{}", self.name, state.shared.len());
        state.shared.push((name.clone(), Layout::MAX_ACCESS, u64::from(len) * u64::from(E::SIZE)));
        drop(state);
        self.symbol(&name, Layout::MAX_ACCESS)
    }

    /// The shared memory whose size the launch sets, aligned to 16 bytes. All calls name the same memory.
    pub fn dynamic_shared<E: Element>(&self) -> Pointer<Shared, E> {
        self.dynamic_shared_aligned(Layout::MAX_ACCESS)
    }

    /// The same, aligned to `align` bytes. The kernel must have no other shared memory, which would come
    /// first.
    ///
    /// # Panics
    /// If `align` is no power of two from 16 to 1024, where shared memory begins.
    pub fn dynamic_shared_aligned<E: Element>(&self, align: u32) -> Pointer<Shared, E> {
        assert!(align.is_power_of_two() && (Layout::MAX_ACCESS..=1024).contains(&align), "alignment {align}");
        let mut state = self.state.borrow_mut();
        let all = state.dynamic_shared.unwrap_or_default().max(align);
        state.dynamic_shared = Some(all);
        drop(state);
        self.symbol(&format!("{}_dynamic", self.name), align)
    }

    fn symbol<E: Element>(&self, name: &str, align: u32) -> Pointer<Shared, E> {
        let address = self.reg::<u32>();
        self.emit(format!("mov.u32 {address}, {name};"));
        Pointer::aligned(address, align)
    }

    /// Reads a special register.
    pub fn special(&self, which: Special) -> Reg<u32> {
        let d = self.reg();
        self.emit(format!("mov.u32 {d}, {};", which.name()));
        d
    }

    /// A register holding `value`, to be changed later with [`Kernel::set`].
    pub fn var<T: Ty>(&self, value: impl Operand<T>) -> Reg<T> {
        let d = self.reg();
        self.set(d, value);
        d
    }

    /// Assigns to an existing register.
    pub fn set<T: Ty>(&self, d: Reg<T>, value: impl Operand<T>) {
        let ty = match T::CLASS {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B32 => "b32",
            Class::B64 => "b64",
            Class::B128 => "b128",
            Class::F32 => "f32",
            Class::F64 => "f64",
        };
        self.emit(format!("mov.{ty} {d}, {};", value.text()));
    }

    /// A comment line in the PTX.
    pub fn comment(&self, text: &str) {
        for line in text.lines() {
            self.emit(format!("// {line}"));
        }
    }

    // Control flow.

    /// A new label, not yet in the code.
    pub fn label(&self) -> Label {
        let mut state = self.state.borrow_mut();
        state.labels += 1;
        Label(state.labels)
    }

    /// Puts `label` here.
    pub fn bind(&self, label: Label) {
        self.emit(format!("{label}:"));
    }

    /// Jumps.
    pub fn branch(&self, to: Label) {
        self.emit(format!("bra {to};"));
    }

    /// Jumps where `p` holds.
    pub fn branch_if(&self, p: Pred, to: Label) {
        self.emit(format!("@{p} bra {to};"));
    }

    /// Jumps where `p` does not hold.
    pub fn branch_unless(&self, p: Pred, to: Label) {
        self.emit(format!("@!{p} bra {to};"));
    }

    /// Ends the thread.
    pub fn exit(&self) {
        self.emit("exit;".to_owned());
    }

    /// Ends the threads in which `p` holds.
    pub fn exit_if(&self, p: Pred) {
        self.emit(format!("@{p} exit;"));
    }

    /// Ends the launch with an error.
    pub fn trap(&self) {
        self.emit("trap;".to_owned());
    }

    /// Gives other warps the time of about `nanoseconds`, at most 1,000,000.
    pub fn sleep(&self, nanoseconds: u32) {
        self.emit(format!("nanosleep.u32 {nanoseconds};"));
    }

    /// Runs `then` in the threads where `p` holds.
    pub fn if_(&self, p: Pred, then: impl FnOnce()) {
        let end = self.label();
        self.branch_unless(p, end);
        then();
        self.bind(end);
    }

    /// Runs `then` where `p` holds, `otherwise` where not.
    pub fn if_else(&self, p: Pred, then: impl FnOnce(), otherwise: impl FnOnce()) {
        let (no, end) = (self.label(), self.label());
        self.branch_unless(p, no);
        then();
        self.branch(end);
        self.bind(no);
        otherwise();
        self.bind(end);
    }

    /// Repeats `body` until it leaves through its [`Loop`].
    pub fn loop_(&self, body: impl FnOnce(Loop)) {
        let (head, end) = (self.label(), self.label());
        self.bind(head);
        body(Loop { head, end });
        self.branch(head);
        self.bind(end);
    }

    /// Leaves the loop where `p` holds.
    pub fn break_if(&self, l: Loop, p: Pred) {
        self.branch_if(p, l.end);
    }

    /// Starts the next iteration where `p` holds.
    pub fn continue_if(&self, l: Loop, p: Pred) {
        self.branch_if(p, l.head);
    }

    /// Counts from `start` in steps of `step` while below `end`. The counter must not overflow.
    pub fn for_<T: Int + Ordered>(
        &self,
        start: impl Operand<T>,
        end: impl Operand<T>,
        step: impl Operand<T>,
        body: impl FnOnce(Reg<T>),
    ) {
        let i = self.var(start);
        let (head, done) = (self.label(), self.label());
        self.branch_if(self.ge(i, end), done);
        self.bind(head);
        body(i);
        self.emit(format!("add{}.{} {i}, {i}, {};", <T as Number>::ADD, T::NAME, step.text()));
        self.branch_if(self.lt(i, end), head);
        self.bind(done);
    }

    /// Ends the kernel's text with a return and writes it whole.
    pub(crate) fn render(&self, out: &mut String) {
        use std::fmt::Write;
        let state = self.state.borrow();
        let mut text = String::new();
        if let Some(align) = state.dynamic_shared {
            let _ = writeln!(text, ".extern .shared .align {align} .b8 {}_dynamic[];", self.name);
        }
        let _ = write!(text, ".visible .entry {}(", self.name);
        for (i, p) in state.params.iter().enumerate() {
            let _ = write!(
                text,
                "{}\n    .param .{} {}",
                if i == 0 { "" } else { "," },
                p.ty.replace("f16", "b16"),
                p.name
            );
        }
        text.push_str(if state.params.is_empty() { ")\n" } else { "\n)\n" });
        if let Some(threads) = state.max_threads {
            let _ = writeln!(text, ".maxntid {threads}, 1, 1");
        }
        if let Some(blocks) = state.min_blocks {
            let _ = writeln!(text, ".minnctapersm {blocks}");
        }
        if let Some(count) = state.max_registers {
            let _ = writeln!(text, ".maxnreg {count}");
        }
        if state.rolled {
            text.push_str(".pragma \"nounroll\";\n");
        }
        text.push_str("{\n");
        for class in Class::ALL {
            let count = state.registers[class as usize];
            if count > 0 {
                let (prefix, ty) = class.names();
                let _ = writeln!(text, "    .reg {ty} {prefix}<{}>;", count + 1);
            }
        }
        for (name, align, bytes) in &state.shared {
            let _ = writeln!(text, "    .shared .align {align} .b8 {name}[{bytes}];");
        }
        for line in &state.lines {
            let indent = if line.ends_with(':') { "" } else { "    " };
            let _ = writeln!(text, "{indent}{line}");
        }
        text.push_str("    ret;\n}\n");
        out.push_str(&text);
    }
}
