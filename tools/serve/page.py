#!/usr/bin/env python3
"""The page of `llm-demo serve` in a headless Chromium, with the embedded model on the software device.

usage: page.py PROGRAM     the path of llm-demo; needs playwright, see requirements.txt, and Debian's chromium
                           or another one that the variable CHROMIUM names
"""
import os
import re
import shutil
import sys
import urllib.request

from playwright.sync_api import expect, sync_playwright

from server import STORY, serving

TIMEOUT = 120_000


def check(page, base):
    problems = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(base)
    expect(page).to_have_title("llm-demo")
    log, status = page.locator("#log"), page.locator("#status")

    # Without the key there is an error, and nothing is kept of the question.
    page.fill("#text", "Once upon a time")
    page.press("#text", "Enter")
    expect(log.locator(".error")).to_contain_text("the key is missing or wrong", timeout=TIMEOUT)
    problems.clear()
    page.fill("#key", "secret")
    page.press("#key", "Tab")
    expect(page.locator("#model")).to_have_text("story", timeout=TIMEOUT)
    page.click("#new")

    # A streamed answer, to its end.
    page.fill("#text", "Once upon a time")
    page.press("#text", "Enter")
    answer = log.locator(".assistant").first
    expect(answer).to_contain_text(STORY, timeout=TIMEOUT)
    expect(status).to_contain_text("tokens", timeout=TIMEOUT)
    expect(page.locator("#send")).to_be_enabled()

    # What looks like a part of a page is text.
    page.click("#new")
    evil = "<img src=x onerror='window.harmed = true'><script>window.harmed = true</script>"
    page.fill("#text", evil)
    page.click("#send")
    expect(log.locator(".user")).to_have_text(evil)
    expect(page.locator("#stop")).to_be_enabled()

    # The stop button ends the answer here and in the server.
    page.click("#stop")
    expect(status).to_have_text("stopped", timeout=TIMEOUT)
    expect(page.locator("#send")).to_be_enabled()
    assert page.evaluate("window.harmed === undefined && document.images.length === 0")
    request = urllib.request.Request(f"{base}/metrics", headers={"Authorization": "Bearer secret"})
    page.wait_for_timeout(1000)
    metrics = urllib.request.urlopen(request).read().decode()
    assert re.search(r"^llm_demo_cancelled_requests_total 1$", metrics, re.M), metrics
    assert not problems, problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or sys.exit("there is no chromium")
    options = ["--device", "sim", "--alias", "story", "--api-key", "secret", "--temp", "0"]
    with serving(sys.argv[1], *options) as (_, base), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        check(browser.new_page(), base)
        print(f"chromium {browser.version}: passed")
        browser.close()


main()
