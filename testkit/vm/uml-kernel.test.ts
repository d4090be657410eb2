import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { batchingKernel, withBatchedFaults } from "./uml-kernel.ts";

const hex = (text: string) => Buffer.from(text.replaceAll(/\s/g, ""), "hex");
const FLUSH_RANGE = hex(
  "55 488b7f10 4889f0 4889e5 4885ff 7514 4889c7 4889d6 48b861d9026000000000 ffd0 eb0e 48b804de026000000000 31c9 ffd0 5d c3",
);
const FLUSH_PAGE = hex("55 4889e5 4156 4155 4154 53 4889f3 48c1ee1e 81e6ff010000 4881e300f0ffff 4883ec20");
const READ_WINDOW = hex("41f644242110 75d3 48a1089a6b6000000000 488b5588 498b0c24 4c8b6d80 4889c6 482500f0ffff");
const CODE_AT = 0x100;
const WINDOW_AT = 0x300;

/** An ELF file with one segment, at 0x606b9000 except for its last bytes. */
function kernel({ window = 0x10000n, flushPage = FLUSH_PAGE } = {}): Buffer {
  const file = Buffer.alloc(0x400);
  file.writeBigUInt64LE(64n, 32);
  file.writeUInt16LE(56, 54);
  file.writeUInt16LE(1, 56);
  file.writeUInt32LE(1, 64);
  file.writeBigUInt64LE(0n, 64 + 8);
  // The address in READ_WINDOW is that of WINDOW_AT.
  file.writeBigUInt64LE(0x606b9a08n - BigInt(WINDOW_AT), 64 + 16);
  file.writeBigUInt64LE(BigInt(file.length), 64 + 32);
  file.set(Buffer.concat([FLUSH_RANGE, flushPage, READ_WINDOW]), CODE_AT);
  file.writeBigUInt64LE(window, WINDOW_AT);
  return file;
}

test("a page fault flushes its window, and a window has 256 KB; nothing else changes", () => {
  const before = kernel();
  const after = withBatchedFaults(before);
  assert.ok(after !== undefined);
  const at = CODE_AT + FLUSH_RANGE.length;
  // and rsi, -0x40000; lea rdx, [rsi + 0x40000]; jmp to the beginning of flush_tlb_range
  const code = hex("4881e60000fcff 488d9600000400 e9");
  assert.deepEqual(after.subarray(at, at + code.length), code);
  assert.equal(at + 19 + after.readInt32LE(at + 15), CODE_AT);
  assert.equal(after.readBigUInt64LE(WINDOW_AT), 0x40000n);
  after.set(before.subarray(at, at + 19), at);
  after.set(before.subarray(WINDOW_AT, WINDOW_AT + 8), WINDOW_AT);
  assert.deepEqual(after, before);
});

test("another program than the known one is left alone", () => {
  assert.equal(withBatchedFaults(kernel({ window: 0x20000n })), undefined);
  assert.equal(withBatchedFaults(kernel({ flushPage: Buffer.alloc(40) })), undefined);
  const twice = Buffer.concat([kernel(), FLUSH_RANGE, FLUSH_PAGE]);
  assert.equal(withBatchedFaults(twice), undefined);
});

test("the changed program is made once, beside the other, and can be run", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-kernel-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "linux");
  writeFileSync(path, kernel());
  const changed = batchingKernel(path);
  assert.notEqual(changed, path);
  assert.deepEqual(readFileSync(changed), withBatchedFaults(kernel()));
  assert.equal(statSync(changed).mode & 0o777, 0o755);
  const { mtimeMs } = statSync(changed);
  assert.equal(batchingKernel(path), changed);
  assert.equal(statSync(changed).mtimeMs, mtimeMs);
  const other = join(folder, "other");
  writeFileSync(other, "a program");
  t.mock.method(process.stderr, "write", () => true);
  assert.equal(batchingKernel(other), other);
});
