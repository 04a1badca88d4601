"""Drives py-consul for the integration tests: one JSON command per line on stdin, one JSON reply per
line on stdout, in order. A command is a method of the client by its name, such as kv.put, with the
arguments to call it with; the client itself is used as its documentation shows."""

import functools
import json
import sys
from urllib.parse import urlsplit

import consul


@functools.cache
def client_of(url):
    address = urlsplit(url)
    return consul.Consul(host=address.hostname, port=address.port)


def lock(client, key, value, session):
    """Consul's recipe of a lock: try to acquire, and while the key has a holder wait for its change.
    After a holder's end the key stays free for its lock-delay, so waits are short."""
    while not client.kv.put(key, value, acquire=session):
        index, entry = client.kv.get(key)
        if entry is not None:
            client.kv.get(key, index=index, wait="1s")
    _, entry = client.kv.get(key)
    return entry


def perform(command):
    client = client_of(command["url"])
    args = command.get("args", {})
    if command["do"] == "lock":
        return lock(client, **args)
    if "check" in args:  # the client has a class for what a check is
        kind, *of = args["check"]
        args["check"] = getattr(consul.Check, kind)(*of)
    return functools.reduce(getattr, command["do"].split("."), client)(**args)


def main():
    for line in sys.stdin:
        try:
            answer = {"result": perform(json.loads(line))}
        except Exception as error:  # the test decides what a failure means
            answer = {"error": repr(error)}
        print(json.dumps(answer, default=bytes.decode), flush=True)


main()
