/** A node switches from one release to another and back, in place and under connections: only rules that differ are written. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { NftMonitor } from "../faults/nft-monitor.ts";
import type { ServiceSpec } from "./cluster-objects.ts";
import { flowNetwork } from "./flow-network.ts";
import { MODES_AND_LAYOUTS, traitsOf } from "./modes.ts";
import { askSteadily, assertAlive, holdConnections } from "./steady-clients.ts";

const SINGLE = 1;
const services: readonly ServiceSpec[] = [
  { name: "single", number: SINGLE, endpoints: ["local-1"] },
  { name: "pair", number: 2, endpoints: ["local-1", "remote-1"] },
  { name: "sticky", number: 3, endpoints: ["local-1"], spec: { sessionAffinity: "ClientIP" } },
  { name: "empty", number: 4, endpoints: [] },
];
const STEPS = ["v1.36", "v1.37", "v1.36", "v1.37"];

/** Those of the one service whose rules differ; a map for a single rule comes and goes with it. */
const RULE = /^(add|delete) rule ip6? kube-proxy service-\S+\/single\/\S+ /;
const MAP_OF_RULE = /^delete set ip6? kube-proxy __/;
const DRAWN = / dnat ip6? to numgen random mod 1 map \{ 0 : \S+ \. \d+ \}$/;
const PLAIN = / dnat to \S+:\d+$/;
/** TCP and UDP, in both families. */
const RULES_THAT_DIFFER = 4;

for (const mode of ["nftables", "nftables-flat"] as const) {
  test(`${mode}: releases are switched in place`, {
    skip: kernelSkip || (MODES_AND_LAYOUTS.includes(mode) ? false : "another run has this layout"),
  }, async (t) => {
    const network = await flowNetwork(t, mode, services);
    const { daemon } = network;
    const config = JSON.parse(readFileSync(join(daemon.folder, "config.json"), "utf8"));
    const rules = async () => await traitsOf[mode].rules(daemon);
    const seen = new Map([["v1.37", await rules()]]);
    for (const compatibility of STEPS) {
      const held = await holdConnections(network, SINGLE);
      const stopAsking = askSteadily(network, SINGLE);
      const monitor = await NftMonitor.start(daemon.namespace);
      t.after(() => monitor.stop());
      writeFileSync(join(daemon.folder, "config.json"), JSON.stringify({ ...config, compatibility }));
      await daemon.stop("SIGTERM");
      const startedAt = Date.now();
      daemon.spawn();
      await daemon.synced(startedAt);
      assert.deepEqual(await stopAsking(), [], `on the way to ${compatibility}`);
      await assertAlive(held);
      const changes = monitor.commits.flatMap((commit) => commit.changes.filter((line) => line !== ""));
      monitor.stop();
      const now = await rules();
      assert.equal(now, seen.get(compatibility) ?? now, `rules of ${compatibility}`);
      seen.set(compatibility, now);
      assert.doesNotMatch(daemon.log, /Sync failed/);
      assert.deepEqual(
        changes.filter((line) => !RULE.test(line) && !MAP_OF_RULE.test(line)),
        [],
        "what differs in no release is not written",
      );
      const added = changes.filter((line) => line.startsWith("add rule"));
      const differs = mode === "nftables" ? RULES_THAT_DIFFER : 0;
      assert.equal(added.filter((line) => (compatibility === "v1.36" ? DRAWN : PLAIN).test(line)).length, differs);
      assert.equal(changes.filter((line) => line.startsWith("delete rule")).length, differs);
    }
  });
}
