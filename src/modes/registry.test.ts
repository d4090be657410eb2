import assert from "node:assert/strict";
import { test } from "node:test";
import {
  defaultModeOn,
  MODES,
  modeNamed,
  modesInCleanUpOrder,
  modesReplacedBy,
  type ProxyMode,
  runsOn,
} from "./registry.ts";

const namesOf = (modes: readonly { readonly name: string }[]) => modes.map(({ name }) => name);

test("a node that comes up in one mode is cleaned of all others, but for rules that the first sync replaces", () => {
  const replaced = (name: ProxyMode) => {
    const { beforeFirstSync, afterFirstSync } = modesReplacedBy(modeNamed(name));
    return [namesOf(beforeFirstSync), namesOf(afterFirstSync)];
  };
  assert.deepEqual(replaced("iptables"), [["ipvs"], ["nftables", "userspace", "ebpf"]]);
  assert.deepEqual(replaced("nftables"), [[], ["ipvs", "iptables", "userspace", "ebpf"]]);
  assert.deepEqual(replaced("userspace"), [[], ["ipvs", "iptables", "nftables", "ebpf"]]);
  assert.deepEqual(replaced("ipvs"), [[], ["nftables", "userspace", "ebpf"]]);
  assert.deepEqual(replaced("ebpf"), [[], ["ipvs", "iptables", "userspace"]]);
});

test("leftovers go before the chains that they refer to", () => {
  const order = namesOf(modesInCleanUpOrder());
  assert.deepEqual([...order].sort(), ["ebpf", "iptables", "ipvs", "nftables", "userspace"]);
  assert.ok(order.indexOf("ipvs") < order.indexOf("iptables"));
});

test("a mode is cleaned up, and is the default, where it can run", () => {
  assert.deepEqual(namesOf(modesInCleanUpOrder("win32")), ["userspace", "kernelspace"]);
  assert.equal(defaultModeOn("win32").name, "kernelspace");
  assert.equal(defaultModeOn("linux").name, "iptables");
  assert.equal(runsOn(modeNamed("kernelspace"), "linux"), false);
});

test("a mode has a section, an output and a name of its own", () => {
  assert.equal(new Set(namesOf(MODES)).size, MODES.length);
  for (const { name, config, renderForms } of MODES) {
    assert.match(config.goType, /^v1alpha1\.KubeProxy.*Configuration$/, name);
    assert.ok(renderForms.length > 0, name);
  }
});
