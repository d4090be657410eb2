import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { countingMaps, leadingMaps, memoryMaps } from "../../modes/ebpf/socket-balancer/maps.ts";
import { socketPrograms } from "../../modes/ebpf/socket-balancer/programs.ts";
import { readPrograms } from "./elf.ts";
import { mapsOf } from "./map-definition.ts";

const FAMILIES = [
  ["IPv4", 4],
  ["IPv6", 6],
] as const;

for (const [family, number] of FAMILIES) {
  const file = readFileSync(new URL(`../../modes/ebpf/socket-balancer/socket${number}.o`, import.meta.url));
  const leading = leadingMaps(family, { frontends: 8, slots: 8, backends: 8 });
  const maps = { ...leading, ...memoryMaps(family), ...countingMaps(family, 8) };

  test(`${family}: every program of the object file has a hook, and refers to maps of its family alone`, () => {
    const all = socketPrograms(family, maps, { hostCookie: 0x1122334455667788n, holdsNodePorts: true });
    const named = new Set(file.toString("latin1").match(/kpts_\w+/g));
    assert.deepEqual(new Set(all.map(([, { name }]) => name)), named);
    const used = new Set(all.flatMap(([, program]) => mapsOf(program)));
    assert.deepEqual(used, new Set(Object.values(maps)));
    const [, connect] = all.find(([hook]) => hook === `connect${number}`) ?? assert.fail();
    const halves = ["88776655", "44332211"].map((half) => Buffer.from(half, "hex"));
    assert.ok(
      halves.every((half) => Buffer.from(connect.code).includes(half)),
      "the cookie is in the code",
    );
  });

  test(`${family}: a symbol that is not given is named`, () => {
    assert.throws(() => readPrograms(file, new Map()), {
      code: "invalid",
      message: /program kpts_\w+: symbol \w+ is undefined$/,
    });
  });
}

test("what is no object file with programs is refused", () => {
  const file = readFileSync(new URL("../../modes/ebpf/socket-balancer/socket4.o", import.meta.url));
  const changed = (at: number): Uint8Array => file.map((byte, index) => (index === at ? byte ^ 1 : byte));
  for (const one of [new Uint8Array(), Buffer.from("#!/bin/sh\n"), changed(0), changed(4), changed(5), changed(18)]) {
    assert.throws(() => readPrograms(one, new Map()), { code: "invalid", message: /not an object file/ });
  }
});
