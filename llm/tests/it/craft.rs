//! Synthesized models whose tensors and keys are changed, for tests of unusual models.

use ga10b_llm::Model;
use ga10b_llm::gguf::{GgmlType, Gguf, TensorInfo, Value, Writer};
use ga10b_llm::synthesize::Synthesis;
use half::f16;

/// A synthesized model that is changed before it is loaded.
pub struct Craft {
    base: Model,
    keys: Vec<(String, Value)>,
    without: Vec<String>,
    /// Tensors with this in their names are those of another model.
    others: Vec<(String, Model)>,
    /// Vectors in `f32`.
    more: Vec<(String, Vec<f32>)>,
    factors: Vec<(String, f32)>,
    /// Tensor, number of a value, the value.
    values: Vec<(String, usize, f32)>,
    /// Experts whose matrices have a tensor of their own; 0 if they are together.
    apart: usize,
}

impl Craft {
    /// A synthesized model, such as `tiny-llama:f16`.
    pub fn new(text: &str) -> Self {
        let base = text.parse::<Synthesis>().unwrap().model(3).unwrap();
        let (keys, without, others, more) = Default::default();
        Self { base, keys, without, others, more, factors: Vec::new(), values: Vec::new(), apart: 0 }
    }

    /// Sets a key.
    pub fn key(mut self, key: &str, value: Value) -> Self {
        self.keys.retain(|(known, _)| known != key);
        self.keys.push((key.into(), value));
        self
    }

    /// Leaves a tensor out.
    pub fn without(mut self, tensor: &str) -> Self {
        self.without.push(tensor.into());
        self
    }

    /// Takes tensors with `part` in their names from another model of the same shape, such as `tiny-llama:q4_k`.
    pub fn mixed(mut self, part: &str, text: &str) -> Self {
        self.others.push((part.into(), text.parse::<Synthesis>().unwrap().model(3).unwrap()));
        self
    }

    /// Adds a vector in `f32`.
    pub fn with(mut self, tensor: &str, values: Vec<f32>) -> Self {
        self.more.push((tensor.into(), values));
        self
    }

    /// Multiplies all values of a tensor in `f32` or `f16`.
    pub fn scaled(mut self, tensor: &str, factor: f32) -> Self {
        self.factors.push((tensor.into(), factor));
        self
    }

    /// Sets one value of a tensor in `f32` or `f16`.
    pub fn value(mut self, tensor: &str, at: usize, value: f32) -> Self {
        self.values.push((tensor.into(), at, value));
        self
    }

    /// Gives each of `experts` experts tensors of its own, as files before April 2024 have them.
    pub fn experts_apart(mut self, experts: usize) -> Self {
        self.apart = experts;
        self
    }

    /// Names and dimensions of what tensor `info` is in the file.
    fn parts(&self, info: &TensorInfo) -> Vec<(String, Vec<u64>)> {
        match info.name.strip_suffix("_exps.weight") {
            Some(role) if self.apart > 0 => {
                (0..self.apart).map(|e| (format!("{role}.{e}.weight"), info.dims[..2].to_vec())).collect()
            }
            _ => vec![(info.name.clone(), info.dims.clone())],
        }
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let gguf = &self.base.gguf;
        let mut writer = Writer::new();
        for (key, value) in
            gguf.metadata().iter().filter(|(key, _)| !self.keys.iter().any(|(k, _)| k == *key))
        {
            writer.key(key, value.clone());
        }
        self.keys.iter().for_each(|(key, value)| writer.key(key, value.clone()));
        let kept = || {
            let parts = |t| self.parts(t).into_iter().enumerate().map(move |(at, part)| (t, at, part));
            gguf.tensors().iter().flat_map(parts).filter(|(.., (name, _))| !self.without.contains(name))
        };
        // The name in the file, and that of the tensor that it is, or is a part of.
        let view = |name: &str, whole: &str| {
            let other = self.others.iter().find(|(part, _)| name.contains(part));
            other.map_or(gguf, |(_, other)| &other.gguf).tensor(whole).unwrap()
        };
        for (t, _, (name, dims)) in kept() {
            writer.tensor(&name, view(&name, &t.name).ty, &dims);
        }
        let more = || self.more.iter().filter(|(name, _)| !self.without.contains(name));
        for (name, values) in more() {
            writer.tensor(name, GgmlType::F32, &[values.len() as u64]);
        }
        let mut out = writer.begin(Vec::new()).unwrap();
        for (info, at, (name, dims)) in kept() {
            let view = view(&name, &info.name);
            let bytes = view.ty.bytes_for(dims.iter().product()).unwrap() as usize;
            out.write(&self.changed(&name, view.ty, &view.data[at * bytes..][..bytes])).unwrap();
        }
        for (name, values) in more() {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            out.write(&self.changed(name, GgmlType::F32, &bytes)).unwrap();
        }
        out.finish().unwrap()
    }

    /// The file, read.
    pub fn gguf(&self) -> Gguf {
        Gguf::from_bytes(self.bytes()).unwrap()
    }

    /// The model.
    pub fn model(&self) -> ga10b_llm::Result<Model> {
        Model::new(Gguf::from_bytes(self.bytes()).unwrap())
    }

    fn changed(&self, name: &str, ty: GgmlType, data: &[u8]) -> Vec<u8> {
        let factor: f32 = self.factors.iter().filter(|(n, _)| n == name).map(|(_, f)| f).product();
        let values: Vec<_> = self.values.iter().filter(|(n, ..)| n == name).collect();
        if factor == 1.0 && values.is_empty() {
            return data.to_vec();
        }
        let mut numbers: Vec<f32> = match ty {
            GgmlType::F32 => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            GgmlType::F16 => data.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
            _ => panic!("{name} is {ty}"),
        };
        numbers.iter_mut().for_each(|v| *v *= factor);
        values.iter().for_each(|(_, at, value)| numbers[*at] = *value);
        match ty {
            GgmlType::F32 => numbers.iter().flat_map(|v| v.to_le_bytes()).collect(),
            _ => numbers.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
        }
    }
}
