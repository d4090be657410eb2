/** What every {@link Bpf} does: the kernel's and the in-memory one. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { assemble, passing } from "../../../../testkit/fakes/bpf/encode.ts";
import type { Bpf, BpfMap } from "../bpf.ts";
import { BpfError, hasBpfCode } from "../bpf-error.ts";
import type { MapDefinition, Program } from "../map-definition.ts";
import { pinsContract } from "./pins-contract.ts";
import type { RunnableProgram } from "./run-program.ts";

export interface BpfRig {
  readonly bpf: Bpf;
  readonly runnable: (program: Program, maps: readonly BpfMap[]) => RunnableProgram;
  /** The test's own cgroup, and its id. */
  readonly cgroup: string;
  readonly cgroupId: bigint;
  /** An empty folder of a bpf file system. */
  readonly folder: string;
}

export interface BpfSubject {
  readonly name: string;
  readonly skip: string | false;
  readonly open: (t: TestContext) => BpfRig | Promise<BpfRig>;
}

const HASH: MapDefinition = { name: "hash", type: "hash", keySize: 4, valueSize: 8, maxEntries: 3 };
const ARRAY: MapDefinition = { name: "array", type: "array", keySize: 4, valueSize: 8, maxEntries: 2 };
const LRU: MapDefinition = { name: "lru", type: "lru-hash", keySize: 4, valueSize: 8, maxEntries: 1024 };
const LARGE: MapDefinition = { ...HASH, name: "large", maxEntries: 10_000, isAllocatedOnWrite: true };

const key = (value: number): Uint8Array => new Uint8Array(Uint32Array.of(value).buffer);
const value = (content: number): Uint8Array => new Uint8Array(BigUint64Array.of(BigInt(content)).buffer);
const numbers = (map: BpfMap): readonly number[] =>
  map
    .entries()
    .map(([bytes]) => new Uint32Array(bytes.buffer)[0] ?? -1)
    .toSorted((one, other) => one - other);

/** Adds the context's first word to the element that its second word names. @returns 1 if it exists. */
const adding = (definition: MapDefinition): Program =>
  assemble(
    "adding",
    [
      { kind: "load", width: 4, destination: "r6", base: "r1", offset: 0 },
      { kind: "load", width: 4, destination: "r2", base: "r1", offset: 4 },
      { kind: "store", width: 4, base: "r10", offset: -8, source: "r2" },
      { kind: "load-map", destination: "r1", map: definition.name },
      { kind: "alu", operation: "mov", bits: 64, destination: "r2", source: "r10" },
      { kind: "alu", operation: "add", bits: 64, destination: "r2", source: -8 },
      { kind: "call", helper: "map_lookup_elem" },
      { kind: "jump-if", comparison: "==", bits: 64, left: "r0", right: 0, target: 12 },
      { kind: "load", width: 8, destination: "r1", base: "r0", offset: 0 },
      { kind: "alu", operation: "add", bits: 64, destination: "r1", source: "r6" },
      { kind: "store", width: 8, base: "r0", offset: 0, source: "r1" },
      { kind: "alu", operation: "mov", bits: 64, destination: "r0", source: 1 },
      { kind: "exit" },
    ],
    [definition],
  );

