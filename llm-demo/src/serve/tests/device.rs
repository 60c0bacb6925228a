//! A real fault of the software ga10b while a request is processed.

use std::sync::Arc;
use std::time::Duration;

use ga10b_llm::sampler::Sampler;
use ga10b_llm::{Decoder, Engine, EngineOptions, Mode, Result, SamplerOptions, Tokenizer, embedded};
use hcq::{Args, Device, LaunchConfig, Selector};

use crate::serve::job::{Event, Failure, Reason, Request, Usage};
use crate::serve::metrics::Metrics;
use crate::serve::scheduler::{self, Build, Options};
use crate::serve::serial::Serial;

/// `vadd_f32`.
const VADD: &[u8] = include_bytes!("../../../../hcq/tests/data/01_vecadd.sm_87.cubin");

/// An engine; a kernel that reads where nothing is mapped runs instead of its second step if `faults`.
struct Faulting {
    device: Device,
    engine: Engine,
    faults: bool,
}

/// Runs a kernel that reads where nothing is mapped.
pub fn fault(device: &Device) -> Result<()> {
    let kernel = device.load(VADD)?.kernel("vadd_f32")?;
    let nowhere = 0x5_0000_0000;
    let args = Args::new().u64(nowhere).u64(nowhere).u64(nowhere).u32(32);
    let mut queue = device.queue()?;
    // SAFETY: nothing is mapped there, so the software GPU stops the kernel.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args)? };
    queue.submit()?.wait(Duration::from_secs(60))?;
    Ok(())
}

impl Decoder for Faulting {
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        if self.faults && self.engine.position() > 5 {
            fault(&self.device)?;
        }
        self.engine.step(token)
    }

    fn truncate(&mut self, count: usize) -> Result<()> {
        self.engine.truncate(count)
    }

    fn position(&self) -> usize {
        self.engine.position()
    }

    fn context(&self) -> usize {
        self.engine.context()
    }
}

#[test]
fn a_fault_of_the_gpu_is_explained_and_the_next_request_has_another_device() {
    let model = embedded::model().expect("a model");
    let tokenizer = Tokenizer::from_gguf(&model.gguf).expect("a tokenizer");
    let prompt = tokenizer.encode(embedded::PROMPT).expect("encodes");
    let mut builds = 0;
    let build: Build<'_> = Box::new(|| {
        builds += 1;
        let device = Device::open(Selector::Sim)?;
        let engine = Engine::new(&device, &model, &EngineOptions::new(32).with_mode(Mode::Batch))?;
        let decoder = Box::new(Faulting { device, engine, faults: builds == 1 });
        Ok(Box::new(Serial::new(&tokenizer, decoder, true)))
    });
    let options = Options { waiting: 2, retry: Duration::from_secs(1) };
    let metrics = Arc::new(Metrics::default());
    let (scheduler, mut worker) = scheduler::new(options, metrics, build);
    let request = || Request {
        prompt: prompt.clone(),
        sampler: Sampler::new(SamplerOptions::GREEDY),
        stops: Vec::new(),
        count: 3,
        reuse: true,
    };
    let [mut first, mut second] = [(); 2].map(|()| scheduler.submit(request()).expect("queued"));
    // It ends when it has processed both.
    scheduler.drain();
    worker.start().expect("an engine");
    worker.run();
    assert_eq!(builds, 2);

    let mut last = None;
    while let Ok(event) = first.try_recv() {
        last = Some(event);
    }
    let Some(Event::Failed(Failure::Engine(diagnosis))) = last else { panic!("{last:?}") };
    assert!(diagnosis.contains("unmapped") && diagnosis.contains("vadd_f32"), "{diagnosis}");
    let mut text = String::new();
    while let Ok(Event::Text(piece)) = second.try_recv() {
        text.push_str(&piece);
        if text.len() == ", a cheerful".len() {
            break;
        }
    }
    assert_eq!(text, ", a cheerful");
    let end = Event::End(Reason::Length, Usage { prompt: prompt.len(), cached: 0, generated: 3 });
    assert_eq!(second.try_recv(), Ok(end));
}
