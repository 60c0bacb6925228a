//! The search for shapes, and the file that stores them.
//!
//! Everything runs on the software device. What compiles kernels needs a `ptxas` and says so where there is
//! none.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ga10b_llm::compare::Comparison;
use ga10b_llm::kernels::prompt::gemm;
use ga10b_llm::kernels::prompt::tile::ProductTile;
use ga10b_llm::sampler::argmax;
use ga10b_llm::search::{self, Counter, Limits, Listener, Meter, Outcome, Progress};
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::tuning::{
    Compiler, Entry, Gpu, KernelFile, Kernels, Method, ModelShape, Store, Subject, Tuned, TunedGemm, Tuning,
};
use ga10b_llm::{Decoder, Engine, EngineOptions, Model};
use ga10b_sim::{Sim, SimConfig};
use hcq::{Device, DeviceOptions};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use ptxgen::{Target, sha256};

/// Tokens that are compared.
const TOKENS: usize = 4;

/// A model of one layer.
fn tiny(mix: &str, (hidden, ff): (usize, usize)) -> Model {
    let synthesis: Synthesis = format!("tiny-llama:{mix}").parse().unwrap();
    synthesis.with_sizes(1, hidden, ff).model(3).unwrap()
}

/// Takes every instruction of a warp for a nanosecond.
struct Instructions(Arc<Sim>, u64);

impl fmt::Debug for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Instructions")
    }
}

impl Counter for Instructions {
    fn start(&mut self) {
        self.1 = self.0.counters().sm.warp_instructions;
    }

    fn predicted_ns(&mut self) -> f64 {
        (self.0.counters().sm.warp_instructions - self.1) as f64
    }
}

/// The software device, and how to compare on it.
fn device() -> (Device, Meter) {
    let sim = Sim::try_new(SimConfig::default()).unwrap();
    let device = hcq::sim::open(sim.clone(), DeviceOptions::default()).unwrap();
    (device, Meter::Count(Box::new(Instructions(sim, 0))))
}

fn compiler() -> Option<Compiler> {
    let found = Compiler::find(87).ok();
    if found.is_none() {
        eprintln!("skipped: no ptxas");
    }
    found
}

/// Saves results to a store.
struct Keep(Store);

impl Listener for Keep {
    fn loading(&mut self, _: u64, _: u64) {}

    fn progress(&mut self, p: &Progress) {
        assert!(p.done <= p.total, "{p:?}");
    }

    fn found(&mut self, found: &Outcome) -> ga10b_llm::Result<()> {
        self.0.save(found.entry.clone(), &found.kernels, Target::Sm87)
    }
}

fn limits(candidates: usize) -> Limits {
    Limits { budget: Duration::from_secs(300), repeats: 1, warm_up: Duration::ZERO, context: 64, candidates }
}

/// Greedy tokens after a prompt.
fn tokens(device: &Device, model: &Model, tuning: &Tuning) -> Vec<u32> {
    let mut engine = engine(device, model, tuning);
    let mut token = argmax(&engine.prefill(&prompt()).unwrap());
    let next = move |_| {
        token = engine.step_greedy(token).unwrap();
        token
    };
    (0..TOKENS).map(next).collect()
}

fn prompt() -> Vec<u32> {
    (1..45).map(|i| i * 37 % 500).collect()
}

fn engine(device: &Device, model: &Model, tuning: &Tuning) -> Engine {
    let options = EngineOptions::new(64).with_tuning(tuning.clone());
    Engine::new(device, model, &options).unwrap()
}

#[test]
fn a_search_is_kept_and_gives_the_same_tokens() {
    kept_search(&ga10b_llm::embedded::model().unwrap());
    kept_search(&tiny("f16", (256, 512)));
}

/// Searches the shapes for `model`.
fn kept_search(model: &Model) {
    let Some(compiler) = compiler() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path().join("deep/tuning.json"));
    let (device, meter) = device();
    let limits = limits(1);
    let mut keep = Keep(store.clone());
    let found = search::search(&device, model, &compiler, meter, &limits, &mut keep).unwrap();
    assert!(found.findings.iter().all(|f| f.ns > 0 && f.ns <= f.usual_ns), "{:?}", found.findings);
    assert!(found.findings.iter().any(|f| f.tried > 0), "{:?}", found.findings);
    assert!(!found.out_of_time);
    // Every candidate is right; of one that fills an SM less, the prediction says nothing.
    let wrong: Vec<_> = found.rejected.iter().filter(|r| !r.reason.ends_with("is not predicted")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    let subject = Subject::new(device.info(), model);
    assert!(store.load(&subject, Method::Measured, Target::Sm87).unwrap().is_none());
    let loaded = store.load(&subject, Method::Predicted, Target::Sm87).unwrap().expect("it was kept");
    assert_eq!((&loaded.entry.gemm, &loaded.problems), (&found.entry.gemm, &Vec::new()));
    assert_eq!(loaded.tuning.kernels, found.kernels);
    let usual = tokens(&device, model, &Tuning::default());
    assert_eq!(tokens(&device, model, &loaded.tuning), usual);
}

