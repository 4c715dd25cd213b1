"""What `--help` prints, straight from the configuration's files: Hydra would take half a second for it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

RUN_HEAD = """\
usage: kvsim run [OPTION ...] [KEY=VALUE ...]    simulate one system under one workload

  kvsim run system=vllm_v1 workload=sharegpt rate=2
  kvsim run system=orca_max workload=alpaca rate=20 duration=600 seed=1 output=json

Results go to outputs/DATE/TIME (hydra.run.dir=DIR), the summary to stdout.
"""

SWEEP_HEAD = """\
usage: kvsim sweep [OPTION ...] [KEY=VALUE,VALUE,... ...]    simulate every point of a grid

  kvsim sweep system=orca_max,vllm_v1 rate=1,1.5,2 seed=0,1,2
  kvsim sweep experiment=quickstart hydra/launcher=joblib
  kvsim sweep 'scheduler.max_num_seqs=range(32,257,32)' rate=2 sweep.dry_run=true

Results go to multirun/DATE/TIME (hydra.sweep.dir=DIR): a run folder a point, and index.json; the table to stdout.
All points are checked before the first one runs. A sweep into the folder of an earlier one keeps the runs that are
finished; with another version of kvsim or a changed input file they run again; with other values of keys that are not
in their folders' names the sweep is refused.
hydra/launcher=joblib uses all cores, hydra.launcher.n_jobs=N that many: pip install 'kvsim[sweep]'.
"""

GROUPS = "\nGroups, GROUP=OPTION, * the default, each with keys of its own (--cfg job shows them):\n"
KEYS = "\nKeys and their defaults (kv.block_size=16 on the command line):\n"

FLAGS = """\
Options:
  --cfg job|hydra|all   print the configuration instead of running; --resolve fills in ${...}, --package picks a part
  --config-dir DIR      also take options from DIR/GROUP/*.yaml
  --info[=KIND]         how the configuration is put together
  -sc install=SHELL     shell completion: eval "$(kvsim run -sc install=bash)"; fish and zsh work too
  --hydra-help          Hydra's own help
"""


def command_help(head: str, config_dirs: Iterable[str] = (), default: str = "") -> str:
    """`head`, groups with their options, also those of `config_dirs`, and the top-level keys with their defaults.

    Args:
        default: a GROUP=OPTION that is this command's default instead of the group's own.
    """
    roots: list[Traversable] = [resources.files("kvsim.conf"), *(Path(path) for path in config_dirs)]
    groups: dict[str, set[str]] = {}
    for root in roots:
        for folder in root.iterdir() if root.is_dir() else ():
            if folder.is_dir() and folder.name not in ("hydra", "__pycache__"):
                options = {file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")}
                groups.setdefault(folder.name, set()).update(options - {"base"})
    defaults, keys = _top_level(roots[0])
    group, _, option = default.partition("=")
    defaults = {entry for entry in defaults if not entry.startswith(f"{group}: ")} | {f"{group}: {option}"}
    lines = [_group_lines(name, sorted(groups[name]), defaults) for name in sorted(groups)]
    return f"{head}{GROUPS}{''.join(lines)}{KEYS}{keys}\n{FLAGS}"


def _group_lines(name: str, options: list[str], defaults: set[str]) -> str:
    import textwrap

    marked = (f"{option}*" if f"{name}: {option}" in defaults else option for option in options)
    return textwrap.fill(", ".join(marked), 112, initial_indent=f"  {name:10} ", subsequent_indent=" " * 13) + "\n"


def _top_level(root: Traversable) -> tuple[set[str], str]:
    """The defaults list as ``group: option``, and the keys below it with their comments."""
    text = (root / "config.yaml").read_text(encoding="utf-8")
    defaults, _, rest = text.partition("\n\n")
    entries = {line.partition(" #")[0].strip(" -") for line in defaults.splitlines()}
    keys = rest.partition("\nhydra:")[0]
    return entries, "".join(f"  {line}\n" if line else "" for line in keys.splitlines())
