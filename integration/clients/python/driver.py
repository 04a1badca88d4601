"""Drives py_eureka_client for the integration tests: one JSON command per line on stdin, one JSON
reply per line on stdout, in order. The client itself is used as its documentation shows."""

import asyncio
import json
import os
import sys
import threading

# stdout belongs to the replies; the client logs to what it finds there when it is loaded.
answers, sys.stdout = sys.stdout, sys.stderr

from py_eureka_client.eureka_client import EurekaClient  # noqa: E402


class Driver:
    """Holds the one client and performs the commands on it."""

    def __init__(self):
        self.client = None
        self.errors = []

    async def start(self, command):
        self.client = EurekaClient(
            eureka_server=command["url"],
            app_name=command["app"],
            instance_id=command["id"],
            instance_host="127.0.0.1",
            instance_ip="127.0.0.1",
            instance_port=8080,
            vip_adr=command["app"],
            renewal_interval_in_secs=1,
            duration_in_secs=command["lease"],
            on_error=self.failed,
        )
        await self.client.start()
        return self.outcome()

    async def discover(self, command):
        app = self.client.applications.get_application(command["app"].upper())
        instances = app.instances if app else []
        return {"instances": {i.instanceId: i.status for i in instances}}

    async def override(self, command):
        await self.client.status_update(command["status"])
        return self.outcome()

    async def restore(self, _command):
        await self.client.delete_status_override()
        return self.outcome()

    async def stop(self, _command):
        """The client's heartbeat thread outlives its stop, and registers the instance again; in the
        programs of its users the process ends first."""

        async def nothing():
            pass

        self.client.send_heartbeat = nothing
        await asyncio.sleep(1)  # one that is under way
        await self.client.stop()
        return self.outcome()

    def failed(self, kind, error):
        """Keeps the failures of commands; a heartbeat answered 404 is the client's own business."""
        if threading.current_thread() is threading.main_thread():
            self.errors.append(f"{kind}: {error}")

    def outcome(self):
        """The client reports failures to its callback only, so this class collects them there."""
        errors, self.errors = self.errors, []
        return {"error": "; ".join(errors)} if errors else {}


async def main():
    driver = Driver()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = await getattr(driver, command["do"])(command)
        except Exception as error:  # the test decides what a failure means
            answer = {"error": repr(error)}
        print(json.dumps(answer), file=answers, flush=True)
        if command["do"] == "stop":
            return


asyncio.run(main())
# The client's heartbeat thread never ends.
os._exit(0)
