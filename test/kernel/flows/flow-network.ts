/** The network, the serving pods, the clients and the real daemon of a flow test, all removed with the test. */

import type { TestContext } from "node:test";
import type { Protocol } from "../../../src/net/protocol.ts";
import { ClientCgroup } from "../../../testkit/net/client-cgroup.ts";
import type { Prober } from "../../../testkit/net/namespace-prober.ts";
import type { Topology } from "../../../testkit/net/topology.ts";
import { bareAddress, defaultClusterCidr, nodeA } from "../../../testkit/net/topology-spec.ts";
import { type DaemonOptions, ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { addServingPod, probersFor, topologyFor } from "../../../testkit/support/topology.ts";
import type { Address } from "./asking.ts";
import {
  addressesOf,
  clusterOf,
  type Family,
  PROTOCOLS,
  SERVICE_PORT,
  type ServiceSpec,
  servingPods,
  TARGET_PORTS,
} from "./cluster-objects.ts";
import { type Destination, namespaceAt, POSITIONS, type Position } from "./expected.ts";
import { type Mode, traitsOf } from "./modes.ts";

export interface FlowNetwork {
  readonly topology: Topology;
  readonly probers: Readonly<Record<Position, Prober>>;
  readonly daemon: ProxyDaemon;
  /** The cgroup of the clients on the node, in the mode whose programs are attached to it. */
  readonly cgroup: string | undefined;
}

/** A test's options beyond the usual. */
export interface FlowExtras extends Pick<DaemonOptions, "config" | "args" | "wrapper"> {
  /** Where ebpf mode keeps its maps. @default nowhere */
  readonly pinFolder?: string;
  /** Changes the network before the daemon starts. */
  prepare?(topology: Topology): Promise<void>;
  /** More of the section `ebpf`. */
  readonly ebpf?: Readonly<Record<string, unknown>>;
}

function clientCgroup(t: Pick<TestContext, "after">): string {
  const cgroup = ClientCgroup.create("kpts-flows");
  t.after(() => cgroup.remove());
  return cgroup.path;
}

/** Length of the daemon's log shown if a test fails. */
const LOG_CHARACTERS = 20_000;

/** Builds everything and waits for the daemon's first sync. */
export async function flowNetwork(
  t: Pick<TestContext, "after" | "diagnostic"> & { readonly passed?: boolean },
  mode: Mode,
  services: readonly ServiceSpec[],
  { prepare, config, args, wrapper, pinFolder = "none", ebpf }: FlowExtras = {},
): Promise<FlowNetwork> {
  const cgroupRoot = traitsOf[mode].runsInCgroup === true ? clientCgroup(t) : undefined;
  const topology = await topologyFor(t);
  await prepare?.(topology);
  const listen = PROTOCOLS.map((protocol) => ({ protocol, port: TARGET_PORTS[protocol] }));
  const [daemon] = await Promise.all([
    ProxyDaemon.start(topology.namespace(nodeA.name), {
      hostnameOverride: nodeA.name,
      objects: clusterOf(services),
      ...(args !== undefined && { args }),
      ...(wrapper !== undefined && { wrapper }),
      config: {
        mode,
        clusterCIDR: defaultClusterCidr,
        ...(cgroupRoot !== undefined && { ebpf: { cgroupRoot, pinFolder, ...traitsOf[mode].ebpf, ...ebpf } }),
        ...traitsOf[mode].config,
        ...config,
      },
    }),
    ...Object.values(servingPods).map((pod) => addServingPod(topology, pod, listen)),
  ]);
  t.after(async () => {
    // The enclosing test does not know about a failed subtest yet.
    if (t.passed === false || /ended with (?:SIGSEGV|SIGABRT|SIGBUS|[1-9])/.test(daemon.log))
      t.diagnostic(`the daemon's log ends with:\n${daemon.log.slice(-LOG_CHARACTERS)}`);
    await daemon.dispose();
  });
  const onNode = cgroupRoot === undefined ? {} : { cgroup: cgroupRoot, except: [namespaceAt["off-node client"]] };
  const byNamespace = probersFor(topology, Object.values(namespaceAt), onNode);
  const probers = Object.fromEntries(POSITIONS.map((position) => [position, byNamespace[namespaceAt[position]]]));
  return { topology, probers: probers as Record<Position, Prober>, daemon, cgroup: cgroupRoot };
}

/** An address of a service's port. Node ports are reached at the node's own address. */
export function addressOf(service: number, to: Destination, protocol: Protocol, family: Family): Address {
  const addresses = addressesOf(service);
  if (to !== "node port") return { protocol, address: addresses[to][family], port: SERVICE_PORT };
  const address = bareAddress(family === "IPv4" ? nodeA.lan.ipv4 : nodeA.lan.ipv6);
  return { protocol, address, port: addresses.nodePort };
}
