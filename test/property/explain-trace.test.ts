/**
 * `explain` and `trace` are asked the same of random Services: what a client at each place meets at each address, in every mode. What a
 * user types goes in, what a program reads comes out.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { MODES } from "../../src/modes/registry.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { runCommand } from "../cli/run-command.ts";
import { type OneService, oneService, serviceCluster } from "./one-service.ts";

/** The second is that of clients outside, as `--from outside` has them. */
const RANGES = ["10.200.0.0/26", "203.0.113.64/26", "10.180.0.0/16", "192.0.2.0/24"];

const RUNS = historyRuns("KPTS_PROPERTY_EXPLAIN_RUNS", 12);
const NODE = "10.200.0.2";

const settingsArbitrary = fc.record({
  clusterCIDR: fc.constantFrom("10.180.0.0/16", undefined),
  masqueradeAll: fc.boolean(),
});

const folder = mkdtempSync(join(tmpdir(), "kpts-explain-trace-"));
after(() => rmSync(folder, { recursive: true }));

interface Client {
  readonly position: "pod" | "node" | "other-node" | "outside";
  readonly outcome: "answered" | "refused" | "dropped" | "passed-by";
  readonly endpoints: "all" | "local" | null;
  readonly source: string | null;
  readonly reason: string;
  readonly onlyListedSources: boolean;
}
interface Frontend {
  readonly kind: string;
  readonly address: string | null;
  readonly port: number;
  readonly owner: string | null;
  readonly clients: readonly Client[];
}
interface Endpoint {
  readonly address: string;
  readonly cluster: { readonly used: boolean } | null;
  readonly local: { readonly used: boolean } | null;
}
interface Outcome {
  readonly assumptions: readonly string[];
  readonly fate: { readonly kind: string; readonly isAnswerLost?: boolean };
  readonly packet: {
    readonly destination: string;
    readonly destinationPort: number;
    readonly source: string;
    readonly isMasqueraded: boolean;
    readonly isSourceTranslated: boolean;
  };
}

async function asJson(command: typeof trace, args: readonly string[], objects: string) {
  const { status, out, err } = await runCommand(command, [...args, "-f", "-", "-o", "json"], objects);
  assert.equal(status, 0, `${args.join(" ")}: ${err}`);
  return JSON.parse(out);
}

const BRIDGED = "it comes in by a port of a bridge";

/** Each place of a client, as it is said to `trace`; clients outside are at .77, which one of the ranges has. */
const FROM = { pod: "pod", node: "node", "other-node": "10.200.0.3", outside: "outside" } as const;
const OUTSIDE_RANGE = "203.0.113.64/26";

/** `answered by 10.180.0.11:8080 10.180.1.12:8080, kept`, `refused`, `dropped`, `passed-by`. */
function explained(client: Client, endpoints: readonly Endpoint[], ranges: readonly string[]): string {
  const isListed = client.position === "outside" ? ranges.includes(OUTSIDE_RANGE) : undefined;
  if (client.onlyListedSources && isListed === false) return "dropped";
  if (client.outcome !== "answered") return client.outcome;
  const policy = client.endpoints === "local" ? "local" : "cluster";
  const members = endpoints.filter((one) => one[policy]?.used === true).map(({ address }) => address);
  const source = client.source === "masqueraded" || client.source === "host-or-source-vip" ? "other" : "kept";
  return `answered by ${members.sort().join(" ")}, ${source}`;
}

function traced(outcomes: readonly Outcome[], target: string): string {
  const texts = new Set<string>();
  const members = new Set<string>();
  const lost = new Set<string>();
  for (const { fate, packet } of outcomes) {
    const end = `${packet.destination}:${packet.destinationPort}`;
    if (fate.kind === "not-led") texts.add("passed-by");
    else if (fate.kind !== "sent" && fate.kind !== "delivered") texts.add(fate.kind);
    else if (end === target) texts.add("passed-by");
    else {
      members.add(end);
      if (fate.isAnswerLost === true) lost.add(end);
      texts.add(packet.isMasqueraded || packet.isSourceTranslated ? "other" : "kept");
    }
  }
  if (lost.size > 0 && lost.size === members.size) return "dropped";
  const text = [...texts].sort().join(" or ");
  return members.size === 0 ? text : `answered by ${[...members].sort().join(" ")}, ${text}`;
}

for (const { name: mode } of MODES) {
  test(`explain says what trace says, ${mode}`, async () => {
    let compared = 0;
    await fc.assert(
      fc.asyncProperty(
        oneService(RANGES),
        settingsArbitrary,
        async (one: OneService, { clusterCIDR, masqueradeAll }) => {
          const config = join(folder, `${mode}-${clusterCIDR === undefined}-${masqueradeAll}.json`);
          const document = {
            apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
            kind: "KubeProxyConfiguration",
            mode,
            ...(clusterCIDR !== undefined && { clusterCIDR, detectLocalMode: "ClusterCIDR" }),
            ...{ iptables: { masqueradeAll }, nftables: { masqueradeAll } },
          };
          writeFileSync(config, JSON.stringify(document));
          const objects = JSON.stringify({ apiVersion: "v1", kind: "List", items: serviceCluster(one) });
          const common = ["--config", config, "--mode", mode, "--node", "node-a"];
          const { servicePorts } = await asJson(explain, ["shop/web", "--family", "ipv4", ...common], objects);
          const [{ frontends, endpoints }]: [{ frontends: readonly Frontend[]; endpoints: readonly Endpoint[] }] =
            servicePorts;
          for (const { kind, address, port, clients } of frontends) {
            const target = `${address ?? NODE}:${port}`;
            for (const client of clients) {
              // Windows' load balancers do not ask where a client is.
              if (client.position === "other-node" && one.ranges.length > 0) continue;
              const args = ["--from", FROM[client.position], "--to", target, "--new-client", ...common];
              const { outcomes: all }: { outcomes: Outcome[] } = await asJson(trace, args, objects);
              const without = (assumed: string) => all.filter(({ assumptions }) => !assumptions.includes(assumed));
              const isUnlessBridged = client.reason === "not-by-bridge";
              if (isUnlessBridged) assert.doesNotMatch(traced(without(`not: ${BRIDGED}`), target), /^answered/);
              const isBridged = client.position === "pod" && !isUnlessBridged;
              const outcomes = without(isBridged ? `not: ${BRIDGED}` : BRIDGED);
              const isBarred = client.reason === "source-ranges" || client.onlyListedSources;
              const wanted = explained(client, endpoints, kind === "load-balancer" ? one.ranges : []);
              // What userspace mode does not let in, it does not drop either.
              const found = traced(outcomes, target);
              if (mode === "userspace" && isBarred && found === "passed-by" && wanted === "dropped") continue;
              assert.equal(found, wanted, `${kind} ${target} from ${client.position}`);
              compared += 1;
            }
          }
        },
      ),
      { numRuns: RUNS, includeErrorInReport: true },
    );
    assert.ok(compared > RUNS);
  });
}
