/** What the commands that inspect a node say about a daemon that runs in ebpf mode, and about its pinned maps. */
import assert from "node:assert/strict";
import { join } from "node:path";
import type { BpfMap } from "../../../src/kernel/bpf/bpf.ts";
import { kernelBpf } from "../../../src/kernel/bpf/kernel-bpf.ts";
import { ip } from "../../../src/model/testing/records.ts";
import { frontendKey, leadingMaps, MAPS_VERSION } from "../../../src/modes/ebpf/socket-balancer/maps.ts";
import { PROTOCOL_NUMBERS } from "../../../src/net/protocol.ts";
import { KUBE_PROXY } from "../../../testkit/needs/built-program.ts";
import type { CommandResult } from "../../../testkit/net/run-command.ts";
import { nodeA } from "../../../testkit/net/topology-spec.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { addressesOf, SERVICE_PORT } from "./cluster-objects.ts";
import type { FlowNetwork } from "./flow-network.ts";

/** As on the node, beside the daemon. */
async function told({ daemon }: FlowNetwork, ...args: readonly string[]): Promise<CommandResult> {
  return await daemon.namespace.exec([KUBE_PROXY, ...args], { timeoutMs: stretched(30_000), allowFailure: true });
}

/** The frontends that the daemon has pinned. */
function pinnedFrontends(folder: string): BpfMap {
  const capacity = (entries: number) => ({ frontends: entries, slots: entries, backends: entries });
  const path = `${folder}/IPv4/v${MAPS_VERSION}/frontends4`;
  const map = kernelBpf().pins.map(path, (entries) => leadingMaps("IPv4", capacity(entries)).frontends);
  return map ?? assert.fail(`nothing is pinned at ${path}`);
}

/**
 * Runs all of them for the service `stable`, whose pods are local-1 and remote-1.
 * @param number the service's. @param socket the daemon's inspect socket. @param folder where it has pinned its maps.
 */
export async function expectTold(
  network: FlowNetwork,
  { number, socket, folder }: { readonly number: number; readonly socket: string; readonly folder: string },
): Promise<void> {
  const { daemon, cgroup } = network;
  const address = addressesOf(number)["cluster IP"].IPv4;
  const at = `${address}:${SERVICE_PORT}`;
  const here = ["--kernel", "--config", join(daemon.folder, "config.json"), "--hostname-override", nodeA.name];
  const planned = ["-f", daemon.manifests, ...here];
  const trace = () => told(network, "trace", ...here, "--from", "node", "--to", at);
  const prove = () => told(network, "prove", "--family", "ipv4", ...planned);
  const [status, services, explain, same, fromNode, equal] = await Promise.all([
    told(network, "status", "--socket", socket),
    told(network, "services", "--socket", socket),
    told(network, "explain", "flows/stable", "--why", ...planned),
    told(network, "diff", ...planned),
    trace(),
    prove(),
  ]);
  assert.match(equal.stdout, /^this node's kernel \(node-a, IPv4\): the rules treat every packet as/, equal.stderr);
  assert.match(
    status.stdout,
    new RegExp(
      `^healthy\\nup for .*\\nIPv4: .*\\n  decided at the socket in ${cgroup} for the node and \\d+ pods; service ports: 6`,
      "m",
    ),
  );
  assert.match(services.stdout, new RegExp(`^flows/stable:tcp TCP +${at} `, "m"));
  assert.match(
    explain.stdout,
    /^ {4}the kernel now, at connect\(\): leads to 10\.180\.0\.11:8080, 10\.180\.1\.11:8080; for the node and 3 pods$/m,
  );
  assert.match(
    explain.stdout,
    /reaches itself through its Service sees its own address\. Where rules decide .*, it sees the node's\./,
  );
  assert.deepEqual([same.stdout, same.status], ["No differences.\n", 0], same.stderr);
  assert.match(fromNode.stdout, /by the pinned maps: the socket asks for 10\.180\.[01]\.11:8080$/m);
  const decided = `TCP ${at} leads to 10.180.0.11:8080, 10.180.1.11:8080\n`;
  assert.ok(fromNode.stdout.includes(decided), fromNode.stdout + fromNode.stderr);
  assert.match(fromNode.stdout, /50\.0 % {2}sent to 10\.180\.0\.11:8080/);

  // Stands for another program.
  const frontends = pinnedFrontends(folder);
  const key = frontendKey("IPv4", ip(address), SERVICE_PORT, PROTOCOL_NUMBERS.TCP);
  const value = frontends.lookup(key) ?? assert.fail(`nothing leads from ${at}`);
  frontends.delete(key);
  try {
    const [lost, passing, proof] = await Promise.all([told(network, "diff", ...planned), trace(), prove()]);
    // The rules lead there, too, but endpoints see the node.
    assert.equal(proof.status, 1, proof.stdout + proof.stderr);
    assert.match(proof.stdout, new RegExp(`to ${at}\n +specification: 50 % to .*:8080;.*\n.*: 50 % to .* masqueraded`));
    assert.match(
      lost.stdout,
      new RegExp(`^frontend TCP ${at} in the maps of IPv4 \\(flows/stable:tcp\\) is missing$`, "m"),
    );
    assert.deepEqual([lost.status, passing.status, passing.stdout.includes(`TCP ${at} leads to`)], [1, 0, false]);
  } finally {
    frontends.update(key, value);
    frontends.close();
  }
}
