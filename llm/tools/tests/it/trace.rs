//! Traces of an engine, read back from their JSON.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use std::collections::BTreeMap;
use std::time::Instant;

use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{Decoder, Engine, EngineOptions, Mode, Model};
use ga10b_llm_tools::bandwidth::CopyBandwidth;
use ga10b_llm_tools::trace::{Clocks, HostSpans, Trace};
use hcq::{Device, Selector};
use serde_json::{Map, Value};
use tracing_subscriber::layer::SubscriberExt;

fn device() -> Device {
    let selector = match std::env::var_os("HCQ_DEVICE") {
        Some(_) => Selector::from_env().unwrap(),
        None => Selector::Sim,
    };
    Device::open(selector).unwrap()
}

fn tiny() -> Model {
    "tiny-llama:q4_k_m".parse::<Synthesis>().unwrap().model(3).unwrap()
}

/// The events of a trace of a prompt in a batch step, a step, a prompt in a chunk, and some steps.
fn trace(device: &Device, model: &Model, mode: Mode) -> (Engine, Vec<Value>, i64) {
    let options = EngineOptions::new(48).with_mode(mode).with_phase_times(true);
    let mut engine = Engine::new(device, model, &options).unwrap();
    engine.start_trace().unwrap();
    let spans = HostSpans::default();
    let origin = Instant::now();
    let first = device.clock_pair().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(spans.clone()), || {
        engine.prefill(&[3, 1]).unwrap();
        engine.step(4).unwrap();
        engine.prefill(&(1..36).collect::<Vec<u32>>()).unwrap();
        for token in [7, 9, 3] {
            engine.step_greedy(token).unwrap();
        }
    });
    let last = device.clock_pair().unwrap();
    let launches = engine.take_trace();
    let trace = Trace::new(Map::new(), &Clocks { origin, first, last }, &spans.take(), &launches);
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    let error = document["otherData"]["gpu_clock_error_ns"].as_i64().unwrap();
    assert!(error >= 32);
    (engine, document["traceEvents"].as_array().unwrap().clone(), error)
}

/// A time of an event in ns.
fn ns(event: &Value, key: &str) -> i64 {
    (event[key].as_f64().unwrap() * 1e3).round() as i64
}

fn of<'a>(events: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |e| e["ph"] == phase)
}

/// Slices of a track, in the order of the file, are nested or disjoint, and each starts no earlier
/// than the one before.
fn check_tracks(events: &[Value]) {
    let mut tracks: BTreeMap<(u64, u64), Vec<&Value>> = BTreeMap::new();
    for slice in of(events, "X") {
        let key = (slice["pid"].as_u64().unwrap(), slice["tid"].as_u64().unwrap());
        tracks.entry(key).or_default().push(slice);
    }
    assert!(tracks.contains_key(&(1, 1)) && tracks.contains_key(&(2, 1)));
    for (track, slices) in tracks {
        let mut open: Vec<(i64, &Value)> = Vec::new();
        let mut before = i64::MIN;
        for slice in slices {
            let (start, end) = (ns(slice, "ts"), ns(slice, "ts") + ns(slice, "dur"));
            assert!(start >= before && end >= start, "{track:?}: {slice}");
            before = start;
            while open.last().is_some_and(|(end, _)| *end <= start) {
                open.pop();
            }
            for (outer, around) in &open {
                assert!(end <= *outer, "{track:?}: {slice} overlaps {around}");
            }
            open.push((end, slice));
        }
    }
    for (pid, tid) in of(events, "X").map(|e| (&e["pid"], &e["tid"])) {
        let named = |what| {
            of(events, "M").any(|e| {
                e["name"] == what && e["pid"] == *pid && (what == "process_name" || e["tid"] == *tid)
            })
        };
        assert!(named("process_name") && named("thread_name"));
    }
}

#[test]
fn every_launch_of_a_step_is_there_and_slices_lie_inside_each_other() {
    let device = device();
    let model = tiny();
    for mode in Mode::ALL {
        let (engine, events, _) = trace(&device, &model, mode);
        check_tracks(&events);
        let launches = |position: u64, category: &str| -> Vec<&Value> {
            of(&events, "X").filter(|e| e["cat"] == category && e["args"]["position"] == position).collect()
        };
        for position in [2, 38, 39, 40] {
            let found = launches(position, "launch");
            assert_eq!(found.len() as u64, engine.launches_per_token(), "{mode:?} at {position}");
            let bytes: u64 = found.iter().map(|e| e["args"]["bytes"].as_u64().unwrap()).sum();
            let cache = 4 * (model.config.kv_dim() * model.config.layers) as u64 * (position + 1);
            assert_eq!(bytes, engine.weight_bytes_per_token() + cache, "{mode:?} at {position}");
            let phases = launches(position, "phase");
            let wanted = if mode == Mode::Stream { 5 * model.config.layers + 2 } else { 0 };
            assert_eq!(phases.len(), wanted, "{mode:?} at {position}");
            let layered = if mode == Mode::Stream { &phases } else { &found };
            for layer in 0..model.config.layers {
                assert!(layered.iter().any(|e| e["args"]["layer"] == layer && e["name"] == "down"));
            }
        }
        assert!(!launches(0, "launch").is_empty() && launches(1, "launch").is_empty());
        assert!(
            launches(3, "launch").iter().any(|e| e["args"]["kernel"].as_str().unwrap().starts_with("gemm"))
        );
        for name in ["prompt", "submit", "wait", "read the token", "read the logits"] {
            assert!(of(&events, "X").any(|e| e["cat"] == "host" && e["name"] == name), "{name}");
        }
        for name in ["GB/s", "tokens/s"] {
            let values: Vec<f64> = of(&events, "C")
                .filter(|e| e["name"] == name)
                .map(|e| e["args"][name].as_f64().unwrap())
                .collect();
            assert!(values.iter().all(|v| v.is_finite() && *v >= 0.0) && values.iter().any(|v| *v > 0.0));
        }
    }
}

#[test]
fn the_host_waits_while_the_gpu_works() {
    let device = device();
    let (_, events, error) = trace(&device, &tiny(), Mode::Batch);
    for step in of(&events, "X").filter(|e| e["cat"] == "work" && e["name"] == "step") {
        let (start, end) = (ns(step, "ts"), ns(step, "ts") + ns(step, "dur"));
        let host =
            |name: &'static str| of(&events, "X").filter(move |e| e["cat"] == "host" && e["name"] == name);
        // Submitted before it runs, waited for until after it.
        assert!(host("submit").any(|e| ns(e, "ts") <= start + error));
        let waited =
            host("wait").any(|e| ns(e, "ts") <= end + error && ns(e, "ts") + ns(e, "dur") >= end - error);
        assert!(waited, "{step}");
    }
}

#[test]
fn a_device_copies_at_some_rate() {
    let copy = CopyBandwidth::measure(&device(), 1 << 20, std::time::Duration::ZERO).unwrap();
    assert!(copy.gigabytes_per_second.is_finite() && copy.gigabytes_per_second > 0.0);
    assert_eq!(copy.buffer_bytes, 1 << 20);
}