export function bpfContract(subject: BpfSubject): void {
  const check = (what: string, body: (rig: BpfRig, t: TestContext) => void | Promise<void>): void => {
    test(what, { skip: subject.skip }, async (t) => body(await subject.open(t), t));
  };
  const mapOf = (rig: BpfRig, t: TestContext, definition: MapDefinition): BpfMap => {
    const map = rig.bpf.createMap(definition);
    t.after(() => map.close());
    return map;
  };

  describe(`eBPF: ${subject.name}`, () => {
    check("a hash holds what it was given", (rig, t) => {
      const map = mapOf(rig, t, HASH);
      assert.equal(map.lookup(key(1)), undefined);
      map.update(key(1), value(10));
      map.update(key(1), value(11));
      assert.deepEqual(map.lookup(key(1)), value(11));
      assert.equal(map.delete(key(1)), true);
      assert.equal(map.delete(key(1)), false);
      assert.deepEqual(map.entries(), []);
    });

    check("an element is taken with the value that it had, and added only where there is none", (rig, t) => {
      const map = mapOf(rig, t, HASH);
      assert.equal(map.take(key(1)), undefined);
      assert.deepEqual([map.add(key(1), value(10)), map.add(key(1), value(11))], [true, false]);
      assert.deepEqual([map.take(key(1)), map.lookup(key(1))], [value(10), undefined]);
      for (const content of [1, 2, 3]) map.add(key(content), value(content));
      assert.throws(
        () => map.add(key(4), value(4)),
        (error) => hasBpfCode(error, "E2BIG"),
      );
    });

    check("a full hash refuses a new element, and keeps the others", (rig, t) => {
      const map = mapOf(rig, t, HASH);
      for (const content of [1, 2, 3]) map.update(key(content), value(content));
      assert.throws(
        () => map.update(key(4), value(4)),
        (error) => hasBpfCode(error, "E2BIG"),
      );
      map.update(key(3), value(30));
      assert.deepEqual(numbers(map), [1, 2, 3]);
    });

    check("an array has all its elements from the start, and keeps them", (rig, t) => {
      const map = mapOf(rig, t, ARRAY);
      assert.deepEqual(map.lookup(key(1)), value(0));
      map.update(key(1), value(7));
      assert.deepEqual(map.entries(), [
        [key(0), value(0)],
        [key(1), value(7)],
      ]);
      assert.equal(map.lookup(key(2)), undefined);
      assert.throws(
        () => map.update(key(2), value(7)),
        (error) => hasBpfCode(error, "E2BIG"),
      );
      assert.throws(
        () => map.delete(key(1)),
        (error) => hasBpfCode(error, "EINVAL"),
      );
    });

    check("an array's memory can be read and written in place", (rig, t) => {
      const map = mapOf(rig, t, { ...ARRAY, valueSize: 12, maxEntries: 3, isMappable: true });
      const words = map.words();
      map.update(key(1), Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
      assert.deepEqual([words.length >= 6, words[2], words[3]], [true, 0x0807060504030201n, 0x0c0b0a09n]);
      Atomics.store(words, 4, 0x55n);
      assert.deepEqual(map.lookup(key(2)), Uint8Array.of(0x55, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
      assert.throws(
        () => mapOf(rig, t, ARRAY).words(),
        (error) => error instanceof BpfError && /mmap of map array: E/.test(error.message),
      );
    });

    check("an LRU hash never refuses", (rig, t) => {
      const map = mapOf(rig, t, LRU);
      for (let content = 0; content < 2 * LRU.maxEntries; content++) map.update(key(content), value(content));
      assert.ok(map.entries().length <= LRU.maxEntries);
    });

    check("a program may say what the call fails with", (rig) => {
      assert.equal(rig.bpf.canSetReturnValue("connect4"), true);
    });

    check("many elements are written and read in batches", (rig, t) => {
      const map = mapOf(rig, t, LARGE);
      const all = Array.from({ length: LARGE.maxEntries }, (_, index) => index);
      map.updateAll(Buffer.concat(all.map(key)), Buffer.concat(all.map((index) => value(index + 1))));
      assert.deepEqual(numbers(map), all);
      assert.deepEqual(map.lookup(key(5000)), value(5001));
    });

    check("keys and values of another size are refused", (rig, t) => {
      const map = mapOf(rig, t, HASH);
      assert.throws(() => map.lookup(value(1)), /map hash: a key has 4 bytes, not 8/);
      assert.throws(() => map.update(key(1), key(1)), /map hash: a value has 8 bytes, not 4/);
    });

    check("a program runs over maps", (rig, t) => {
      const [map, other] = [mapOf(rig, t, HASH), mapOf(rig, t, HASH)];
      const assembled = adding(HASH);
      const runs = rig.runnable(assembled, [map]);
      const program = rig.bpf.loadProgram(assembled, "connect4", [map]);
      const twin = rig.bpf.loadProgram(assembled, "connect4", [other]);
      t.after(() => [runs, program, twin].map((one) => one.close()));
      map.update(key(9), value(100));
      const words = (added: number, of: number) => new Uint8Array(Uint32Array.of(added, of).buffer);
      assert.equal(runs.run(words(11, 9)), 1);
      assert.equal(runs.run(words(11, 8)), 0);
      assert.deepEqual(map.lookup(key(9)), value(111));
      assert.notEqual(program.id, twin.id);
    });

    check("a program without one of its maps is refused", (rig) => {
      assert.throws(
        () => rig.bpf.loadProgram(adding(HASH), "connect4", []),
        /program adding: its map hash is not given/,
      );
    });

    check("a refused program is told with the instruction and the reason", (rig) => {
      const wrong = assemble("wrong", [
        { kind: "alu", operation: "mov", bits: 64, destination: "r0", source: "r3" },
        { kind: "exit" },
      ]);
      assert.throws(
        () => rig.bpf.loadProgram(wrong, "connect4"),
        (error) =>
          error instanceof BpfError && /wrong is refused at 0: \(bf\) r0 = r3: R3 !read_ok/.test(error.message),
      );
    });

    check("a link attaches a program to one cgroup, replaces it and ends", (rig, t) => {
      const [first, second] = [passing(), passing("passing", 0)].map((one) => rig.bpf.loadProgram(one, "connect4"));
      assert.ok(first !== undefined && second !== undefined);
      t.after(() => [first, second].map((one) => one.close()));
      assert.deepEqual(rig.bpf.attached("connect4", rig.cgroup), []);
      const link = rig.bpf.attach(first, "connect4", rig.cgroup);
      assert.deepEqual(rig.bpf.attached("connect4", rig.cgroup), [first.id]);
      assert.deepEqual(rig.bpf.attached("connect6", rig.cgroup), []);
      assert.deepEqual([link.cgroupId, rig.bpf.cgroupId(rig.cgroup)], [rig.cgroupId, rig.cgroupId]);
      assert.throws(
        () => rig.bpf.cgroupId(`${rig.cgroup}/none`),
        (error) => hasBpfCode(error, "ENOENT"),
      );
      link.replace(second);
      assert.equal(link.programId, second.id);
      assert.deepEqual(rig.bpf.attached("connect4", rig.cgroup), [second.id]);
      link.close();
      assert.deepEqual(rig.bpf.attached("connect4", rig.cgroup), []);
    });

    check("links are found by the names of their programs, whichever process has them", (rig, t) => {
      const [ours, theirs] = [passing(), passing("theirs")].map((one) => rig.bpf.loadProgram(one, "connect4"));
      assert.ok(ours !== undefined && theirs !== undefined);
      t.after(() => [ours, theirs].map((one) => one.close()));
      const links = [ours, theirs].map((program) => rig.bpf.attach(program, "connect4", rig.cgroup));
      const ids = new Set(links.map(({ id }) => id));
      const found = rig.bpf.findLinks("pass", "valid_until").filter(({ link }) => ids.has(link.id));
      assert.deepEqual(
        found.map(({ link }) => [link.id, link.programId]),
        [[links[0]?.id, ours.id]],
      );
      assert.equal(found[0]?.value, undefined);
      for (const { link } of found) link.close();
      assert.deepEqual(rig.bpf.attached("connect4", rig.cgroup), [theirs.id]);
      assert.equal(links[0]?.cgroupId, 0n);
      for (const link of links) link.close();
    });

    check("a found link has the first value of an array that a program beside its own uses", (rig, t) => {
      const [validity, shared] = [
        { ...ARRAY, name: "valid_until4" },
        { ...ARRAY, name: "shared" },
      ];
      const using = (...maps: readonly MapDefinition[]) =>
        assemble(
          "uses",
          [
            ...maps.map(({ name: map }) => ({ kind: "load-map", destination: "r1", map }) as const),
            { kind: "alu", operation: "mov", bits: 64, destination: "r0", source: 1 },
            { kind: "exit" },
          ],
          maps,
        );
      const maps = [validity, shared].map((definition) => mapOf(rig, t, definition));
      maps[0]?.update(key(0), value(77));
      const programs = [using(validity, shared), using(shared), using()].map((one) =>
        rig.bpf.loadProgram(one, "connect4", maps),
      );
      const links = programs.map((program) => rig.bpf.attach(program, "connect4", rig.cgroup));
      t.after(() => [...links, ...programs].map((one) => one.close()));
      const ids = links.map(({ id }) => id);
      const found = rig.bpf.findLinks("uses", "valid_until").filter(({ link }) => ids.includes(link.id));
      assert.deepEqual(
        new Map(found.map((one) => [one.link.id, one.value])),
        new Map(ids.map((id, at) => [id, at < 2 ? value(77) : undefined])),
      );
      for (const { link } of found) link.release();
    });

    pinsContract(check);
  });
}
