"""Pages of sellers, made from a ledger as the sellers get them: of each its own, and nothing of others."""

import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shapshift.exceptions import InputError

if TYPE_CHECKING:
    from shapshift.market.rounds import Market


class Sellers:
    """Rounds and sellers of a ledger.

    Parameters
    ----------
    where : path or URL
        As :class:`~shapshift.market.rounds.Market` takes it.
    name : str
        What the page calls it; without a password.
    """

    def __init__(self, where: str, name: str) -> None:
        self.name = name
        self._where, self._lock = where, threading.Lock()
        with self._market():
            pass  # or say what is wrong with it

    def _market(self) -> "Market":
        from shapshift.market.rounds import Market

        return Market(self._where)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the closed rounds, the latest first, each with its sellers."""
        with self._lock, self._market() as market:
            names = [event.round for event in market.ledger.events(kind="close")]
            return [
                {"round": name, "key": k, "sellers": list(market.closed(name).payments)}
                for k, name in reversed(list(enumerate(names)))
            ]

    def page(self, round: int, seller: int) -> str:
        """Return a seller's statement; round and seller by their places in :meth:`rounds`."""
        with self._lock, self._market() as market:
            name, who = self._find(market, round, seller)
            with tempfile.TemporaryDirectory() as folder:
                (path,) = market.write_statements(name, folder, seller=who)
                return Path(path).read_text(encoding="utf-8")

    def history(self, round: int, seller: int) -> list[dict[str, Any]]:
        """Return what the ledger says of one seller: what was submitted and paid, with receipts."""
        with self._lock, self._market() as market:
            _, who = self._find(market, round, seller)
            found = [
                {"round": event.round, "what": event.kind, "time": event.time, "receipt": event.digest}
                | {"rows": event.content.get("rows")}
                for event in market.ledger.events(seller=who)
            ]
            for name in {one.round for one in market.ledger.events(kind="close")}:
                closed = market.closed(name)
                if who in closed.payments:
                    paid = closed.terms.show(closed.payments[who])
                    found.append({"round": name, "what": "paid", "time": closed.time, "amount": paid})
            return sorted(found, key=lambda one: str(one["time"]))

    @staticmethod
    def _find(market: "Market", round: int, seller: int) -> tuple[str, str]:
        names = [event.round for event in market.ledger.events(kind="close")]
        if 0 <= round < len(names):
            known = list(market.closed(names[round]).payments)
            if 0 <= seller < len(known):
                return names[round], known[seller]
        raise InputError("There is no such round or seller.")
