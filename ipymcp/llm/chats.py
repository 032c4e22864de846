"""The conversations of a kernel with models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError
from ipymcp.llm.answer import Answer
from ipymcp.security.untrusted import Conversation
from ipymcp.storage.chats import SavedChats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.runtime.host import Host


class Chat:
    """The state of a conversation."""

    def __init__(self) -> None:
        self.messages: Sequence[Any] = []
        """The conversation as JSON."""
        self.conversation = Conversation()
        self.handles: set[int] = set()
        """The numbers of the long results that the model may read."""
        self.earlier_as = ""
        """The name under which the saved chat of this name is kept when this one is saved; empty if there is none."""

    def continue_from(self, messages: Sequence[Any], source: str) -> None:
        """Continue from an earlier conversation.

        Args:
            messages: The messages of that conversation as JSON.
            source: The source of the untrusted content that the model has read; empty for none.
        """
        self.messages, self.conversation = messages, Conversation()
        if source:
            self.conversation.read(source)


class Chats:
    """The conversations of this kernel by their names, which are saved with the notebook.

    Args:
        host: The host.
    """

    def __init__(self, host: Host) -> None:
        self._by_name: dict[str, Chat] = {}
        self.saved = SavedChats(
            lambda: host.store.database, host.notebook or host.folder, lambda: host.history.mode != "off"
        )
        """The named chats of all kernels of this notebook."""

    def current(self, name: str) -> Chat:
        """Return this kernel's chat of a name, or a new one."""
        return self._by_name.get(name) or Chat()

    async def find(self, name: str, *, continues: bool, history: Sequence[Any] | Answer | None) -> Chat:
        """Return the conversation to which a question belongs.

        Args:
            name: The name of the chat; empty for a new conversation.
            continues: Whether the chat must exist, in this kernel or saved by another one.
            history: An earlier answer or its messages, with which the conversation begins; None for those of the chat.

        Raises:
            McpError: The question continues a conversation that does not exist.
        """
        chat = self.current(name)
        if name and not chat.messages:
            saved = await self.saved.find(name)
            if continues:
                if saved is None:
                    raise McpError(f"there is no chat {name!r} to continue", hint="mcp.chats lists all chats")
                chat.continue_from(saved.messages, saved.source)
            chat.earlier_as = "" if saved is None or continues else saved.dated
            self._by_name[name] = chat
        if isinstance(history, Answer):
            chat.continue_from(history.messages, history.source if history.is_untrusted else "")
        elif history is not None:
            chat.continue_from(history, "an earlier conversation")
        return chat

    def keep(self, name: str, chat: Chat, messages: Sequence[Any]) -> None:
        """Continue a chat with the messages up to a complete or partial answer, and save it if it has a name."""
        chat.messages = messages
        if name:
            self.saved.save(name, messages, chat.conversation.sources, chat.earlier_as)
            chat.earlier_as = ""
