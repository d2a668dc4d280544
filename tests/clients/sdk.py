"""Calls tools with the official Python SDK, whichever generation is installed: one call per line of standard input, one
result per line of standard output. The first line says which protocol was agreed on and which tools there are.

    sdk.py stdio PROGRAM [ARGUMENT...]
    sdk.py http URL TOKEN
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

GENERATION = int(version("mcp").split(".")[0])


def transport(kind, *rest):
    if kind == "stdio":
        return stdio_client(StdioServerParameters(command=rest[0], args=list(rest[1:]), env={"ROTA_HOST": "test-host"}))
    url, token = rest
    return streamable_http_client(url, http_client=create_mcp_http_client({"Authorization": f"Bearer {token}"}))


@asynccontextmanager
async def connected(streams):
    """The first generation shakes hands, the second discovers."""
    if GENERATION == 1:
        async with streams as (reader, writer, *_), ClientSession(reader, writer) as session:
            greeting = await session.initialize()
            yield session, greeting.protocolVersion
    else:
        from mcp import Client

        async with Client(streams, mode="auto") as client:
            yield client, client.protocol_version


def say(value):
    print(json.dumps(value), flush=True)


async def main():
    async with connected(transport(*sys.argv[1:])) as (client, protocol):
        listed = await client.list_tools()
        say({"protocol": protocol, "tools": [tool.name for tool in listed.tools]})
        while line := await asyncio.to_thread(sys.stdin.readline):
            call = json.loads(line)
            result = await client.call_tool(call["name"], call["arguments"])
            say({"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)})


asyncio.run(main())
