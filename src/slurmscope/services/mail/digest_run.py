# SPDX-License-Identifier: Apache-2.0
"""Open what letters are made from and sent through, and send them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from slurmscope.config import Config
from slurmscope.services.mail.digest_sending import Delivery, Post
from slurmscope.services.mail.digest_sums import DigestSubject
from slurmscope.services.mail.digests import DigestRequest, write_digests
from slurmscope.services.mail.mailing import open_mail_server
from slurmscope.services.reporting.opening import no_archive, open_reporting
from slurmscope.services.reporting.settings import MailSettings
from slurmscope.sources.slurm.account_coordinators import read_coordinators
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings
from slurmscope.store.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from slurmscope.store.archive.archive import SqlArchive
    from slurmscope.store.archive.checkpoints import Checkpoints

MAILS_KEPT_SECONDS = 30 * 86400
"""How long it is known who had a letter; it must be for more than the week between two."""

CoordinatorsByAccount = Mapping[str, Sequence[str]]


def run_digests(
    config: Config, environment: Mapping[str, str], wish: DigestRequest, *, to: str, now_seconds: int, is_dry_run: bool
) -> Iterator[Delivery]:
    """Send each letter, or only show it, and yield what became of it.

    A letter about a user goes to that user, one about an account to its coordinators, or to the address ``to``.
    """
    settings = config.of(MailSettings)
    send = None if is_dry_run else open_mail_server(settings).send
    commands = SlurmCommands(config.of(SlurmSettings), environment)
    # Asked when the first letter needs it, and once.
    coordinators = cache(lambda: read_coordinators(commands.run))
    with _open_archive(config, environment) as (archive, checkpoints):
        if not is_dry_run:
            checkpoints.forget_mails(now_seconds - MAILS_KEPT_SECONDS)
        post = Post(checkpoints, settings, send, now_seconds=now_seconds)
        for about, digest in write_digests(archive, wish, now_seconds):
            yield from post.deliver(about, digest, _readers(about, to, coordinators) if digest else ())


def set_opt_outs(
    config: Config, environment: Mapping[str, str], opt_outs: Sequence[str], opt_ins: Sequence[str]
) -> None:
    """Remember who wants no letters, and who wants them again."""
    with _open_archive(config, environment) as (_, checkpoints):
        for user in opt_outs:
            checkpoints.set_opt_out(user, is_opted_out=True)
        for user in opt_ins:
            checkpoints.set_opt_out(user, is_opted_out=False)


def _readers(about: DigestSubject, to: str, coordinators: Callable[[], CoordinatorsByAccount]) -> Sequence[str]:
    if not about.is_account:
        return (about.name,)
    return (to,) if to else coordinators().get(about.name, ())


@contextmanager
def _open_archive(config: Config, environment: Mapping[str, str]) -> Iterator[tuple[SqlArchive, Checkpoints]]:
    with open_reporting(config, environment) as reporting:
        if reporting.archive is None:
            raise no_archive(config.of(ArchiveSettings))
        from slurmscope.store.archive.checkpoints import Checkpoints

        yield reporting.archive, Checkpoints(reporting.archive.database)
