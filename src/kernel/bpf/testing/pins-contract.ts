/** What names in a bpf file system do: part of the contract of every {@link Bpf}. */

import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { passing } from "../../../../testkit/fakes/bpf/encode.ts";
import type { BpfLink } from "../bpf.ts";
import { hasBpfCode } from "../bpf-error.ts";
import type { MapDefinition } from "../map-definition.ts";
import type { BpfRig } from "./bpf-contract.ts";

const MAP: MapDefinition = { name: "kept", type: "hash", keySize: 4, valueSize: 8, maxEntries: 3 };
const ARRAY: MapDefinition = {
  ...MAP,
  name: "words",
  type: "array",
  isMappable: true,
};
const [KEY, VALUE] = [Uint8Array.of(1, 0, 0, 0), Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8)];
const ofSize =
  (definition: MapDefinition) =>
  (maxEntries: number): MapDefinition => ({ ...definition, maxEntries });
const failsWith = (code: string) => (error: unknown) => hasBpfCode(error, code as `E${string}`);

/** @param check declares a test. */
export function pinsContract(check: (what: string, body: (rig: BpfRig, t: TestContext) => void) => void): void {
  check("a pinned map is found again with what it holds, and its memory can be mapped", ({ bpf, folder }) => {
    const { pins } = bpf;
    const [map, array] = [bpf.createMap(MAP), bpf.createMap(ARRAY)];
    map.update(KEY, VALUE);
    pins.pin(map, `${folder}/m`);
    pins.pin(array, `${folder}/a`);
    Atomics.store(array.words(), 1, 7n);
    map.close();
    array.close();
    const [again, arrayAgain] = [pins.map(`${folder}/m`, ofSize(MAP)), pins.map(`${folder}/a`, ofSize(ARRAY))];
    assert.deepEqual([again?.definition, again?.lookup(KEY)], [MAP, VALUE]);
    assert.equal(arrayAgain?.words()[1], 7n);
    again?.close();
    arrayAgain?.close();
    assert.equal(pins.map(`${folder}/none`, ofSize(MAP)), undefined);
  });

  check("what is not the wanted map is refused", ({ bpf, folder }, t) => {
    const { pins } = bpf;
    const map = bpf.createMap(MAP);
    const program = bpf.loadProgram(passing(), "connect4");
    t.after(() => [map, program].map((one) => one.close()));
    pins.pin(map, `${folder}/m`);
    pins.pin(program, `${folder}/p`);
    for (const wanted of [
      { ...MAP, name: "other" },
      { ...MAP, valueSize: 16 },
      { ...MAP, isAllocatedOnWrite: true },
      { ...MAP, type: "lru-hash" as const },
    ]) {
      assert.throws(() => pins.map(`${folder}/m`, ofSize(wanted)), /m is not the expected object: it is another map/);
    }
    assert.throws(() => pins.map(`${folder}/p`, ofSize(MAP)), /p is not the expected object: it is no map but program/);
    assert.throws(() => pins.link(`${folder}/m`, "connect4"), failsWith("invalid"));
    assert.throws(() => pins.map(folder, ofSize(MAP)), failsWith("EACCES"));
  });

  check(
    "a pinned link works on without a descriptor, takes another program, and ends",
    ({ bpf, cgroup, cgroupId, folder }, t) => {
      const { pins } = bpf;
      const [first, second] = [
        bpf.loadProgram(passing(), "connect4"),
        bpf.loadProgram(passing("passing", 0), "connect4"),
      ];
      t.after(() => [first, second].map((one) => one.close()));
      const attached = () => bpf.attached("connect4", cgroup);
      const link = bpf.attach(first, "connect4", cgroup);
      pins.pin(link, `${folder}/l`);
      link.release();
      assert.deepEqual(attached(), [first.id]);
      assert.throws(() => pins.link(`${folder}/l`, "connect6"), /it is no link of connect6/);
      const again = pins.link(`${folder}/l`, "connect4");
      assert.ok(again !== undefined);
      assert.deepEqual([again.cgroupId, again.programId], [cgroupId, first.id]);
      assert.throws(() => again.replace(second, second), failsWith("EPERM"));
      again.replace(second, first);
      assert.deepEqual(attached(), [second.id]);
      again.close();
      assert.deepEqual(attached(), []);
      const ended = pins.link(`${folder}/l`, "connect4");
      assert.equal(ended?.cgroupId, 0n, "the name is left");
      assert.throws(() => ended?.replace(first), failsWith("ENOLINK"));
      ended?.release();
    },
  );

  check("names are listed, moved and removed", ({ bpf, folder }, t) => {
    const { pins } = bpf;
    const [one, other] = [bpf.createMap(MAP), bpf.createMap({ ...MAP, name: "other" })];
    t.after(() => [one, other].map((map) => map.close()));
    const list = (path = folder) => pins.list(path)?.toSorted();
    assert.deepEqual([list(), list(`${folder}/none`)], [[], undefined]);
    pins.makeFolder(`${folder}/deep/er`);
    pins.makeFolder(`${folder}/deep/er`);
    pins.pin(one, `${folder}/deep/er/m`);
    pins.pin(other, `${folder}/n`);
    assert.throws(() => pins.pin(other, `${folder}/n`), failsWith("EEXIST"));
    assert.throws(() => pins.pin(other, `${folder}/no/where`), failsWith("ENOENT"));
    assert.throws(() => pins.pin(other, `${folder}/a.b`), failsWith("EPERM"));
    assert.throws(() => pins.remove(`${folder}/deep`), failsWith("ENOTEMPTY"));
    assert.deepEqual([list(), list(`${folder}/deep`)], [["deep", "n"], ["er"]]);
    pins.move(`${folder}/n`, `${folder}/other`);
    assert.throws(() => pins.move(`${folder}/n`, `${folder}/other`), failsWith("ENOENT"));
    pins.pin(one, `${folder}/n`);
    pins.move(`${folder}/n`, `${folder}/other`);
    assert.deepEqual(list(), ["deep", "other"]);
    assert.equal(pins.map(`${folder}/other`, ofSize(MAP))?.definition.name, MAP.name, "in place of the other");
    for (const [path, isThere] of [
      ["deep/er/m", true],
      ["deep/er/m", false],
      ["deep/er", true],
      ["deep", true],
      ["other", true],
    ] as const) {
      assert.equal(pins.remove(`${folder}/${path}`), isThere, path);
    }
    assert.deepEqual(list(), []);
  });

  check("one link runs after the other, wherever they are held", ({ bpf, cgroup, folder }, t) => {
    const { pins } = bpf;
    const programs = [1, 2, 3].map(() => bpf.loadProgram(passing(), "connect4"));
    t.after(() => programs.map((one) => one.close()));
    const links: BpfLink[] = programs.map((program) => bpf.attach(program, "connect4", cgroup));
    const [first, second, third] = links;
    assert.ok(first !== undefined && second !== undefined && third !== undefined);
    pins.pin(second, `${folder}/second`);
    second.release();
    assert.deepEqual(
      bpf.attached("connect4", cgroup),
      programs.map(({ id }) => id),
    );
    for (const link of [first, third]) link.close();
    assert.deepEqual(bpf.attached("connect4", cgroup), [programs[1]?.id]);
    pins.link(`${folder}/second`, "connect4")?.close();
    pins.remove(`${folder}/second`);
  });
}
