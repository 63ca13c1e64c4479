#!/usr/bin/env python3
"""Works under a lock: hold.py KEY SECONDS

`tenure hold` writes a line of JSON per event and releases when its standard input is closed. That also
happens when this program dies, whatever killed it.
"""

import json
import subprocess
import sys
import threading
import time


class Hold:
    """A lock, from its grant until the end of the `with` block. `lost` is set when it is lost."""

    def __init__(self, key, *options):
        command = ["tenure", "hold", *options, "--", key]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lost = threading.Event()
        self.token = None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "waiting":
                print("waiting", flush=True)
            if event["event"] == "granted":
                self.token = int(event["token"])
                break
        if self.token is None:
            sys.exit(f"not acquired: tenure ended with {self.process.wait()}")
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        for line in self.process.stdout:
            if json.loads(line)["event"] == "lost":
                break
        # Also when `tenure` ends: nobody renews the lock any more.
        self.lost.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.code = self.process.wait()


def main(key, seconds):
    end = time.monotonic() + float(seconds)
    with Hold(key, "--ttl", "3s") as hold:
        print(f"granted with token {hold.token}", flush=True)
        while time.monotonic() < end:
            # A piece of work; its writes carry the token.
            if hold.lost.wait(0.2):
                sys.exit("lost")
    if hold.code != 0:
        sys.exit("lost")
    print("released", flush=True)


main(*sys.argv[1:])
