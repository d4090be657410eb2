/** What `deploy/restricted.yaml` and the chart's `restricted` give the program is enough for it, in each mode that they are for. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parse } from "yaml";
import { kernelSkip } from "../../testkit/support/topology.ts";
import { faultNode, prepareDaemon, startDaemon } from "../kernel/faults/fault-node.ts";

interface Restricted {
  readonly initContainers: readonly { readonly command: readonly string[]; readonly securityContext: object }[];
  readonly containers: readonly {
    readonly securityContext: { readonly capabilities: { readonly add: readonly string[] } };
  }[];
}

const text = readFileSync(new URL("../../deploy/restricted.yaml", import.meta.url), "utf8");
const pod: Restricted = parse(text).spec.template.spec;
const capabilities = pod.containers[0]?.securityContext.capabilities.add ?? [];

/** A container's view: its own capabilities, /proc/sys and the root file system read-only, the lock of iptables not. */
const CONTAINER = `
  set -e
  mkdir -p /run/kpts-lock && mount -t tmpfs none /run/kpts-lock && touch /run/kpts-lock/l /run/xtables.lock
  mount --bind /run/kpts-lock/l /run/xtables.lock
  mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
  mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && mount -o remount,bind,ro /
  exec setpriv --no-new-privs --bounding-set=-all,${capabilities.map((name) => `+${name.toLowerCase()}`).join()} "$@"
`;

for (const mode of ["nftables", "iptables"]) {
  test(`${mode}: after --init-only the capabilities ${capabilities.join(" and ")} are enough`, {
    skip: kernelSkip,
  }, async (t) => {
    const node = await faultNode(t);
    const options = { config: { mode, nodePortAddresses: ["primary"] } };
    assert.ok(pod.initContainers[0]?.command.includes("--init-only"));
    const first = prepareDaemon(t, node, { ...options, args: ["--init-only"] });
    first.spawn();
    assert.equal(await first.ended(), 0, first.log);
    const daemon = await startDaemon(t, node, {
      ...options,
      wrapper: ["unshare", "--mount", "sh", "-c", CONTAINER, "sh"],
    });
    const status = readFileSync(`/proc/${daemon.pid}/status`, "utf8");
    assert.match(status, /^CapEff:\t0{12}[0-9a-f]{4}$/m);
    assert.equal((await daemon.fetch("http://127.0.0.1:10256/healthz")).status, 200, daemon.log);
    assert.doesNotMatch(daemon.log, /^E\d{4}/m);
    // At verbosity 1 it says, too, that it cannot look for programs that another mode has left.
    const lines = daemon.log.split("\n").filter((line) => !line.includes("Could not list the programs that decide"));
    const [, ...notAllowed] = lines.join("\n").match(/E(?:PERM|ACCES|ROFS)/g) ?? [];
    assert.deepEqual(notAllowed, [], "nothing but its own place among those that are killed first");
  });
}
