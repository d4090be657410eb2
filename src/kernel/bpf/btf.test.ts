import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { KERNEL_FUNCTION_NAMES } from "./asm/kernel-functions.ts";
import { absenceOf, functionIds, kernelFunctionIds } from "./btf.ts";

interface TypeRecord {
  readonly kind: number;
  readonly name?: string;
  /** Parts, and words after the record. */
  readonly parts?: number;
  readonly tail?: number;
}

/** A BTF with these types, and strings of which one is the end of another. */
function btf(types: readonly TypeRecord[]): Buffer {
  const names = ["", "not_this_call", ...types.map(({ name = "" }) => name)];
  const strings = Buffer.from(`${names.join("\0")}\0`);
  const words = types.flatMap(({ kind, name = "", parts = 0, tail = 0 }) => [
    name === "" ? 0 : strings.indexOf(`\0${name}\0`) + 1,
    (kind << 24) | parts,
    0,
    ...new Array<number>(tail).fill(0xffff_ffff),
  ]);
  const records = Buffer.from(Uint32Array.from(words).buffer);
  const header = Buffer.alloc(24);
  header.writeUInt16LE(0xeb9f, 0);
  header.writeUInt8(1, 2);
  for (const [at, value] of [24, 0, records.length, records.length, strings.length].entries()) {
    header.writeUInt32LE(value, 4 + 4 * at);
  }
  return Buffer.concat([header, records, strings]);
}

/** How many words follow a record, by its kind (reference ebpf-programs.md §4.7). */
const KINDS: readonly (readonly [kind: number, parts: number, tail: number])[] = [
  [1, 0, 1],
  [2, 0, 0],
  [3, 0, 3],
  [4, 2, 6],
  [5, 3, 9],
  [6, 4, 8],
  [7, 0, 0],
  [8, 0, 0],
  [9, 0, 0],
  [10, 0, 0],
  [11, 0, 0],
  [13, 3, 6],
  [14, 0, 1],
  [15, 2, 6],
  [16, 0, 0],
  [17, 0, 1],
  [18, 0, 0],
  [19, 2, 6],
];

test("a function has the number of its type, behind types of every kind", () => {
  const before = KINDS.map(([kind, parts, tail]) => ({ kind, parts, tail }));
  const types = btf([
    ...before,
    { kind: 1, name: "call", tail: 1 },
    { kind: 12, name: "call" },
    { kind: 12, name: "b" },
  ]);
  const found = functionIds(types, ["call", "b", "this_call", "absent"]);
  assert.deepEqual(
    [...found],
    [
      ["call", KINDS.length + 2],
      ["b", KINDS.length + 3],
    ],
  );
});

test("what is no BTF is refused", () => {
  assert.throws(() => functionIds(Buffer.from("nothing of the kind, at all"), ["a"]), /not a BTF/);
  assert.throws(() => functionIds(btf([{ kind: 12, name: "a" }]).subarray(0, 30), ["a"]), /ends too early/);
});

test("this kernel tells where its functions are", { skip: !existsSync("/sys/kernel/btf/vmlinux") }, () => {
  const ids = kernelFunctionIds();
  for (const id of ids.values()) assert.ok(id > 0);
  assert.equal(new Set(ids.values()).size, ids.size);
  assert.ok(ids.size <= KERNEL_FUNCTION_NAMES.length);
});

test("a function that is not there is told with the module that has it", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-btf-"));
  t.after(() => rmSync(folder, { recursive: true }));
  assert.match(absenceOf("bpf_ct_release", folder), /this kernel has no bpf_ct_release/);
  writeFileSync(join(folder, "nf_conntrack"), "");
  assert.match(absenceOf("bpf_ct_release", folder), /bpf_ct_release is in the module nf_conntrack: .* built into/);
});
