"""What a warm process has loaded: a server with its kernels, which were used once.

What runs afterwards opens no files but its own.
"""

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from synopses.precompile import compile_kernels, compile_question_kernels
from tests.engine.scripted import play

for _module in ("shedder.cli.commands", "shedder.server.server", "tests.archive.children"):
    import_module(_module)
compile_kernels()
compile_question_kernels()
with TemporaryDirectory() as _elsewhere:
    play(Path(_elsewhere), lambda _text: None)
