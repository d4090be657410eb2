import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { cleanFileMappings, releaseFilePages } from "./file-pages.ts";

const mapping = (head: string, anonymousKb: number): string =>
  `${head}\nSize: 8 kB\nRss: 8 kB\nAnonymous: ${String(anonymousKb).padStart(8)} kB\nVmFlags: rd mr\n`;

test("only pages that are all as in their file are given back", () => {
  const smaps = [
    mapping("00400000-00402000 r--p 00000000 08:01 42                  /usr/bin/node", 0),
    mapping("7f5a00000000-7f5a00002000 r-xp 00001000 08:01 42          /usr/bin/with space", 0),
    mapping("00402000-00404000 r--p 00002000 08:01 42                  /usr/bin/node", 8),
    mapping("00404000-00406000 rw-p 00004000 08:01 42                  /usr/bin/node", 0),
    mapping("00406000-00408000 r--s 00004000 08:01 42                  /var/shared", 0),
    mapping("00408000-0040a000 r-xp 00000000 00:00 0                   [vdso]", 0),
    mapping("0040a000-0040c000 r--p 00000000 00:00 0 ", 0),
  ].join("");
  assert.deepEqual(cleanFileMappings(smaps), [
    { start: 0x40_0000n, end: 0x40_2000n },
    { start: 0x7f5a_0000_0000n, end: 0x7f5a_0000_2000n },
  ]);
});

function fileMb(): number {
  return Number(/^RssFile:\s+(\d+) kB/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]) / 1024;
}

test("a process goes on with less of its files mapped", () => {
  const before = fileMb();
  releaseFilePages();
  const after = fileMb();
  assert.ok(after < before / 2, `${before} MB before, ${after} MB after`);
  // Code that already ran, and code that did not.
  assert.equal(
    JSON.stringify([new Date(0), /(?<year>\d+)/u.exec("in 1970")?.groups?.year]),
    '["1970-01-01T00:00:00.000Z","1970"]',
  );
});

/** Frees many small pieces of memory but keeps a few in between, and prints the pool's size before and after the release. */
const FREEING = `
const { releaseFilePages } = require(${JSON.stringify(fileURLToPath(new URL("./file-pages.ts", import.meta.url)))});
const poolKb = () => {
  const [, pool] = require("node:fs").readFileSync("/proc/self/smaps", "utf8").split("[heap]");
  return Number(/^Private_Dirty: +(\\d+) kB/m.exec(pool)[1]);
};
let pieces = Array.from({ length: 4000 }, () => Buffer.allocUnsafeSlow(8000).fill(1));
const kept = pieces.filter((_, at) => at % 500 === 499);
pieces = [];
gc();
setImmediate(() => {
  gc();
  const before = poolKb();
  releaseFilePages();
  console.log(JSON.stringify({ before, after: poolKb(), kept: kept.length }));
});
`;

test("what the C library has free goes back to the system", () => {
  const env = { ...process.env, MALLOC_ARENA_MAX: "1" };
  const output = execFileSync(process.execPath, ["--expose-gc", "-e", FREEING], { encoding: "utf8", env });
  const { before, after } = JSON.parse(output);
  assert.ok(after < before / 2, output);
});
