#!/usr/bin/env python3
"""What a driver's tree can print: every format of its logging calls, with file, function and level.

    extract.py ROOT [FOLDER...]     tab-separated lines: file, function, level, format

The tree is read as text: comments go, literals that follow one another are joined, `#define`d string constants are put in.
A call whose format is no literal is listed on the standard error.
"""

import re
import sys
from pathlib import Path

# Calls that print, by name: the level, and which argument is the format.
CALLS = {
    "nvgpu_err": ("ERR", 1),
    "nvgpu_warn": ("WRN", 1),
    "nvgpu_info": ("INFO", 1),
    "nvgpu_do_assert_print": ("ERR", 1),
    "nvgpu_timeout_expired_msg": ("ERR", 1),
    "gk20a_debug_output": ("DUMP", 1),
    "gk20a_err": ("ERR", 1),
    "gk20a_warn": ("WRN", 1),
    "dev_err": ("ERR", 1),
    "dev_warn": ("WRN", 1),
    "dev_err_ratelimited": ("ERR", 1),
    "dev_warn_once": ("WRN", 1),
    "pr_err": ("ERR", 0),
    "pr_err_ratelimited": ("ERR", 0),
    "pr_err_once": ("ERR", 0),
    "pr_warn": ("WRN", 0),
    "pr_warn_once": ("WRN", 0),
    "nvmap_err": ("ERR", 0),
    "WARN": ("WRN", 1),
    "WARN_ONCE": ("WRN", 1),
    "nvhost_err": ("ERR", 1),
    "nvhost_warn": ("WRN", 1),
}
# Texts in front of a message that the call itself adds.
BEFORE = {"nvgpu_timeout_expired_msg": "Timeout detected @ %pF "}
# What the compiler or the C library puts between the literals.
CONSTANTS = {"PRIu64": "llu", "PRIx64": "llx", "PRIu32": "u", "PRIx32": "x", "PRId32": "d", "PRId64": "lld"}

TOKEN = re.compile(
    r"""(?P<string>"(?:\\[\s\S]|[^"\\\n])*")|(?P<char>'(?:\\.|[^'\\\n])*')|(?P<name>[A-Za-z_]\w*)|(?P<other>[^\s])|(?P<line>\n)""",
    re.VERBOSE,
)


def without_comments(text):
    """The text with comments blanked, lines kept."""

    def blank(match):
        found = match.group(0)
        return found if found[0] in "\"'" else re.sub(r"[^\n]", " ", found)

    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\[\s\S]|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text, flags=re.DOTALL)


def string_constants(files):
    """`#define NAME "text"` of all files."""
    constants = dict(CONSTANTS)
    for text in files.values():
        for name, value in re.findall(r'^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+((?:"(?:\\.|[^"\\\n])*"[ \t]*)+)$', text, re.MULTILINE):
            constants.setdefault(name, "".join(unquote(s) for s in re.findall(r'"(?:\\.|[^"\\\n])*"', value)))
    return constants


def unquote(literal):
    """What a C literal stands for; escapes of control characters become blanks."""
    inner = re.sub(r"\\[ntrv]|\\\n\s*|\t", " ", literal[1:-1])
    return re.sub(r"\\(.)", r"\1", inner)


def argument(tokens, at, index):
    """The tokens of one argument of the call whose `(` is at `at`."""
    depth, found, current = 0, 0, []
    for kind, text in tokens[at:]:
        if text in "([{" and kind == "other":
            depth += 1
            if depth == 1:
                continue
        elif text in ")]}" and kind == "other":
            depth -= 1
            if depth == 0:
                return current if found == index else None
        if depth == 1 and text == "," and kind == "other":
            if found == index:
                return current
            found, current = found + 1, []
        else:
            current.append((kind, text))
    return None


def functions(text):
    """The function each line of a file belongs to; a macro's lines belong to the macro."""
    owners, candidate, current, macro = [], "", "", ""
    for line in text.split("\n"):
        if macro or (defined := re.match(r"#\s*define\s+(\w+)", line)):
            macro = macro or defined[1]
            owners.append(macro)
            macro = macro if line.endswith("\\") else ""
            continue
        # The kernel's style: a function begins in the first column, and so does the brace of its body.
        if re.match(r"[A-Za-z_]", line) and not re.match(r"(typedef|if|for|while|switch|return)\b", line):
            names = re.findall(r"(?<![\w.])([A-Za-z_]\w*)\s*\(", line)
            names = [n for n in names if n not in ("__attribute__", "void", "__must_hold", "__releases", "__acquires")]
            candidate = names[0] if names else candidate
        elif line.startswith("{"):
            current = candidate
        owners.append(current)
    return owners


def formats(path, text, constants):
    """The (function, level, format) of each call in a file."""
    owners = functions(text)
    tokens, number = [], 0
    for match in TOKEN.finditer(text):
        tokens.append((match.lastgroup, match[0], number))
        number += match[0].count("\n")
    # Lines of macros are one line.
    tokens = [t for t in tokens if t[1] != "\\"]
    for i, (kind, token, line) in enumerate(tokens):
        if kind != "name" or token not in CALLS or owners[line] == token:
            continue
        following = next((j for j in range(i + 1, min(i + 3, len(tokens))) if tokens[j][0] != "line"), None)
        if following is None or tokens[following][1] != "(":
            continue
        level, index = CALLS[token]
        pieces = argument([t[:2] for t in tokens[following : following + 400]], 0, index) or []
        pieces = [p for p in pieces if p[0] != "line"]
        joined = ""
        for piece_kind, piece in pieces:
            if piece_kind == "string":
                joined += unquote(piece)
            elif piece_kind == "name" and piece in constants:
                joined += constants[piece]
            else:
                joined = None
                break
        if not joined or not joined.strip():
            if pieces:
                print(f"{path}: {owners[line]}: {token} of {' '.join(t for _, t in pieces)}", file=sys.stderr)
            continue
        yield owners[line], level, BEFORE.get(token, "") + joined


def main():
    root = Path(sys.argv[1])
    folders = sys.argv[2:] or ["."]
    files = {}
    for folder in folders:
        for path in sorted((root / folder).rglob("*.[ch]")):
            text = without_comments(path.read_text(errors="replace"))
            # Other systems' layers print nothing on Linux.
            if not re.search(r"/(posix|qnx|hvrtos)/", str(path)):
                files[str(path.relative_to(root))] = text
    constants = string_constants(files)
    for path, text in files.items():
        for function, level, text_format in formats(path, text, constants):
            print("\t".join((path, function, level, text_format.rstrip())))


if __name__ == "__main__":
    main()
