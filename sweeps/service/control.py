"""See, extend or cut a sweep under way: ``python -m sweeps.service.control status|add|cancel``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from adaptbin.errors import AdaptBinError, ConfigError, unknown
from sweeps.service.options import repository_root
from sweeps.service.progress import duration
from sweeps.service.steering import Request, ask, read_status

COMMANDS = ("status", "add", "cancel")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("command", metavar="[status|add|cancel]")
@click.argument("points", nargs=-1, metavar="[PANEL=VALUE]...")
@click.option(
    "--output", type=click.Path(path_type=Path), help="The sweep's --output.  [default: mlruns/ of the checkout]"
)
def _control(command: str, points: tuple[str, ...], output: Path | None) -> None:
    """See, extend or cut the sweep that is training into an output folder.

    "status" tells how it gets on; "add tau=0.003" gives a panel one more value, trained with all the sweep's seeds;
    "cancel tau=0.003" takes one away.  With own grids panels are the fields that they move, masking=random too; in the
    masking grid they are mask_prob and t_init, in an ablation t_max.  Results of finished replicas stay.
    """
    folder = (output or repository_root() / "mlruns").expanduser().resolve()
    if command not in COMMANDS:
        raise ConfigError(unknown("command", command, COMMANDS))
    if (command == "status") != (not points):
        raise ConfigError(
            f"add and cancel need points, such as tau=0.003, and status none, got {command} {' '.join(points)}"
        )
    if command == "status":
        _tell(folder)
    for text in points:
        verb: Any = command
        click.echo(ask(folder, Request.parse(verb, text)))


def _tell(folder: Path) -> None:
    status = read_status(folder)
    if status is None:
        click.echo(f"no sweep is training into {folder}")
        return
    click.echo(f"{status['study']}: {status['progress']}")
    click.echo(f"process {status['pid']} on {status['host']}, told {duration(status['age_seconds'])} ago")
    for title in ("training", "failures"):
        for line in status[title]:
            click.echo(f"  {line}" if title == "training" else f"  failed: {line}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; -> exit code: 0 done, 2 refused."""
    try:
        _control.main(args=None if arguments is None else list(arguments), standalone_mode=False, prog_name="control")
    except (AdaptBinError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"error: {text}", err=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
