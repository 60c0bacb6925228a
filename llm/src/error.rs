//! The errors of this crate.

use std::path::PathBuf;

use crate::tensor_type::GgmlType;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of reading, writing or running a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The operation: "open", "map", "write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: it {}; convert the model with llama.cpp's converter", begins(found))]
    NotGguf {
        /// The bytes found instead, up to four.
        found: Vec<u8>,
    },
    /// A container version that is not supported.
    #[error("GGUF version {version} is not supported (2 and 3 are); convert the model again")]
    Version {
        /// The version in the header.
        version: u32,
    },
    /// A version number with swapped bytes: the file is for a big-endian machine.
    #[error("the GGUF file is big-endian; convert the model again for a little-endian machine")]
    BigEndian,
    /// The file ends before the end of an element.
    #[error(
        "{what} at byte {offset} needs {} bytes but {left} are left: the file is cut short or damaged, download it \
         again",
        bytes(*needed)
    )]
    Truncated {
        /// The part being read.
        what: String,
        /// Its start, in bytes from the start of the file.
        offset: u64,
        /// Its size, in bytes (of a list: the least size of its elements).
        needed: u64,
        /// Bytes from `offset` to the end of the file.
        left: u64,
    },
    /// A string that is not UTF-8.
    #[error("{what} at byte {offset} is not valid UTF-8")]
    Text {
        /// The part being read.
        what: String,
        /// Its start, in bytes from the start of the file.
        offset: u64,
    },
    /// A metadata value type that GGUF does not define.
    #[error("key {key:?} has value type {id}, GGUF defines 0 to 12")]
    ValueType {
        /// The metadata key.
        key: String,
        /// The type number found.
        id: u32,
    },
    /// Arrays nested too deeply.
    #[error("key {key:?} nests arrays deeper than {limit} levels")]
    Nesting {
        /// The metadata key.
        key: String,
        /// The deepest supported nesting.
        limit: usize,
    },
    /// Two metadata values under one key.
    #[error("key {key:?} appears twice{}", if *differ { ", with different values" } else { "" })]
    DuplicateKey {
        /// The metadata key.
        key: String,
        /// Whether the two values differ.
        differ: bool,
    },
    /// Two tensors of one name.
    #[error("tensor {name:?} appears twice")]
    DuplicateTensor {
        /// The tensor.
        name: String,
    },
    /// `general.alignment` is not a power of two up to 65536.
    #[error("general.alignment is {value}, it must be a power of two from 1 to 65536")]
    Alignment {
        /// The value found.
        value: u64,
    },
    /// A tensor with no or too many dimensions.
    #[error(
        "tensor {name:?} has {rank} dimensions, GGUF has tensors of 1 to 4: the file is damaged or made wrong"
    )]
    Rank {
        /// The tensor.
        name: String,
        /// Number of dimensions in the file.
        rank: u32,
    },
    /// A tensor without values.
    #[error("tensor {name:?} has dimensions {dims:?}, none may be zero")]
    Dimensions {
        /// The tensor.
        name: String,
        /// The dimensions in the file.
        dims: Vec<u64>,
    },
    /// An unknown tensor type.
    #[error("tensor {name:?} has type {id}, which is unknown")]
    TensorType {
        /// The tensor.
        name: String,
        /// The type number found.
        id: u32,
    },
    /// A row that is not a whole number of quantization blocks.
    #[error("tensor {name:?} has rows of {row} values; in {ty} they must be multiples of {block}")]
    PartialBlock {
        /// The tensor.
        name: String,
        /// Its type.
        ty: GgmlType,
        /// Values in a row.
        row: u64,
        /// Values in a block, or the values that kernels take together.
        block: u64,
    },
    /// A tensor whose size does not fit 64 bits.
    #[error("tensor {name:?} with dimensions {dims:?} is larger than any memory")]
    TensorSize {
        /// The tensor.
        name: String,
        /// Its dimensions.
        dims: Vec<u64>,
    },
    /// A tensor that does not start at a multiple of the file's alignment.
    #[error("tensor {name:?} starts at offset {offset}, which is not a multiple of {alignment}")]
    Misaligned {
        /// The tensor.
        name: String,
        /// Offset in the data section, in bytes.
        offset: u64,
        /// The file's alignment, in bytes.
        alignment: u64,
    },
    /// One part, in memory, of a model split over several files.
    #[error("the model is split over {count} files, of which this is one; open the first by its path")]
    Split {
        /// The number of files.
        count: u64,
    },
    /// A file of a split model whose name does not say which one it is.
    #[error(
        "this is file {number} of the {count} of a split model, whose name ends with {ending:?}; give all files the \
         names that they were downloaded with"
    )]
    SplitName {
        /// The file's number, from 1.
        number: u64,
        /// The number of files.
        count: u64,
        /// The ending of its name.
        ending: String,
    },
    /// A file of a split model that is not the first.
    #[error("this is file {number} of the {count} of a split model; give the first: {}", first.display())]
    SplitNumber {
        /// The file's number, from 1.
        number: u64,
        /// The number of files.
        count: u64,
        /// The path of the first file.
        first: PathBuf,
    },
    /// A further file of a split model that is missing, damaged or of another model.
    #[error(
        "file {number} of the {count} of the split model, {}, cannot be used; all of them must be in one folder, from \
         one download",
        path.display()
    )]
    SplitFile {
        /// The file's number, from 1.
        number: u64,
        /// The number of files.
        count: u64,
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        source: Box<Error>,
    },
    /// Files of a split model that hold another number of tensors together than the first one says.
    #[error(
        "key \"split.tensors.count\" is {expected}, and the {count} files hold {found} tensors: one of them is of \
         another model; download all of them again"
    )]
    SplitTensors {
        /// Tensors by the key.
        expected: u64,
        /// Tensors in the files.
        found: u64,
        /// The number of files.
        count: u64,
    },
    /// A metadata key that the model needs is absent.
    #[error("key {key:?} is missing, the file does not describe a whole model")]
    MissingKey {
        /// The metadata key.
        key: String,
    },
    /// A metadata key that may change what the model computes, and is not supported.
    #[error("key {key:?} may change what the model computes and is not supported")]
    UnknownKey {
        /// The metadata key.
        key: String,
    },
    /// A metadata value of another type than its key requires.
    #[error("key {key:?} holds {found}, expected {expected}")]
    KeyType {
        /// The metadata key.
        key: String,
        /// The expected type.
        expected: &'static str,
        /// The type in the file.
        found: &'static str,
    },
    /// A metadata value out of its range.
    #[error("key {key:?} is {value}, {rule}")]
    KeyValue {
        /// The metadata key.
        key: String,
        /// The value found.
        value: String,
        /// The rule for valid values.
        rule: &'static str,
    },
    /// A model family that is not supported.
    #[error("model architecture {name:?} is not supported; these are: {known}")]
    Architecture {
        /// `general.architecture`.
        name: String,
        /// The architectures that are supported.
        known: String,
    },
    /// A tensor that the architecture needs is absent.
    #[error("tensor {name:?} is missing, the file is not a whole model")]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// Matrices of a layer's experts, in tensors of their own, that no kernel can read as one.
    #[error(
        "tensor {name:?} is {ty}, and that of the layer's first expert {first}: there are kernels for experts of \
         one type; convert the model again (convert_hf_to_gguf.py of llama.cpp)"
    )]
    ExpertTypes {
        /// The tensor.
        name: String,
        /// Its type.
        ty: GgmlType,
        /// That of the first.
        first: GgmlType,
    },
    /// A tensor that the model would have to ignore.
    #[error("tensor {name:?} is not part of a plain {architecture} model; this variant is not supported")]
    UnexpectedTensor {
        /// The tensor.
        name: String,
        /// The model's architecture.
        architecture: &'static str,
    },
    /// A tensor of another shape than the metadata implies.
    #[error("tensor {name:?} has dimensions {found:?}, the metadata implies {expected:?}")]
    TensorShape {
        /// The tensor.
        name: String,
        /// Dimensions by the metadata, `[row length, rows]`.
        expected: Vec<u64>,
        /// Dimensions in the file.
        found: Vec<u64>,
    },
    /// A tensor type without kernels.
    #[error(
        "tensor {name:?} is {ty}, which cannot be computed with here; quantize the original model to Q6_K, Q4_K or \
         Q8_0 instead"
    )]
    UnsupportedType {
        /// The tensor.
        name: String,
        /// Its type.
        ty: GgmlType,
    },
    /// A value of a type that is stored in another one on the device, which cannot hold it.
    #[error(
        "tensor {name:?} has {ty} blocks with scales that {stored} cannot hold, as which they would be on the device; \
         quantize the original model to Q6_K, Q4_K or Q8_0 instead"
    )]
    Inexact {
        /// The tensor.
        name: String,
        /// Its type.
        ty: GgmlType,
        /// The type on the device.
        stored: GgmlType,
    },
    /// The tokenizer could not be built, or text not encoded.
    #[error("the tokenizer failed")]
    Tokenizer {
        /// The report of the tokenizer library.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Text with a byte that no token has.
    #[error("the vocabulary has no token for byte {byte:#04x} of the text; remove the character")]
    Uncovered {
        /// The byte.
        byte: u8,
    },
    /// A token number outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// More positions than the context has.
    #[error(
        "position {position} does not fit the context of {context} tokens; shorten the prompt or ask for fewer tokens"
    )]
    ContextFull {
        /// The position.
        position: usize,
        /// Positions of the context.
        context: usize,
    },
    /// A shape or mix that cannot be synthesized.
    #[error("{text:?} is not SHAPE:QUANT; shapes are {shapes}; quants are {mixes}")]
    Synthesis {
        /// The text.
        text: String,
        /// The known shapes.
        shapes: String,
        /// The known mixes.
        mixes: String,
    },
    /// A template of conversations that cannot be used, or that refuses a conversation.
    #[error("the template of conversations: {source:#}")]
    Template {
        /// The template engine's error.
        source: minijinja::Error,
    },
    /// A prompt without any token.
    #[error("the prompt is empty and the model has no token to begin with; pass some text")]
    EmptyPrompt,
    /// A step of no columns or of too many.
    #[error("a step has 1 to {most} columns, not {asked}")]
    StepSize {
        /// Columns that were asked for.
        asked: usize,
        /// Most columns.
        most: usize,
    },
    /// A sequence that has ended, or is one of another engine.
    #[error("the sequence has been released")]
    Released,
    /// All sequences are in use.
    #[error("all {most} sequences are in use; release one")]
    TooManySequences {
        /// Sequences at a time.
        most: usize,
    },
    /// A draft model whose tokens are not those of the model.
    #[error("the draft model has another vocabulary: {difference}; use a smaller model of the same family")]
    DraftVocabulary {
        /// The first difference.
        difference: String,
    },
    /// A draft model fails, not the model that verifies what it proposes.
    #[error("the draft model: {source}")]
    Draft {
        /// The error of the part.
        source: Box<Error>,
    },
    /// The queue of a scheduler has no room.
    #[error("{most} requests are waiting, no more are taken; try again later")]
    QueueFull {
        /// Requests that may wait.
        most: usize,
    },
    /// Too few pages of the cache are free.
    #[error("{needed} pages of the cache are needed and {free} are free; release a sequence")]
    OutOfPages {
        /// Pages that the step takes.
        needed: usize,
        /// Pages that no sequence has.
        free: usize,
    },
    /// NaN or infinity in a step.
    #[error(
        "{} gives NaN or infinity at position {position}: weights are no numbers or far too large, the file is \
         damaged; convert or download it again",
        place(phase, *layer)
    )]
    NotFinite {
        /// The launch that gave it: its role, as profiles name it.
        phase: &'static str,
        /// The layer, if it is in one.
        layer: Option<usize>,
        /// The position in the context.
        position: usize,
    },
    /// Keys or values that the type of the cache cannot hold.
    #[error(
        "keys or values of layer {layer} at position {position} are past the largest number of a cache in {kv}: use \
         one in q8_0 (--kv q8_0), which holds 127 times larger ones"
    )]
    CacheRange {
        /// The layer.
        layer: usize,
        /// The position in the context.
        position: usize,
        /// The type of the cache.
        kv: &'static str,
    },
    /// Text could not be written.
    #[error("cannot write the text")]
    Output {
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A file that does not begin as a session does.
    #[error("not a session: it {}", begins(found))]
    NotSession {
        /// The bytes found instead, up to eight.
        found: Vec<u8>,
    },
    /// A session of another format.
    #[error("session version {version} is not supported (1 is); begin a new session")]
    SessionVersion {
        /// The version in the file.
        version: u32,
    },
    /// A session that is cut short or changed.
    #[error("the session is damaged: {what}; remove the file to begin a new one")]
    SessionDamaged {
        /// The fault, in words.
        what: String,
    },
    /// A session of another model, or of another kind of cache.
    #[error("the session was saved with {what} {saved}, here it is {here}; {advice}")]
    SessionMismatch {
        /// The quantity that differs.
        what: &'static str,
        /// Its value in the session.
        saved: String,
        /// Its value here.
        here: String,
        /// A remedy.
        advice: &'static str,
    },
    /// A session could not be read.
    #[error("cannot read the session")]
    SessionInput {
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A session could not be written.
    #[error("cannot write the session")]
    SessionOutput {
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A constraint that could not say which token may come next.
    #[error(
        "no token may come next by the constraint of the text, or it takes more work to know than is allowed; \
         simplify it"
    )]
    Constraint,
    /// A file of tuned shapes that cannot be read.
    #[error("{} is no tuning file, or damaged: move it away and tune again", path.display())]
    Tuning {
        /// The file.
        path: PathBuf,
        /// The place and the reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file of tuned shapes of another version or program.
    #[error("{} has schema {found:?}, not {expected:?}: move it away and tune again", path.display())]
    TuningSchema {
        /// The file.
        path: PathBuf,
        /// The schema that this version reads.
        expected: &'static str,
        /// Its first field.
        found: String,
    },
    /// A search that ended because the device failed with a candidate.
    #[error("the search ended with {candidate}: the device fails since then; results from before are stored")]
    TuningStopped {
        /// The last kernel.
        candidate: String,
        /// The device's error.
        #[source]
        source: Box<Error>,
    },
    /// Kernels could not be compiled.
    #[error(transparent)]
    Ptx(#[from] ptxgen::Error),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] hcq::Error),
    /// A GPU generation without kernels.
    #[error(
        "there are no kernels for sm_{sm}: they exist for sm_80, sm_86, sm_87, sm_89 and sm_90; choose another \
         GPU, or HCQ_DEVICE=sim for the software ga10b"
    )]
    NoKernels {
        /// The generation, as in `sm_87`.
        sm: u32,
    },
    /// A size that the kernels' 32-bit parameters cannot hold.
    #[error("a size of {size} is more than the kernels can take, 2^32 is the limit")]
    TooLarge {
        /// The size, in elements.
        size: usize,
    },
}

/// How a file begins that is none of its kind.
fn begins(found: &[u8]) -> String {
    if found.is_empty() { "is empty".to_owned() } else { format!("begins with {found:02x?}") }
}

/// A size, of which the largest number stands for all larger ones.
fn bytes(size: u64) -> String {
    if size == u64::MAX { "2^64 or more".to_owned() } else { size.to_string() }
}

/// A phase and its layer in words.
fn place(phase: &str, layer: Option<usize>) -> String {
    match layer {
        Some(layer) => format!("{phase:?} of layer {layer}"),
        None => format!("{phase:?}"),
    }
}
