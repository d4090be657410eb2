import assert from "node:assert/strict";
import { test } from "node:test";
import { parseDemoArguments } from "./arguments.ts";

test("without arguments the demo is live, in iptables mode, on the examples", () => {
  const options = { once: false, mode: "iptables", manifests: undefined, hostnameOverride: undefined };
  assert.deepEqual(parseDemoArguments([]), { kind: "run", options });
});

test("options are read in both spellings", () => {
  const options = { once: true, mode: "iptables", manifests: "dir", hostnameOverride: undefined };
  assert.deepEqual(parseDemoArguments(["--once", "--mode=iptables", "--manifests", "dir"]), { kind: "run", options });
  assert.deepEqual(parseDemoArguments(["-h"]), { kind: "help" });
});

test("a layout goes to a mode that has several", () => {
  const parsed = parseDemoArguments(["--mode", "nftables", "--layout", "flat"]);
  assert.equal(parsed.kind === "run" && parsed.options.layout, "flat");
  const refused = parseDemoArguments(["--layout", "flat"]);
  assert.match(refused.kind === "error" ? refused.message : "", /mode iptables has one layout only/);
});

test("a mode that cannot be shown is refused with those that can", () => {
  for (const mode of ["ebpfs", "kernelspace"]) {
    const parsed = parseDemoArguments(["--mode", mode]);
    assert.ok(parsed.kind === "error");
    assert.match(parsed.message, new RegExp(`--mode ${mode} .*available: .*iptables`));
  }
});

test("unknown options and stray words are refused", () => {
  for (const argv of [["--ounce"], ["word"], ["--mode"]])
    assert.equal(parseDemoArguments(argv).kind, "error", argv.join());
});

test("a flag that does not exist is answered with the one that was probably meant", () => {
  const message = "unknown flag: --manifest\nDid you mean --manifests? Otherwise see 'npm start -- --help'.";
  assert.deepEqual(parseDemoArguments(["--manifest", "x.yaml"]), { kind: "error", message });
});
