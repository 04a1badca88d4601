"""Drives wasp-eureka for the integration tests as driver.py drives py_eureka_client. It has calls, and no
timers: the loop that renews, and registers again after 404, is what its users write."""

import asyncio
import json
import os
import sys
from functools import partial

answers, sys.stdout = sys.stdout, sys.stderr


class Driver:
    """Holds the one client and performs the commands on it."""

    def __init__(self):
        self.client = None
        self.beats = None

    async def start(self, command):
        from wasp_eureka import EurekaClient  # it opens its session when it is loaded, which needs a loop

        self.client = EurekaClient(
            command["app"], 8080, "127.0.0.1", instance_id=command["id"],
            eureka_url=command["url"].rstrip("/").removesuffix("/eureka"),
        )
        self.register = partial(self.client.register, lease_duration=command["lease"], lease_renewal_interval=1)
        await self.register()
        await self.client.renew()
        self.beats = asyncio.create_task(self.renew())
        return {}

    async def renew(self):
        from wasp_eureka.exc import EurekaException

        while True:
            await asyncio.sleep(1)
            try:
                await self.client.renew()
            except EurekaException as error:
                if error.status == 404:
                    await self.register()

    async def discover(self, command):
        application = (await self.client.get_app(command["app"]))["application"]
        return {"instances": {i["instanceId"]: i["status"] for i in application["instance"]}}

    async def override(self, command):
        from wasp_eureka.client import StatusType

        await self.client.set_status_override(StatusType(command["status"]))
        await self.client.update_meta("overridden", "yes")
        return {}

    async def restore(self, _command):
        await self.client.remove_status_override()
        return {}

    async def stop(self, _command):
        if self.beats.done():
            self.beats.result()  # raises what a renewal raised
        self.beats.cancel()
        await self.client.deregister()
        return {}


async def main():
    driver = Driver()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        try:
            answer = await getattr(driver, command["do"])(command)
        except Exception as error:  # the test decides what a failure means
            answer = {"error": repr(error)}
        print(json.dumps(answer), file=answers, flush=True)
        if command["do"] == "stop":
            return


asyncio.run(main())
# The client closes its session at the exit, without a loop.
os._exit(0)
