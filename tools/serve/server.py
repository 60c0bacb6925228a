"""Starts `llm-demo serve` for the scripts beside this one."""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import threading

# What the embedded model answers to "Once upon a time" first.
STORY = ", a cheerful boy named Tom lived on a quiet farm."


@contextlib.contextmanager
def serving(program, *options):
    """The process and the base of its addresses; ends it by SIGTERM, after which its exit code has to be 0.

    Conversations are the texts of all messages, one after the other: the embedded model has no template. Tools are
    in them by their names, calls by the way of Hermes.
    """
    environment = {key: value for key, value in os.environ.items() if key not in ("HCQ_DEVICE", "RUST_LOG")}
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder, "template.jinja")
        template.write_text("{# <tool_call> #}{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
                            "{% for m in messages %}{{ m.content }}{% endfor %}")
        command = [program, "serve", "--port", "0", "--template", template, *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "listening on " in line:
                    break
            else:
                raise SystemExit(f"the server ended with {process.wait()}: {''.join(lines)}")
            # A full pipe would stop the server.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield process, line.split("listening on ")[1].strip()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, process.returncode
        finally:
            process.kill()
            process.wait()


def fails(kind, call):
    """The error that `call` raises, which has to be of `kind`."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")
