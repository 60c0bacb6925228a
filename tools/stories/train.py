#!/usr/bin/env python3
"""Trains the embedded model of ga10b-llm and writes it as a Q6_K GGUF.

  python3 train.py --out stories.gguf --report report.json

Text comes from grammar.py; nothing is downloaded. Steps: generate stories, train a byte-level BPE tokenizer on them, train a small
LLaMA-architecture transformer, quantise its matrices to Q6_K, measure the held-out perplexity before and after quantisation, write
the file. Minutes on one data-centre GPU. Needs torch, numpy, tokenizers, gguf (all PyPI).
"""

import argparse
import json
import math
import random
import time

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import grammar

END = "<|endoftext|>"
SHAPE = dict(layers=5, hidden=256, ff=768, heads=4, kv_heads=2, head_dim=64, context=1024, rope_base=10000.0, eps=1e-5)


def make_tokenizer(stories, vocab):
    """Byte-level BPE with GPT-2's pre-tokenizer; the end-of-text token is id 0."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tok.train_from_iterator(stories, trainer)
    return tok


def encode(tok, stories):
    """One token stream, each story preceded by the end-of-text token, and the index of each story's start."""
    ids, starts = [], []
    for e in tok.encode_batch(stories):
        starts.append(len(ids))
        ids.append(0)
        ids.extend(e.ids)
    return torch.tensor(ids, dtype=torch.int32), torch.tensor(starts)


class Model(torch.nn.Module):
    """LLaMA: RMSNorm, grouped-query attention, rotary embedding on interleaved pairs, SwiGLU, tied embeddings."""

    def __init__(self, vocab, c):
        super().__init__()
        self.c = c
        h, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        linear = lambda n, m: torch.nn.Parameter(torch.randn(m, n) / math.sqrt(n))
        self.embd = torch.nn.Parameter(torch.randn(vocab, c["hidden"]) * 0.05)
        self.out_norm = torch.nn.Parameter(torch.ones(c["hidden"]))
        self.blocks = torch.nn.ModuleList()
        for _ in range(c["layers"]):
            self.blocks.append(torch.nn.ParameterDict({
                "attn_norm": torch.nn.Parameter(torch.ones(c["hidden"])),
                "attn_q": linear(c["hidden"], h), "attn_k": linear(c["hidden"], kv), "attn_v": linear(c["hidden"], kv),
                "attn_output": linear(h, c["hidden"]),
                "ffn_norm": torch.nn.Parameter(torch.ones(c["hidden"])),
                "ffn_gate": linear(c["hidden"], c["ff"]), "ffn_up": linear(c["hidden"], c["ff"]),
                "ffn_down": linear(c["ff"], c["hidden"]),
            }))
        inv = c["rope_base"] ** (-torch.arange(0, c["head_dim"], 2).float() / c["head_dim"])
        angle = torch.outer(torch.arange(c["context"]).float(), inv)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def norm(self, x, w):
        return F.rms_norm(x.float(), (x.shape[-1],), w, self.c["eps"])

    def rope(self, x):
        t = x.shape[2]
        a, b = x[..., 0::2], x[..., 1::2]
        cos, sin = self.cos[:t], self.sin[:t]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def forward(self, ids):
        c = self.c
        b, t = ids.shape
        x = F.embedding(ids, self.embd)
        split = lambda y, n: y.view(b, t, n, c["head_dim"]).transpose(1, 2)
        for w in self.blocks:
            y = self.norm(x, w["attn_norm"])
            q = self.rope(split(y @ w["attn_q"].T, c["heads"]).float())
            k = self.rope(split(y @ w["attn_k"].T, c["kv_heads"]).float())
            v = split(y @ w["attn_v"].T, c["kv_heads"])
            y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
            x = x + y.transpose(1, 2).reshape(b, t, -1) @ w["attn_output"].T
            y = self.norm(x, w["ffn_norm"])
            x = x + (F.silu(y @ w["ffn_gate"].T) * (y @ w["ffn_up"].T)) @ w["ffn_down"].T
        return self.norm(x, self.out_norm) @ self.embd.T

    def named(self):
        """GGUF tensor name -> parameter."""
        yield "token_embd.weight", self.embd
        yield "output_norm.weight", self.out_norm
        for i, w in enumerate(self.blocks):
            for name, p in w.items():
                yield f"blk.{i}.{name}.weight", p


