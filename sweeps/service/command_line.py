"""The words of a command line, by the names of its options: the same in every script that has them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from adaptbin.errors import AdaptBinError, ConfigError, nearest
from sweeps.service.choice import CHOSEN_FIELDS

T = TypeVar("T")

LISTS = ("--dataset", "--depth", "--encoder", "--mask-prob", "--panel", "--seeds", "--t-init", "--t-max", "--width")
"""Options whose values may follow as several words."""


def run_words(
    argv: Sequence[str] | None,
    *,
    prog: str,
    about: str,
    options: Sequence[click.Parameter],
    work: Callable[[Mapping[str, Any]], None],
) -> int:
    """Run a script that trains no replica, and return its exit code; ``work`` takes what :func:`parse_words` found.

    0: done (and ``--help``).  1: a file could not be written.  2: the request was refused.
    """
    try:
        given = parse_words(argv, prog=prog, about=about, options=options)
        if given is not None:
            work(given)
    except AdaptBinError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse_words(
    argv: Sequence[str] | None, *, prog: str, about: str, options: Sequence[click.Parameter]
) -> Mapping[str, Any] | None:
    """Values of ``options`` in a command line (``sys.argv`` by default), by name; None when it only asked for help.

    Raises ConfigError with one clear line for whatever is unknown, missing or no value of its option.
    """
    arguments = _join_lists(list(sys.argv[1:] if argv is None else argv))
    command = click.Command(
        prog,
        params=list(options),
        help=about,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
    )
    try:
        with command.make_context(prog, arguments) as context:
            _refuse_two_defaults(context)
            return context.params
    except click.exceptions.Exit:
        return None
    except click.NoSuchOption as error:
        names = [option for parameter in command.params for option in parameter.opts]
        raise ConfigError(
            f"unknown option {error.option_name}{nearest(error.option_name, names)}; see --help"
        ) from error
    except click.ClickException as error:
        raise ConfigError(_one_line(error)) from error


def flat_names(lists: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """Names of an option that may be given several times, each once."""
    return tuple(dict.fromkeys(name for names in lists for name in names))


def _refuse_two_defaults(context: click.Context) -> None:
    """Raise ConfigError when something is both typed and taken from a choice."""
    if context.params.get("choice_from") is None:
        return
    chosen = [name for name in CHOSEN_FIELDS if name in context.params]
    typed = [
        f"--{name.replace('_', '-')}"
        for name in chosen
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if typed:
        raise ConfigError(f"--choice-from sets {', '.join(chosen)}, so it takes none of them, got {typed[0]}")


def _join_lists(arguments: Sequence[str]) -> list[str]:
    """``--dataset eol hfc`` as ``--dataset eol,hfc``: words after a list option belong to it."""
    joined: list[str] = []
    for argument in arguments:
        if len(joined) > 1 and joined[-2] in LISTS and not argument.startswith("-"):
            joined[-1] += f",{argument}"
        else:
            joined.append(argument)
    return joined


def _one_line(error: click.ClickException) -> str:
    option = getattr(getattr(error, "param", None), "opts", [""])[0]
    if isinstance(error, click.MissingParameter):
        return f"{option} must be given; see --help"
    message = " ".join(error.format_message().split()).rstrip(".")
    return message[0].lower() + message[1:] if message else type(error).__name__
