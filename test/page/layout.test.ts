/**
 * What a broken style sheet does to the page, by the geometry of what is drawn: this holds with any fonts and on any machine, where a
 * picture of it does not, as other fonts break lines elsewhere.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, describe, type TestContext, test } from "node:test";
import type { BrowserPage } from "../../testkit/browser/browser-page.ts";
import { Chromium, skipWithoutChromium } from "../../testkit/browser/chromium.ts";
import { FLOWS, items, manyServices, TROUBLE, thousandEndpoints, VIEWS, WEB, WIDEST } from "./page-cases.ts";
import { type PageOptions, servedPage, syncRecord } from "./page-daemon.ts";

type View = readonly [path: string, ready: string];
interface Case {
  readonly options: Partial<PageOptions>;
  /** @default those whose content depends on the cluster */
  readonly views?: readonly View[];
}

const FRONT: View = ["front", "document.querySelector('.tiles')"];
const TABLE: View = ["services", "document.querySelector('tbody tr, .empty')"];
const serviceAt = (key: string): View => [
  `service?${new URLSearchParams({ key })}`,
  "document.querySelector('svg.picture')",
];
const LONG = "n".repeat(63);
const CASES: Readonly<Record<string, Case>> = {
  "no Services": { options: { items: [] }, views: [FRONT, TABLE, ["syncs", "document.querySelector('.syncs')"]] },
  "one Service": {
    options: { items: oneService("web", "app", "IPv4") },
    views: [FRONT, TABLE, serviceAt("web/web/TCP")],
  },
  "the examples": { options: { ...TROUBLE, tracking: { entries: 95, max: 100 } }, views: VIEWS },
  "5,000 Services": { options: { items: manyServices(5_000) }, views: [FRONT, TABLE] },
  "1,000 endpoints": {
    options: { items: thousandEndpoints() },
    views: [[WEB, "document.querySelector('svg.picture')"]],
  },
  "names of 63 characters": {
    options: { items: oneService(LONG, LONG, "IPv4"), failures: [{ subject: `${LONG}/${LONG}`, reason: "no space" }] },
    views: [
      FRONT,
      TABLE,
      serviceAt(`${LONG}/${LONG}/TCP`),
      ["trace?from=pod&to=10.96.0.10&port=80", "document.querySelector('.fate')"],
    ],
  },
  IPv6: {
    options: { items: oneService("web", "app", "IPv6") },
    views: [
      FRONT,
      TABLE,
      serviceAt("web/web/TCP"),
      ["trace?from=pod&to=fd00:96::a&port=80", "document.querySelector('.fate')"],
    ],
  },
  "right to left": {
    options: {
      items: oneService("web", "שלום", "IPv4"),
      failures: [{ subject: "שלום: 80", reason: "مرحبا (80)" }],
      problems: [{ severity: "error", message: "שלום: 80", details: "a=مرحبا", count: 1, firstMs: 0, lastMs: 0 }],
    },
    views: [FRONT, serviceAt("web/web/TCP"), ["node", "document.querySelector('.problems li')"]],
  },
};

