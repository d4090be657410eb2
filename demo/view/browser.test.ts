import assert from "node:assert/strict";
import { test } from "node:test";
import type { Block } from "../results.ts";
import { exampleCluster, localPod } from "../testing/example-cluster.ts";
import { blocksOf } from "../verification.ts";
import { Browser, keysOf } from "./browser.ts";
import { detailLines } from "./details.ts";
import { printLine, widthOf } from "./styled-line.ts";

function threeBlocks(): Block[] {
  const ports = ["http", "https", "admin"].map((name, index) => ({ name, port: 80 + index }));
  return blocksOf(exampleCluster({ ports }, [localPod]), { isLed: () => true });
}

function browse(...keys: readonly string[]) {
  const blocks = threeBlocks();
  const browser = new Browser();
  const shown = () => browser.visible(blocks).map(({ title }) => title.replace(/^shop\/web:(\w+).*/, "$1"));
  shown();
  const results = keys.map((key) => {
    const result = browser.press(key);
    shown();
    return result;
  });
  return { browser, blocks, shown: shown(), at: browser.selected?.replace(/^shop\/web:(\w+).*/, "$1"), results };
}

test("arrows and pages move the mark from block to block, and stop at both ends", () => {
  assert.equal(browse().at, "http");
  assert.equal(browse("\x1b[B").at, "https");
  assert.equal(browse("j", "j", "j", "j").at, "admin");
  assert.equal(browse("j", "\x1b[A", "\x1b[A").at, "http");
  assert.equal(browse("\x1b[6~", "\x1b[6~").at, "admin");
});

test("what is typed after a slash filters by name, pod or address; the mark stays among what is shown", () => {
  assert.deepEqual(browse("/", ..."ADM").shown, ["admin"]);
  assert.equal(browse("/", ..."adm").at, "admin");
  assert.equal(browse("/", ..."SHOP").shown.length, 3);
  assert.deepEqual(browse("/", ..."here").shown, ["http"]);
  assert.equal(browse("/", ..."10.96.0.10").shown.length, 3);
  assert.equal(browse("/", ..."nothing").at, undefined);
  assert.deepEqual(browse("/", ..."httpx", "\x7f", "s", "\r").shown, ["https"]);
  assert.equal(browse("/", ..."https", "\x1b").shown.length, 3);
  assert.equal(browse("/", ..."https", "\r", "\x1b").shown.length, 3);
  assert.deepEqual(browse("/", "!").shown, []);
});

test("what is wrong comes first once all has been asked, s goes through other orders, and ? shows the keys", () => {
  const blocks = threeBlocks();
  const browser = new Browser();
  const shown = (isSettling = false) =>
    browser.visible(blocks, isSettling).map(({ title }) => title.replace(/^shop\/web:(\w+).*/, "$1"));
  const judgement = { isRight: false, text: "refused", detail: "" };
  blocks[2]?.rows[0]?.cells.set("pod", { judgement, previous: undefined, requests: 2, expected: "" });
  assert.deepEqual(shown(true), ["http", "https", "admin"]);
  assert.deepEqual(shown(), ["admin", "http", "https"]);
  browser.press("s");
  assert.deepEqual([browser.order, shown()], ["by name", ["http", "https", "admin"]]);
  browser.press("s");
  assert.equal(browser.order, "by type");
  browser.press("s");
  assert.deepEqual(shown(), ["admin", "http", "https"]);
  browser.press("?");
  assert.equal(browser.isHelping, true);
  assert.equal(browser.press("j"), undefined);
  assert.equal(browser.isHelping, false);
});

test("q and Ctrl-C end, but q is a letter while one types", () => {
  assert.deepEqual(browse("j", "q").results, [undefined, "quit"]);
  assert.deepEqual(browse("/", "q", "\x03").results, [undefined, undefined, "quit"]);
  assert.equal(browse("/", "q").browser.filter, "q");
});

test("Enter opens the details of the marked block, Enter and Esc close them", () => {
  const { browser } = browse("j", "\r", "\x1b[B");
  assert.deepEqual([browser.isDetailed, browser.selected?.includes("https"), browser.scroll], [true, true, 1]);
  assert.equal(browse("\r", "\r").browser.isDetailed, false);
  assert.equal(browse("\r", "\x1b").browser.isDetailed, false);
  assert.equal(browse("/", ..."nothing", "\r", "\r").browser.isDetailed, false);
});

test("a block that changes is marked, once", () => {
  const blocks = threeBlocks();
  const browser = new Browser();
  browser.visible(blocks);
  Object.assign(blocks[1] ?? {}, { isChanged: true });
  browser.visible(blocks);
  assert.match(browser.selected ?? "", /https/);
  browser.press("j");
  browser.visible(blocks);
  assert.match(browser.selected ?? "", /admin/);
});

test("the details say what was expected and what came, in lines that fit", () => {
  const [block] = threeBlocks();
  assert.ok(block !== undefined);
  block.rows[0]?.cells.set("pod", {
    judgement: { isRight: true, text: "source kept", detail: "" },
    previous: undefined,
    requests: 6,
    expected: "answers from here seeing 10.180.0.250",
  });
  const lines = detailLines(block, 60);
  assert.ok(lines.every((line) => widthOf(line) <= 60));
  const text = lines.map((line) => printLine(line, false).trim()).join(" ");
  assert.match(text, /✓ from a pod: answers from here seeing 10\.180\.0\.250: source kept in 6 requests/);
  assert.match(text, /… from the node: being asked/);
});

test("keys that come together are told apart", () => {
  assert.deepEqual(keysOf("\x1b[A\x1b[6~/wé\x1bOB\r"), ["\x1b[A", "\x1b[6~", "/", "w", "é", "\x1bOB", "\r"]);
  assert.deepEqual(keysOf("\x1b"), ["\x1b"]);
});
