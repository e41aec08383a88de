"""Flower's grid in one process: each message is answered by the client app when its reply is asked for."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from circle_train.errors import ConfigError
from circle_train.federated.client.app import PLACE, RAISED
from circle_train.federated.identity import RUN

FIRST = 2
"""The first client's node; 1 is the server."""


class LocalGrid(Grid):
    """All clients of a fleet in this process, one after the other; replies to a stream of messages are one, too.

    A client costs memory while it replies; what it put into its context's state stays until its next turn.

    Args:
        client_app: any Flower ClientApp.
        clients: how many there are; each finds "partition-id" and "num-partitions" in `context.node_config`.
        run_config: what they find in `context.run_config`.
        node_configs: what each finds besides in `context.node_config`.
    """

    def __init__(
        self,
        client_app: ClientApp,
        clients: int,
        run_config: Mapping[str, Any] | None = None,
        node_configs: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        if not isinstance(clients, int) or clients < 1:
            raise ConfigError(f"clients is {clients!r}, expected a whole number from 1")
        if node_configs and len(node_configs) != clients:
            raise ConfigError(
                f"node_configs are {len(node_configs)}, expected one for each of {clients} clients"
            )
        self.client_app, self.clients = client_app, clients
        self.run_config, self.node_configs = dict(run_config or {}), list(node_configs)
        self._states: dict[int, RecordDict] = {}
        self._replies: dict[str, Message] = {}
        self._run: Any = SimpleNamespace(run_id=RUN)

    def set_run(self, run: Any) -> None:
        self._run = run

    @property
    def run(self) -> Any:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return range(FIRST, FIRST + self.clients)

    def place_of(self, node: int) -> int:
        """The client's place in the fleet."""
        return node - FIRST

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        identifiers = []
        for message in messages:
            reply = self.answer(message)
            self._replies[message.metadata.message_id] = reply
            identifiers.append(message.metadata.message_id)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(one) for one in message_ids if one in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """A list of replies in the order of the clients; of messages that come one by one, replies that do."""
        if isinstance(messages, Iterator):
            return self._answers(messages)
        return list(self._answers(sorted(messages, key=lambda message: message.metadata.dst_node_id)))

    def _answers(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            yield self.answer(message)

    def answer(self, message: Message) -> Message:
        """The client's reply; an error where it raises, so that one client's fault is its own."""
        metadata = message.metadata
        metadata.__dict__["_message_id"] = metadata.message_id or secrets.token_hex(8)
        node = metadata.dst_node_id
        if not FIRST <= node < FIRST + self.clients:
            return Message(Error(6, f"there is no node {node}"), reply_to=message)
        context = self._context(node)
        delivered = copy(message)
        delivered.content = _delivered(message.content)
        try:
            reply = self.client_app(delivered, context)
            if not isinstance(reply, Message):
                raise TypeError(f"the client app returned a {type(reply).__name__}, expected a Message")
        except (Exception, SystemExit) as error:  # whatever a client's code raises is that client's
            return Message(Error(RAISED, f"{type(error).__name__}: {error}"), reply_to=message)
        if context.state:
            self._states[node] = context.state
        return reply

    def _context(self, node: int) -> Context:
        place = self.place_of(node)
        config = dict(self.node_configs[place]) if self.node_configs else {}
        return Context(
            run_id=RUN,
            node_id=node,
            node_config={PLACE: place, "num-partitions": self.clients, **config},
            state=self._states.get(node) or RecordDict(),
            run_config=dict(self.run_config),
        )


def _delivered(content: RecordDict) -> RecordDict:
    """Records of its own for each client, as if they had travelled; arrays, which are bytes, are shared."""
    delivered = RecordDict()
    for name, record in content.items():
        delivered[name] = record.copy()
    return delivered
