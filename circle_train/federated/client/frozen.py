"""What the frozen beginning of the model makes of each client's samples: kept from round to round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from circle_train.compile.prefix import Keep
from circle_train.compile.program import Mode
from circle_train.data.dataset import Dataset, Stream
from circle_train.federated.client.session import ClientSession
from circle_train.runtime.kept import KeptDataset, Store
from circle_train.session.keeping import allowed_bytes, with_store


class FrozenResults:
    """A store for each client, as long as all of them together take no more than allowed."""

    def __init__(self, session: ClientSession, wish: bool | int | str) -> None:
        self.session = session
        works = not session.programs.has_lengths and not all(p.trained for p in session.program.parameters)
        self.limit = allowed_bytes(session, wish) if works else 0
        self.keep = Keep(self.limit, session.config.batch_size, None if wish is True else session.backend)
        self.stores: dict[tuple[int, Mode], Store] = {}
        self.used = 0

    @contextmanager
    def of(self, who: int, mode: Mode, data: Dataset | Stream) -> Iterator[Dataset | Stream]:
        """The client's data, fed from what is kept of them."""
        kept = self._kept((who, mode), data) if self.limit > 0 else None
        if kept is None:
            yield data
            return
        try:
            yield kept
        finally:
            kept.store.forget_inputs()

    def _kept(self, key: tuple[int, Mode], data: Dataset | Stream) -> KeptDataset | None:
        store = self.stores.get(key)
        if store is not None and isinstance(data, Dataset) and store.renew(data):
            return KeptDataset(data.inputs, data.targets, store)
        if store is not None:
            self.used -= self.stores.pop(key).nbytes
        made = with_store(self.session, data, key[1], self.keep, self.limit - self.used)
        if not isinstance(made, KeptDataset):
            return None
        if self.used + made.store.nbytes > self.limit:
            return None
        self.stores[key] = made.store
        self.used += made.store.nbytes
        return made
