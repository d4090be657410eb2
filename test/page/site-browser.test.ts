/** The site of the documents in a real browser: every page, light and dark, wide and narrow. */
import assert from "node:assert/strict";
import { globSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Chromium, skipWithoutChromium } from "../../testkit/browser/chromium.ts";
import { runCommand } from "../../testkit/net/run-command.ts";
import { CHECKOUT } from "../docs/markdown.ts";

const EXCESS = "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)";
const UNSEEN = "[...document.images].filter((image) => image.naturalWidth === 0).map((image) => image.src)";
const SHOTS = ["index.html", "docs/operations.html", "docs/commands.html", "docs/reference/index.html"];

test("the site in Chromium", { skip: await skipWithoutChromium() }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-site-"));
  t.after(() => rmSync(folder, { recursive: true }));
  await runCommand([process.execPath, join(CHECKOUT, "scripts/site.mjs"), folder]);
  await using chromium = await Chromium.start();
  const page = await chromium.page();
  for (const [width, scheme] of [
    [390, "dark"],
    [1280, "light"],
  ] as const) {
    await page.look(width, 900, scheme);
    for (const path of globSync("**/*.html", { cwd: folder })) {
      const url = pathToFileURL(join(folder, path)).href;
      await page.goto(url);
      await page.until(`location.href === ${JSON.stringify(url)} && document.readyState === "complete"`);
      assert.equal(await page.evaluate(EXCESS), 0, `${path} at ${width}`);
      assert.deepEqual(await page.evaluate(UNSEEN), [], path);
      assert.notEqual(await page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth"), "none", path);
      const shots = process.env.KPTS_SCREENSHOTS;
      if (shots !== undefined && SHOTS.includes(path))
        writeFileSync(`${shots}/${scheme}-${path.replaceAll("/", "-")}.png`, await page.screenshot());
    }
  }
  // From a folder, without a server; a result leads to its section.
  await page.goto(pathToFileURL(join(folder, "docs/operations.html")).href);
  const ask = (words: string) => `(() => {
    const field = document.querySelector("header input");
    field.value = ${JSON.stringify(words)};
    field.dispatchEvent(new Event("input"));
  })()`;
  await page.until(`document.querySelector("header input") !== null`);
  for (const [question, answer] of [
    ["which port do I open", "Configuration and ports: Ports"],
    ["does it work on EKS", "On kind, k3s, RKE2, EKS, AKS and GKE: EKS"],
    ["what happens when it crashes", "Operations: What happens when it crashes?"],
    ["how do I go back", "Install and roll out: Back"],
  ] as const) {
    await page.evaluate(ask(question));
    await page.until(`document.querySelector(".results a")?.textContent === ${JSON.stringify(answer)}`);
  }
  await page.evaluate(`document.querySelector(".results a").click()`);
  await page.until(`location.pathname.endsWith("/docs/install.html") && location.hash === "#back"`);
  assert.deepEqual(page.complaints, []);
});