def windows(ids, starts, picks, length):
    """Token windows that begin at story starts, as [len(picks), length + 1]."""
    return ids[starts[picks][:, None] + torch.arange(length + 1, device=ids.device)].long()


@torch.no_grad()
def perplexity(model, ids, starts, length=384, batch=64):
    """Mean over all predicted tokens of windows that do not overlap more than a story."""
    usable = starts[starts + length + 1 < len(ids)]
    total, count = 0.0, 0
    for at in range(0, len(usable), batch):
        x = windows(ids, usable, torch.arange(at, min(at + batch, len(usable)), device=ids.device), length)
        loss = F.cross_entropy(model(x[:, :-1]).float().flatten(0, 1), x[:, 1:].flatten(), reduction="sum")
        total, count = total + loss.item(), count + x[:, 1:].numel()
    return math.exp(total / count)


def quantize_q6_k(w):
    """float32 [rows, cols] -> (blocks uint8 [n, 210], the values they stand for, as float32 [rows, cols]).

    A block is 256 weights: 16 groups of 16 share an 8-bit scale, the block one f16 scale. Each group's scale is chosen among
    several candidates by least squares; codes are 6 bits with an offset of 32.
    """
    g = w.reshape(-1, 16, 16).astype(np.float64)
    top = np.take_along_axis(g, np.abs(g).argmax(-1)[..., None], -1)[..., 0]
    best, error = np.zeros_like(top), np.full_like(top, np.inf)
    for k in np.linspace(-35.0, -29.0, 13):
        inv = np.where(top == 0, 0, k / np.where(top == 0, 1, top))
        q = np.clip(np.rint(g * inv[..., None]), -32, 31)
        qq = (q * q).sum(-1)
        s = np.where(qq == 0, 0, (g * q).sum(-1) / np.where(qq == 0, 1, qq))
        e = ((g - s[..., None] * q) ** 2).sum(-1)
        best, error = np.where(e < error, s, best), np.minimum(e, error)
    wide = np.take_along_axis(best, np.abs(best).argmax(-1)[:, None], -1)[:, 0]
    d = (wide / -128.0).astype(np.float16)
    df = d.astype(np.float64)
    inv = np.where(df == 0, 0, 1 / np.where(df == 0, 1, df))
    sc = np.clip(np.rint(best * inv[:, None]), -128, 127)
    step = sc * df[:, None]
    q = np.clip(np.rint(g * np.where(step == 0, 0, 1 / np.where(step == 0, 1, step))[..., None]), -32, 31)
    value = (q * step[..., None]).astype(np.float32).reshape(w.shape)
    codes = (q + 32).astype(np.uint8).reshape(-1, 2, 4, 32)  # half, quarter, lane
    low, high = codes & 15, codes >> 4
    ql = np.concatenate([low[:, :, 0:2] | low[:, :, 2:4] << 4], -1).reshape(-1, 128)
    qh = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(-1, 64)
    scales = sc.astype(np.int8).view(np.uint8)
    return np.concatenate([ql, qh, scales, d.view(np.uint8).reshape(-1, 2)], -1), value