/// An entry for every product of `model`, all with the usual shapes.
fn usual_entry(device: &Device, meter: Meter, model: &Model, compiler: &Compiler) -> Entry {
    let folder = tempfile::tempdir().unwrap();
    let mut keep = Keep(Store::at(folder.path().join("tuning.json")));
    search::search(device, model, compiler, meter, &limits(0), &mut keep).unwrap().entry
}

/// Few cases unless `PROPTEST_CASES` asks for more: each compiles kernels.
fn config(cases: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => usual,
        None => ProptestConfig { cases, ..usual },
    }
}

proptest! {
    #![proptest_config(config(1))]

    #[test]
    fn any_shape_gives_the_same_logits(
        mix in proptest::sample::select(vec!["q6_k", "q4_k_m", "q8_0", "f16"]),
        // Rows that are no whole tiles, that are, and long ones of a small matrix, which warps share.
        sizes in proptest::sample::select(vec![(512, 1024), (2048, 2048), (256, 8192)]),
        tile in proptest::sample::select(gemm::MORE_TILES.map(ProductTile::Warps).to_vec()),
    ) {
        let Some(compiler) = compiler() else { return Ok(()) };
        let model = tiny(mix, sizes);
        let (device, meter) = device();
        let mut entry = usual_entry(&device, meter, &model, &compiler);
        prop_assert!(!entry.gemm.is_empty());
        entry.gemm.iter_mut().for_each(|g| g.tuned.shape = tile);
        let compiled = entry.recipes().into_iter().map(|(name, recipe)| (name.into(), compiler.compile(&recipe).unwrap()));
        let kernels: Kernels = compiled.collect();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("tuning.json"));
        store.save(entry.clone(), &kernels, Target::Sm87).unwrap();
        let loaded = store.load(&entry.subject, Method::Predicted, Target::Sm87).unwrap().unwrap();
        prop_assert_eq!(&loaded.problems, &Vec::<String>::new());
        let logits = |tuning: &Tuning| engine(&device, &model, tuning).prefill(&prompt()).unwrap();
        let mut comparison = Comparison::new();
        comparison.add(&logits(&Tuning::default()), &logits(&loaded.tuning));
        prop_assert!(comparison.nmse() < 1e-6, "NMSE {:e}", comparison.nmse());
    }
}

fn entries() -> impl Strategy<Value = Entry> {
    let gpu = ("[a-z0-9 ]{1,12}", 1u32..200);
    let others = gemm::MORE_TILES.map(ProductTile::Warps);
    let tiles: Vec<_> = ProductTile::committed(90).chain(others).collect();
    let gemm = (prop::sample::select(tiles), any::<u32>(), any::<bool>());
    let times = (any::<u64>(), any::<u64>());
    (gpu, any::<bool>(), prop::collection::vec(gemm, 0..6), times).prop_map(
        |((name, sm_count), measured, gemm, (usual_ns, ns))| Entry {
            subject: Subject {
                gpu: Gpu { name, sm: 87, sm_count },
                model: ModelShape {
                    layers: 2,
                    hidden: 256,
                    ff: 512,
                    heads: 4,
                    kv_heads: 2,
                    head_dim: 64,
                    vocab: 9,
                },
                quantization: "Q6_K".to_owned(),
            },
            date: "2026-01-31T12:00:00Z".to_owned(),
            method: if measured { Method::Measured } else { Method::Predicted },
            version: "0.0.0".to_owned(),
            ptxas: "12.6.85".to_owned(),
            gemm: gemm
                .into_iter()
                .enumerate()
                .map(|(i, (shape, cols, gate))| TunedGemm {
                    output: gemm::Output::ALL[usize::from(gate)],
                    tokens: 64,
                    rows: i as u32,
                    cols,
                    shares: 1,
                    tuned: Tuned { shape, usual_ns, ns },
                })
                .collect(),
            kernels: Vec::new(),
        },
    )
}

