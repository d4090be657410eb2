import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { kernelSkip } from "../support/topology.ts";
import { NetworkNamespace } from "./network-namespace.ts";
import { newRunName } from "./run-name.ts";

test("a namespace's own sysctls and files of /proc/net are read without a program", { skip: kernelSkip }, async (t) => {
  const namespace = await NetworkNamespace.create(newRunName("read"));
  t.after(() => namespace.remove());
  const devices = () =>
    namespace
      .readProcNet("dev")
      .match(/^ *\S+(?=:)/gm)
      ?.map((name) => name.trim()) ?? [];
  await namespace.configure(["link add inside type veth peer name peer"]);
  assert.ok(devices().includes("inside") && devices().includes("lo"), devices().join());
  assert.doesNotMatch(readFileSync("/proc/net/dev", "utf8"), /inside:/);
  const key = "net.ipv4.ip_forward";
  const here = readFileSync("/proc/sys/net/ipv4/ip_forward", "utf8");
  for (const value of ["1", "0"]) {
    namespace.sysctl({ [key]: value });
    assert.equal(namespace.readSysctl(key), value);
  }
  assert.equal(readFileSync("/proc/sys/net/ipv4/ip_forward", "utf8"), here);
  assert.ok(!existsSync("/proc/sys/net/ipv4/conf/inside"));
  assert.throws(() => namespace.readSysctl("net.ipv4.no_such_thing"), { code: "ENOENT" });
  assert.throws(() => namespace.readProcNet("no_such_thing"), { code: "ENOENT" });
});
