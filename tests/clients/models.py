"""Calls models with the official Python SDKs, whichever generation is installed, as the environment points them: one line
of JSON per call, with what came back.

    models.py anthropic|openai
"""

import json
import sys

QUESTION = "Say hello."


def say(kind, **said):
    print(json.dumps({"kind": kind, **said}), flush=True)


def anthropic():
    from anthropic import Anthropic, APIStatusError

    client = Anthropic()
    asked = dict(model="claude-opus-4", max_tokens=64, messages=[{"role": "user", "content": QUESTION}])
    whole = client.messages.create(**asked)
    say("whole", text=whole.content[0].text, output=whole.usage.output_tokens)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        say("stream", text=text, output=stream.get_final_message().usage.output_tokens)
    try:
        client.messages.create(**{**asked, "model": "claude-refused"})
        say("error", status=0, message="")
    except APIStatusError as error:
        say("error", status=error.status_code, message=error.body["error"]["message"])


def openai():
    from openai import APIStatusError, OpenAI

    client = OpenAI()
    messages = [{"role": "user", "content": QUESTION}]
    whole = client.chat.completions.create(model="gpt-5", messages=messages)
    say("whole", text=whole.choices[0].message.content, output=whole.usage.completion_tokens)
    text = ""
    for chunk in client.chat.completions.create(
        model="gpt-5", messages=messages, stream=True, stream_options={"include_usage": True}
    ):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        if chunk.usage:
            say("stream", text=text, output=chunk.usage.completion_tokens)
    with client.responses.stream(model="gpt-5", input=QUESTION) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        say("responses", text=text, output=stream.get_final_response().usage.output_tokens)
    try:
        client.chat.completions.create(model="gpt-refused", messages=messages)
        say("error", status=0, message="")
    except APIStatusError as error:
        say("error", status=error.status_code, message=error.body["message"])


{"anthropic": anthropic, "openai": openai}[sys.argv[1]]()