/// Something in place of each kernel that `entry` needs.
fn stand_ins(entry: &Entry) -> Kernels {
    entry.recipes().into_keys().map(|name| (Arc::from(name.as_str()), Arc::from(name.into_bytes()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn results_come_back_as_they_were_kept(all in prop::collection::vec(entries(), 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("tuning.json"));
        prop_assert_eq!(store.entries().unwrap(), vec![]);
        for (i, entry) in all.iter().enumerate() {
            let mut entry = entry.clone();
            entry.subject.model.layers = i;
            let kernels = stand_ins(&entry);
            store.save(entry.clone(), &kernels, Target::Sm87).unwrap();
            let kept = store.entries().unwrap();
            prop_assert_eq!(kept.len(), i + 1);
            let last = &kept[i];
            prop_assert_eq!(last.kernels.len(), kernels.len());
            let listed = KernelFile { name: String::new(), ptx_sha256: String::new(), cubin_sha256: String::new() };
            let listed = last.kernels.first().cloned().unwrap_or(listed);
            prop_assert!(listed.name.is_empty() || listed.cubin_sha256 == sha256(listed.name.as_bytes()));
            entry.kernels = last.kernels.clone();
            prop_assert_eq!(&entry, last);
            let loaded = store.load(&entry.subject, entry.method, Target::Sm87).unwrap().unwrap();
            prop_assert_eq!(loaded.tuning.kernels, kernels);
            // Kept again, there is nothing new.
            store.save(last.clone(), &Kernels::new(), Target::Sm87).unwrap();
            prop_assert_eq!(&store.entries().unwrap(), &kept);
        }
    }

    #[test]
    fn a_damaged_file_is_told_of_and_never_used_blindly(
        entry in entries(), at in any::<prop::sample::Index>(), byte: u8, cut: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("tuning.json"));
        store.save(entry.clone(), &stand_ins(&entry), Target::Sm87).unwrap();
        let mut bytes = fs::read(store.path()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        fs::write(store.path(), &bytes).unwrap();
        match store.load(&entry.subject, entry.method, Target::Sm87) {
            Ok(Some(loaded)) => {
                let recipes = loaded.entry.recipes();
                prop_assert!(loaded.tuning.kernels.keys().all(|name| recipes.contains_key(&**name)));
                prop_assert!(loaded.tuning.choices.gemm.values().all(|(tile, _)| tile.is_valid()));
            }
            Ok(None) => {}
            Err(error) => prop_assert!(error.to_string().contains("tuning.json"), "{}", error),
        }
    }
}

/// One product, with a tile that is not committed: number `which` of those.
fn one_product(which: usize) -> TunedGemm {
    let mut others = gemm::MORE_TILES.iter().filter(|tile| !gemm::TILES.contains(tile));
    let shape = ProductTile::Warps(*others.nth(which).unwrap());
    let (output, tuned) = (gemm::Output::ALL[0], Tuned { shape, usual_ns: 2, ns: 1 });
    TunedGemm { output, tokens: 64, rows: 256, cols: 512 << which, shares: 1, tuned }
}

/// A store, and an entry with one product.
fn tuned_product() -> (tempfile::TempDir, Store, Entry) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path().join("tuning.json"));
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut entry = entries().new_tree(&mut runner).unwrap().current();
    entry.gemm = vec![one_product(0)];
    (folder, store, entry)
}

#[test]
fn a_later_search_adds_to_what_is_there() {
    let (_folder, store, entry) = tuned_product();
    store.save(entry.clone(), &stand_ins(&entry), Target::Sm87).unwrap();
    let second = Entry { gemm: vec![one_product(1)], ..entry.clone() };
    store.save(second.clone(), &stand_ins(&second), Target::Sm87).unwrap();
    let loaded = store.load(&entry.subject, entry.method, Target::Sm87).unwrap().unwrap();
    assert_eq!(loaded.problems, Vec::<String>::new());
    assert_eq!(loaded.entry.gemm, [second.gemm, entry.gemm].concat());
    assert_eq!((loaded.tuning.kernels.len(), loaded.tuning.choices.gemm.len()), (2, 2));
}

#[test]
fn kernels_of_another_version_or_damaged_ones_are_passed_over() {
    let (folder, store, entry) = tuned_product();
    let problem = |store: &Store| {
        let loaded = store.load(&entry.subject, entry.method, Target::Sm87).unwrap().unwrap();
        assert!(loaded.problems.is_empty() != loaded.tuning.choices.gemm.is_empty());
        loaded.problems.first().cloned().unwrap_or_default()
    };
    store.save(entry.clone(), &stand_ins(&entry), Target::Sm87).unwrap();
    assert_eq!(problem(&store), "");
    let text = fs::read_to_string(store.path()).unwrap();
    let known = &store.entries().unwrap()[0].kernels[0];
    fs::write(store.path(), text.replace(&known.ptx_sha256, &sha256(b"older"))).unwrap();
    assert!(problem(&store).contains("another version"));
    fs::write(store.path(), text.replace(&known.cubin_sha256, "../../etc/passwd")).unwrap();
    assert!(problem(&store).contains("no hash"), "{}", problem(&store));
    fs::write(store.path(), text.replace("\"stages\": ", "\"stages\": 99")).unwrap();
    assert!(problem(&store).contains("no kernel of that shape"));
    fs::write(store.path(), &text).unwrap();
    let cubin = folder.path().join("tuning.kernels").join(format!("{}.cubin", known.cubin_sha256));
    fs::write(&cubin, b"other").unwrap();
    assert!(problem(&store).contains("damaged"));
    fs::remove_file(&cubin).unwrap();
    assert!(problem(&store).contains("cannot read"));
}
