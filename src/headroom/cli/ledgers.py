"""The ledger that the settings name, with its queue where it is not a file of our own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headroom.adapters.ledger import open_ledger
from headroom.adapters.ledger.queue import QueuedLedger
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.model.ports import Ledger
    from headroom.runtime.settings import Settings


def of(settings: Settings) -> Ledger:
    """Nothing is opened yet; only the folder for it is made."""
    url = settings.ledger_url
    if url and not url.startswith(("postgres://", "postgresql://")):
        return open_ledger(url)
    folder = _folder(settings)
    return QueuedLedger(open_ledger(url), folder / "queue.db") if url else open_ledger(str(folder / "ledger.db"))


def _folder(settings: Settings) -> Path:
    try:
        folder = Path(settings.state_dir).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise Misconfigured(
            f"making the folder {settings.state_dir}: {error}; give another one with --state-dir (HEADROOM_STATE_DIR)"
        ) from error
    return folder
