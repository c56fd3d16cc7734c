"""What of kazoo is used below its public surface: a new version that lacks one of these breaks ``kazoo_link``.

kazoo's bounds in pyproject.toml are the versions this has been seen to hold for; ``test_kazoo_link`` shows what it is for.
"""

import ast
import inspect
import threading
from collections import defaultdict, deque
from importlib.metadata import version
from typing import Final

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

from kafkatool.core.zookeeper import kazoo_link

METHODS: Final[dict[tuple[type, str], list[str]]] = {
    (KazooClient, "_call"): ["request", "async_object"],
    (KazooClient, "_session_callback"): ["state"],
    (KazooClient, "create_async"): ["path", "value", "acl", "ephemeral", "sequence", "makepath", "include_data"],
    (KazooClient, "ensure_path_async"): ["path", "acl"],
    (ConnectionHandler, "_submit"): ["request", "timeout", "xid"],
    (ConnectionHandler, "_connect"): ["host", "hostip", "port"],
    (ConnectionHandler, "_authenticate_with_sasl"): ["host", "timeout"],
    (ConnectionHandler, "__init__"): ["client", "retry_sleeper", "logger", "sasl_options"],
    (ConnectionHandler, "start"): [],
    (ConnectionHandler, "_invoke"): ["timeout", "request", "xid"],
    (ConnectionHandler, "_send_request"): ["read_timeout", "connect_timeout"],
    (ConnectionHandler, "_read"): ["length", "timeout"],
    (ConnectionHandler, "_read_socket"): ["read_timeout"],
    (ConnectionHandler, "_write"): ["msg", "timeout"],
}
ATTRIBUTES: Final[dict[tuple[type, str], type | None]] = {  # of new objects; None: has no value until it is connected
    (KazooClient, "_connection"): ConnectionHandler,
    (KazooClient, "_live"): threading.Event,
    (KazooClient, "_session_id"): None,
    (KazooClient, "_queue"): deque,
    (KazooClient, "_pending"): deque,
    (KazooClient, "_data_watchers"): defaultdict,  # read by a test
    (KazooClient, "last_zxid"): int,
    (KazooClient, "hosts"): list,
    (KazooClient, "auth_data"): set,
    (ConnectionHandler, "client"): KazooClient,
    (ConnectionHandler, "retry_sleeper"): object,
    (ConnectionHandler, "_socket"): None,
    (ConnectionHandler, "_write_sock"): None,
    (ConnectionHandler, "_xid"): None,
}
OURS: Final = {"_Client": KazooClient, "_Connection": ConnectionHandler}


def _new(owner: type) -> object:
    client = KazooClient()
    return client if owner is KazooClient else vars(client).get("_connection")


def _complaint(owner: type, name: str, what: str) -> str:
    return f"kazoo {version('kazoo')}: {owner.__name__}.{name} {what}; kafkatool/core/zookeeper/kazoo_link.py needs it"


@pytest.mark.parametrize(("owner", "name"), METHODS, ids=lambda part: getattr(part, "__name__", part))
def test_kazoo_has_each_method_that_is_called_or_replaced(owner: type, name: str) -> None:
    method = getattr(owner, name, None)
    assert callable(method), _complaint(owner, name, "is gone")
    found = list(inspect.signature(method).parameters)[1:]
    assert found == METHODS[owner, name], _complaint(owner, name, f"takes {found}, not {METHODS[owner, name]}")


@pytest.mark.parametrize(("owner", "name"), ATTRIBUTES, ids=lambda part: getattr(part, "__name__", part))
def test_kazoo_has_each_attribute_that_is_read_or_set(owner: type, name: str) -> None:
    values = vars(_new(owner))
    assert name in values, _complaint(owner, name, "is gone")
    kind, found = ATTRIBUTES[owner, name], values[name]
    assert found is None if kind is None else isinstance(found, kind), _complaint(owner, name, f"is {found!r}")


@pytest.mark.parametrize("name", OURS)
def test_the_tables_name_all_that_is_used_and_nothing_of_ours_hides_a_member_of_kazoos(name: str) -> None:
    owner = OURS[name]
    kazoos = {*dir(owner), *vars(_new(owner))}
    (body,) = [c for c in ast.walk(ast.parse(inspect.getsource(kazoo_link))) if getattr(c, "name", "") == name]
    of_self = [node for node in ast.walk(body) if isinstance(node, ast.Attribute) and _is_self(node.value)]
    used = {node.attr for node in of_self if node.attr.startswith("_")}
    made = {node.attr for node in of_self if isinstance(node.ctx, ast.Store)}
    made |= {node.name for node in ast.walk(body) if isinstance(node, ast.FunctionDef)}
    known = {member for of, member in (*METHODS, *ATTRIBUTES) if of is owner} | {"__init__"}
    assert used & kazoos <= known, "a private member of kazoo's that no table names"
    assert made & kazoos <= known, "a member of ours hides one of kazoo's that no table names"


def _is_self(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id == "self"
