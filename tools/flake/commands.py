"""Compares the development shell of flake.nix (its evaluation, as JSON on standard input) with the
documentation: every command of a shell block is a program of this repository, or comes with a package of the
shell. Fails with the list of those that do not."""

import json
import pathlib
import re
import sys

# Commands a package gives, where they are not called like it.
GIVES = {
    "gawk": ["awk"],
    "gcc": ["cc", "c++", "gcc"],
    "gnugrep": ["grep"],
    "coreutils": ["cat", "cp", "echo", "head", "ls", "mkdir", "sort", "stat", "tail", "wc", "xargs", "sha256sum"],
}
# This project's programs, and the shell's own words.
OWN = {"nvdiag", "llm-demo", "hcq-bench", "hcq-conform", "hcq-fuzz", "hcq-soak", "llm-bench", "llm-conform",
       "llm-fuzz", "PROGRAM"}
SHELL = {"cd", "do", "done", "for", "while", "if", "then", "fi", "export", "echo", "set", "break", "read",
         "printf"}
# What only the machine at hand can have: the driver's and the system's own.
SYSTEM = {"sudo", "dmesg", "journalctl", "nvpmodel", "jetson_clocks", "systemctl", "usermod", "modinfo", "nvcc",
          "apt-get", "apt", "dpkg-query", "nvidia-smi", "docker", "ptxas", "nvdisasm", "man", "ssh", "gdb"}

LINE = re.compile(r"\\\n")
BLOCK = re.compile(r"```(sh|console|bash)\n(.*?)```", re.DOTALL)


def commands(text):
    for kind, block in BLOCK.findall(text):
        # Quoted text holds programs of other languages and regular expressions.
        block = re.sub(r"'[^']*'|\"[^\"]*\"", "_", LINE.sub(" ", block))
        for line in block.splitlines():
            if kind == "console":
                if not line.startswith("$ "):
                    continue
                line = line[2:]
            line = line.split("#")[0]
            for part in re.split(r"\|\|?|&&|;|\$\(|`", line):
                words = [w for w in part.split() if not re.match(r"[A-Za-z_]+=|[<>0-9]|-|\)|_", w)]
                if words:
                    yield words[0].rstrip(")")


def main():
    outputs = json.load(sys.stdin)
    wrong = []
    for system, output in outputs.items():
        if not output["lockFile"]:
            wrong.append(f"{system}: the package's lock file does not exist")
        shell = output["shell"]["packages"]
        known = OWN | SHELL | SYSTEM | {c for p in shell for c in GIVES.get(p, [p])}
        root = pathlib.Path(".")
        pages = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("*/README.md")]
        checked = 0
        for page in pages:
            for command in commands(page.read_text()):
                checked += 1
                # A path is a program of this repository, or one that the page's own commands have made.
                if command in known or "/" in command:
                    continue
                wrong.append(f"{system}: {page} uses {command}, which the shell does not have")
        if not checked:
            wrong.append(f"{system}: no command found in the documentation")
    for line in sorted(set(wrong)):
        print("flake:", line, file=sys.stderr)
    if wrong:
        sys.exit(1)
    print(f"flake: evaluates for {', '.join(outputs)}; {checked} commands of the documentation are in its shell")


if __name__ == "__main__":
    main()