describe("the page's layout", { skip: await skipWithoutChromium() }, () => {
  let chromium: Chromium;
  before(async () => {
    chromium = await Chromium.start();
  });
  after(async () => {
    await chromium[Symbol.asyncDispose]();
  });

  async function opened(t: TestContext, options: Partial<PageOptions>) {
    const { url, journal } = await servedPage(t, { items, flows: FLOWS, ...options });
    const endedMs = Date.now();
    for (let count = 60; count > 0; count -= 1)
      journal.add(
        syncRecord({
          endedMs: endedMs - count * 997,
          stages: { waiting: count % 7, model: 0.1, rules: 2 + (count % 5), kernel: 1, after: 0 },
        }),
      );
    journal.add(syncRecord({ endedMs, result: "refused", failures: [{ subject: "shop/web", reason: "no space" }] }));
    journal.add(syncRecord({ endedMs, causes: [{ kind: "repair", servicePorts: 2, by: "nft" }] }));
    const page = await chromium.page();
    t.after(() => page.close());
    await page.goto(url);
    return page;
  }

  for (const [name, { options, views = VIEWS }] of Object.entries(CASES)) {
    test(`${name}: nothing lies on something else, leaves its place or is too small to read`, async (t) => {
      const page = await opened(t, options);
      for (const [view, ready] of views) {
        await page.evaluate(`location.hash = ${JSON.stringify(`#/${view}`)}`);
        await page.until(ready);
        for (const [width, scheme] of [
          [390, "light"],
          [390, "dark"],
          [1600, "light"],
          [1600, "dark"],
        ] as const) {
          await page.look(width, 900, scheme);
          await keep(page, `${name}-${view.split("?")[0]}-${width}-${scheme}`);
          const where = `${view} at ${width}, ${scheme}`;
          assert.deepEqual(await page.evaluate(FAULTS), [], where);
          const excess = "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)";
          assert.equal(await page.evaluate(excess), 0, `${where}: ${await page.evaluate(WIDEST)}`);
        }
      }
    });
  }

  test("numbers stand in one row and pictures in pairs where there is room, below each other where there is none", async (t) => {
    const page = await opened(t, {});
    await page.until("document.querySelector('.pair figure svg')");
    const columns = (selector: string) =>
      page.evaluate<number>(
        `new Set([...document.querySelectorAll(${JSON.stringify(selector)})].map((e) => Math.round(e.getBoundingClientRect().left))).size`,
      );
    await page.look(1600, 900, "light");
    assert.deepEqual([await columns(".tiles > div"), await columns(".pair > figure")], [5, 2]);
    await page.look(390, 900, "light");
    assert.deepEqual([await columns(".tiles > div"), await columns(".pair > figure")], [2, 1]);
    // What is wrong is seen before anything is scrolled, the header included.
    const top = "document.querySelector('.wrong').getBoundingClientRect().top";
    assert.ok((await page.evaluate<number>(top)) < 900, `${await page.evaluate(top)}`);
  });
});

/** For the eye: with KPTS_SCREENSHOTS, a picture of each. */
async function keep(page: BrowserPage, name: string): Promise<void> {
  const folder = process.env.KPTS_SCREENSHOTS;
  if (folder !== undefined) writeFileSync(`${folder}/${name.replaceAll(" ", "-")}.png`, await page.screenshot());
}

function oneService(name: string, pod: string, family: "IPv4" | "IPv6"): unknown[] {
  const metadata = { namespace: name, name };
  const isOld = family === "IPv4";
  return [
    {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name: "node-a" },
      spec: { podCIDRs: ["10.180.0.0/24", "fd00:180::/64"] },
    },
    {
      ...{ apiVersion: "v1", kind: "Service", metadata },
      spec: { clusterIP: isOld ? "10.96.0.10" : "fd00:96::a", ports: [{ port: 80 }], ipFamilies: [family] },
    },
    {
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: family, ports: [{ port: 8080 }] },
      metadata: { ...metadata, labels: { "kubernetes.io/service-name": name } },
      endpoints: [1, 2, 3].map((last) => ({
        addresses: [isOld ? `10.180.${last}.11` : `fd00:180:abcd:ef01:2345:6789:abcd:${last}`],
        ...{ nodeName: last === 1 ? "node-a" : `${pod}-${last}`, zone: pod },
        targetRef: { kind: "Pod", namespace: name, name: `${pod}-${last}` },
      })),
    },
  ];
}

/**
 * Texts that lie on other texts, that leave the window or their picture, and texts of pictures below 9 pixels. Run in the page.
 * A line's box may reach a little into the next one's.
 */
const FAULTS = `(() => {
  const faults = [];
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const text = node.data.trim();
    if (text === "" || element.closest("title, option, select, dialog, .hidden, .skip") || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const svg = element.closest("svg");
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const { left, right, top, bottom } of range.getClientRects()) {
      if (right - left < 1) continue;
      lines.push({ text: text.slice(0, 40), left, right, top, bottom });
      const place = (element.closest(".scroll") ?? document.documentElement).getBoundingClientRect();
      if (!element.closest(".scroll") && (left < -1 || right > place.right + 1)) faults.push("outside the window: " + text);
      if (svg === null) continue;
      const box = svg.getBoundingClientRect();
      if (left < box.left - 2 || right > box.right + 2 || top < box.top - 4 || bottom > box.bottom + 4) faults.push("outside its picture: " + text);
      const size = Number.parseFloat(getComputedStyle(element).fontSize) * svg.getScreenCTM().a;
      if (size < 9) faults.push(size.toFixed(1) + " pixels: " + text);
    }
  }
  lines.sort((one, other) => one.top - other.top);
  lines.forEach((one, index) => {
    for (const other of lines.slice(index + 1)) {
      if (other.top > one.bottom) break;
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - other.top;
      if (wide > 2 && high > 6) faults.push("overlap: " + one.text + " | " + other.text);
    }
  });
  for (const element of document.querySelectorAll("main :is(.tiles > div, figure, table, .frontend, .bar > *, button, input)")) {
    if (!element.checkVisibility() || element.closest(".scroll, dialog")) continue;
    const { left, right, width } = element.getBoundingClientRect();
    if (width < 1 || left < -1 || right > document.documentElement.clientWidth + 1) faults.push("outside: " + element.tagName + "." + element.className);
  }
  return faults.slice(0, 20);
})()`;
