/** A pin folder that another program removed while a process used it, and that the next process has made again. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { BpfMachine, memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import type { MapDefinition } from "../../kernel/bpf/map-definition.ts";
import { FolderLock } from "../../kernel/folder-lock.ts";
import type { Opened } from "./open-maps.ts";
import { type BalancerMaps, countingMaps, leadingMaps, memoryMaps } from "./socket-balancer/maps.ts";
import { SocketPins } from "./socket-pins.ts";

/** A process: its maps have room for this many elements. */
function processOn(t: TestContext, machine: BpfMachine, folder: string, room: number) {
  const bpf = memoryBpf(machine);
  const lock = new FolderLock(folder);
  t.after(() => lock.release());
  const sizes = { frontends: room, slots: room, backends: room };
  const definitions = { ...leadingMaps("IPv4", sizes), ...memoryMaps("IPv4", room), ...countingMaps("IPv4", room) };
  const maps = Object.entries<MapDefinition>(definitions).map(([name, one]) => [name, bpf.createMap(one)] as const);
  const pins = new SocketPins(bpf.pins, folder, "IPv4", () =>
    lock.hold((path) => void mkdirSync(path, { recursive: true })),
  );
  const keep = (): void => pins.keep(Object.fromEntries(maps) as unknown as Opened<BalancerMaps>, []); // of these definitions
  return { pins, keep, lock };
}

function scene(t: TestContext) {
  const root = mkdtempSync(join(tmpdir(), "kpts-pins-"));
  t.after(() => rmSync(root, { recursive: true }));
  const [machine, folder] = [new BpfMachine(), join(root, "7")];
  const first = processOn(t, machine, folder, 8);
  first.pins.hold();
  first.keep();
  new SocketPins(memoryBpf(machine).pins, folder, "IPv4").end();
  rmdirSync(folder);
  return { folder, first, second: processOn(t, machine, folder, 16) };
}

test("the process that used it leaves the names of the next one alone, and says that it cannot keep its own", (t) => {
  const { first, second } = scene(t);
  second.pins.hold();
  second.keep();
  first.keep();
  assert.match(String(first.pins.problem), /FolderInUse/);
  assert.equal(second.pins.findMaps().leading?.frontends.definition.maxEntries, 16);
});

test("where there is none yet, the process takes it again with its names", (t) => {
  const { folder, first, second } = scene(t);
  first.keep();
  assert.deepEqual([first.pins.problem, existsSync(folder)], [undefined, true]);
  assert.throws(() => second.pins.hold(), { name: "FolderInUse" });
});

test("after the next one has ended, the process gives its own names in place of those left", (t) => {
  const { first, second } = scene(t);
  second.pins.hold();
  second.keep();
  first.keep();
  second.lock.release();
  first.keep();
  assert.equal(first.pins.problem, undefined);
  assert.equal(second.pins.findMaps().leading?.frontends.definition.maxEntries, 8);
});
