import assert from "node:assert/strict";
import { test } from "node:test";
import { type Block, keepPrevious, reopenWrong, totalsOf } from "../results.ts";
import { exampleCluster, localPod, remotePod } from "../testing/example-cluster.ts";
import { blocksOf } from "../verification.ts";
import { printLine, widthOf } from "./styled-line.ts";
import { failureLines, summaryLine, tableLines } from "./table.ts";

const right = { isRight: true, text: "masqueraded", detail: "" };
const wrong = { isRight: false, text: "refused", detail: "expected answers from here; got a refusal" };

function exampleBlocks(endpoints = [localPod, remotePod]): Block[] {
  return blocksOf(exampleCluster({ sessionAffinity: "ClientIP" }, endpoints), { isLed: () => true });
}

function fill(blocks: readonly Block[], judgement = right): void {
  for (const { rows } of blocks) {
    for (const { cells } of rows)
      for (const cell of cells.values()) Object.assign(cell, { judgement, requests: 6, expected: "" });
  }
}

const plain = (blocks: readonly Block[]) => tableLines(blocks).body.map((line) => printLine(line, false));

test("a block shows the service port, what it is, its pods' shares, and a row for each address", () => {
  const blocks = exampleBlocks();
  fill(blocks);
  const pods = blocks[0]?.pods;
  assert.ok(pods);
  Object.assign(pods.get("IPv4")?.get("here") ?? {}, { answers: 3 });
  Object.assign(pods.get("IPv4")?.get("there") ?? {}, { answers: 1 });
  assert.deepEqual(plain(blocks), [
    "shop/web:http  TCP 80   NodePort · ClientIP affinity",
    "  IPv4  here 75%  there@node-b 25%",
    "  cluster IP  10.96.0.10:80     ✓ masqueraded ×6  ✓ masqueraded ×6  ✓ masqueraded ×6",
    "  node port   10.200.0.2:30080  ✓ masqueraded ×6  ✓ masqueraded ×6  ✓ masqueraded ×6",
    "  localhost   127.0.0.1:30080   ·                 ✓ masqueraded ×6  ·",
  ]);
});

test("all rows and the head are equally wide until their last column", () => {
  const blocks = exampleBlocks();
  const { head, body } = tableLines(blocks);
  assert.deepEqual(new Set(body.slice(2).map(widthOf)), new Set([widthOf(head)]));
});

test("a wrong cell is marked, counted and explained", () => {
  const blocks = exampleBlocks();
  fill(blocks);
  blocks[0]?.rows[1]?.cells.set("client", { judgement: wrong, previous: undefined, requests: 6, expected: "" });
  assert.match(plain(blocks)[3] ?? "", /✗ refused ×6$/);
  assert.deepEqual(
    failureLines(blocks).map((line) => printLine(line, false)),
    [`✗ shop/web:http  TCP 80 node port 10.200.0.2:30080 from outside: ${wrong.detail}`],
  );
  assert.equal(printLine(summaryLine(blocks), false), "✓ 6 as expected · ✗ 1 not as expected · 42 requests");
});

test("a service port without endpoints says so, and endpoints that cannot answer say why", () => {
  assert.match(plain(exampleBlocks([]))[1] ?? "", /IPv4 {2}no endpoints$/);
  const leaving = { ...localPod, conditions: { ready: false, serving: true, terminating: true } };
  const starting = { ...remotePod, conditions: { ready: false } };
  assert.match(plain(exampleBlocks([leaving, starting]))[1] ?? "", /here terminating {2}there@node-b not ready$/);
});

test("after a change the old results stay in sight, and only what changed is marked", () => {
  const last = exampleBlocks();
  fill(last);
  const same = keepPrevious(exampleBlocks(), last);
  assert.equal(same[0]?.isChanged, false);
  assert.match(plain(same)[2] ?? "", /… masqueraded +… masqueraded/);
  const changed = keepPrevious(exampleBlocks([localPod]), last);
  assert.equal(changed[0]?.isChanged, true);
  assert.match(plain(changed)[0] ?? "", / {2}changed /);
  assert.equal(keepPrevious(exampleBlocks([localPod]), changed)[0]?.isChanged, true, "kept until the next change");
});

test("reopening asks again for wrong cells only", () => {
  const blocks = exampleBlocks();
  fill(blocks);
  blocks[0]?.rows[0]?.cells.set("pod", { judgement: wrong, previous: undefined, requests: 6, expected: "" });
  reopenWrong(blocks);
  assert.deepEqual(totalsOf(blocks), { right: 6, wrong: 0, pending: 1, requests: 42 });
});

test("a protocol that cannot be asked is listed with the reason and without results", () => {
  const view = exampleCluster({ ports: [{ name: "http", port: 80, protocol: "SCTP" }] }, []);
  const [, note, row] = plain(blocksOf(view, { isLed: () => true }));
  assert.match(note ?? "", /SCTP is not probed/);
  assert.match(row ?? "", /10\.96\.0\.10:80 +· +· +·$/);
});

test("on a narrow terminal marks are short, nothing is wider than it, and the marked block shows", () => {
  const blocks = exampleBlocks();
  fill(blocks);
  const { head, body } = tableLines(blocks, { columns: 80, selected: "shop/web:http  TCP 80" });
  const shown = [head, ...body].map((line) => printLine(line, false));
  assert.match(shown[0] ?? "", /ADDRESS +POD +NODE +OUTSIDE$/);
  assert.match(shown[1] ?? "", /^▸ shop\/web:http/);
  assert.match(shown[3] ?? "", /^ {2}cluster IP +10\.96\.0\.10:80 +✓ masq +✓ masq +✓ masq$/);
  for (const columns of [60, 80, 120]) {
    const table = tableLines(blocks, { columns });
    for (const line of [table.head, ...table.body]) assert.ok(widthOf(line) <= columns, printLine(line, false));
  }
  assert.match(printLine(tableLines(blocks, { columns: 120 }).body[2] ?? [], false), /✓ masqueraded ×6/);
});