def write_gguf(path, tok, c, blocks, norms):
    """LLaMA metadata as llama.cpp's loader expects it, the tokenizer, and the tensors."""
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("stories")
    w.add_file_type(18)
    w.add_quantization_version(2)
    w.add_context_length(c["context"])
    w.add_embedding_length(c["hidden"])
    w.add_block_count(c["layers"])
    w.add_feed_forward_length(c["ff"])
    w.add_head_count(c["heads"])
    w.add_head_count_kv(c["kv_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_rope_freq_base(c["rope_base"])
    w.add_layer_norm_rms_eps(c["eps"])
    state = json.loads(tok.to_str())["model"]
    vocab = sorted(state["vocab"], key=state["vocab"].get)
    w.add_vocab_size(len(vocab))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(vocab)
    w.add_token_types([3 if t == END else 1 for t in vocab])
    w.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in state["merges"]])
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_add_bos_token(True)
    for name, (data, shape) in blocks.items():
        w.add_tensor(name, data.reshape(shape[0], -1), raw_dtype=gguf.GGMLQuantizationType.Q6_K)
    for name, data in norms.items():
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default="stories.gguf")
    ap.add_argument("--report", default="report.json")
    ap.add_argument("--stories", type=int, default=200_000)
    ap.add_argument("--held-out", type=int, default=2_000)
    ap.add_argument("--vocab", type=int, default=1024)
    ap.add_argument("--steps", type=int, default=4_000)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--length", type=int, default=384)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--minutes", type=float, default=6.0, help="stop training after this long, whatever the step")
    args = ap.parse_args()

    began = time.time()
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    rng = random.Random(args.seed)
    stories = list({grammar.story(rng) for _ in range(args.stories + args.held_out)})
    rng.shuffle(stories)
    held, train = stories[: args.held_out], stories[args.held_out :]
    tok = make_tokenizer(train[:20_000], args.vocab)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ids, starts = (t.to(device) for t in encode(tok, train))
    held_ids, held_starts = (t.to(device) for t in encode(tok, held))
    print(f"{len(train)} stories, {len(ids)} tokens, {time.time() - began:.0f} s", flush=True)

    model = Model(tok.get_vocab_size(), SHAPE).to(device)
    params = sum(p.numel() for p in model.parameters())
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    opt = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.95)
    )
    run = torch.compile(model) if device.type == "cuda" else model
    starts = starts[starts + args.length + 1 < len(ids)]
    warm, clock, share = 200, time.time(), 0.0
    for step in range(args.steps):
        share = max(step / args.steps, (time.time() - clock) / (60 * args.minutes))
        if share >= 1:
            break
        lr = args.lr * min(1, (step + 1) / warm) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in opt.param_groups:
            group["lr"] = lr
        x = windows(ids, starts, torch.randint(len(starts), (args.batch,), device=device), args.length)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = run(x[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 200 == 0:
            print(f"step {step} loss {loss.item():.4f} {time.time() - clock:.0f} s", flush=True)

    model.eval()
    ppl = perplexity(model, held_ids, held_starts)
    blocks, norms = {}, {}
    with torch.no_grad():
        for name, p in model.named():
            if p.ndim == 1:
                norms[name] = p.float().cpu().numpy()
                continue
            data, value = quantize_q6_k(p.float().cpu().numpy())
            blocks[name] = (data, p.shape)
            p.copy_(torch.from_numpy(value))
    ppl_q = perplexity(model, held_ids, held_starts)
    write_gguf(args.out, tok, SHAPE, blocks, norms)

    report = dict(
        parameters=params, vocab=tok.get_vocab_size(), train_stories=len(train), train_tokens=len(ids), held_out_tokens=len(held_ids),
        steps=step + 1, held_out_perplexity_f32=ppl, held_out_perplexity_q6_k=ppl_q, seconds=time.time() - began, shape=SHAPE,
    )
    x = torch.zeros(1, 1, dtype=torch.long, device=device)
    for _ in range(250):
        with torch.no_grad():
            nxt = model(x)[0, -1].argmax()
        if nxt == 0:
            break
        x = torch.cat((x, nxt.view(1, 1)), 1)
    report["greedy"] = tok.decode(x[0].tolist())
    report["greedy_tokens"] = x[0].tolist()
    with open(args.report, "w") as f:
        json.dump(report, f, indent=1)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
