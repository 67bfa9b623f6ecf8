"""How fast the live page draws a large prefix tree: frames while it zooms and pans, in a real Chromium.

    python bench/studies/page_frames.py [--nodes 20000] [--seconds 4] [--chromium /usr/bin/chromium]

The page shows a made-up tree (`tests/web/made_up_server.py`); a script turns the wheel and drags at every frame while
`requestAnimationFrame` counts and reads back a pixel, so that drawing has happened. Without a GPU. Needs
Playwright and Chromium. Printed: frames per second, and percentiles of the time between two frames and of the work
within one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
TURN = """
async ([seconds, isPanning]) => {
  const canvas = document.querySelector('canvas.icicle-canvas');
  const pen = canvas.getContext('2d');
  const box = canvas.getBoundingClientRect();
  const gaps = [], work = [];
  const began = performance.now();
  let last = began, step = 0;
  await new Promise((done) => {
    const turn = () => {
      step += 1;
      const x = box.left + box.width * (0.5 + 0.45 * Math.sin(step / 17));
      const at = { clientX: x, clientY: box.top + 90, bubbles: true, cancelable: true };
      canvas.dispatchEvent(new WheelEvent('wheel', isPanning
        ? { ...at, deltaX: 60 * Math.sin(step / 11), deltaY: 0 }
        : { ...at, deltaY: Math.sin(step / 23) > 0 ? -55 : 55 }));
      const start = performance.now();
      requestAnimationFrame(() => {  // after the page's own, which the wheel has asked for
        pen.getImageData(0, 0, 1, 1);  // waits until all is drawn
        const now = performance.now();
        gaps.push(now - last);
        work.push(now - Math.max(start, document.timeline.currentTime));
        last = now;
        if (now - began > seconds * 1000) done(); else turn();
      });
    };
    turn();
  });
  return [gaps, work];
}
"""


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "/usr/bin/chromium")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "web"))
    from made_up_server import start

    server = start(options.nodes)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/#tree")
        page.wait_for_selector("canvas.icicle-canvas")
        page.wait_for_timeout(500)
        print(f"{options.nodes:,} nodes, 1440x900, Chromium {browser.version} without a GPU")
        for name, is_panning in (("zooming", False), ("panning", True)):
            gaps, work = page.evaluate(TURN, [options.seconds, is_panning])
            rate = 1000 * len(gaps) / sum(gaps)
            print(
                f"{name}: {rate:.1f} frames a second; between two frames: median {percentile(gaps, 0.5):.1f} ms, "
                f"p95 {percentile(gaps, 0.95):.1f} ms, worst {max(gaps):.1f} ms; a frame's drawing: median "
                f"{percentile(work, 0.5):.1f} ms, p95 {percentile(work, 0.95):.1f} ms"
            )
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
