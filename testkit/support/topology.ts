/**
 * The network of namespaces for tests: built per test, removed after it, and a reason to skip where the kernel cannot.
 *
 * ```ts
 * test("a pod reaches a cluster IP", { skip: kernelSkip }, async (t) => {
 *   const topology = await topologyFor(t);
 *   await addServingPod(topology, { name: "web-1", node: "node-a", ipv4: "10.180.0.10" }, [{ protocol: "TCP", port: 80 }]);
 *   const probers = probersFor(topology, ["client", "client-pod", "node-a"]);
 * ```
 */
import type { TestContext } from "node:test";
import { missingForTopology } from "../net/kernel-capabilities.ts";
import type { ListenSpec } from "../net/messages.ts";
import { type Prober, startProber } from "../net/namespace-prober.ts";
import { type Backend, startBackend } from "../net/pod-backend.ts";
import { Topology } from "../net/topology.ts";
import { defaultTopology, type PodSpec, type TopologySpec } from "../net/topology-spec.ts";

/** The run of all tests has checked once (scripts/run-tests.mjs, testkit/vm/guest), and passes on the result: a check takes a namespace. */
const told = process.env.KPTS_MISSING;
const missing = told === undefined ? await missingForTopology() : (JSON.parse(told) as readonly string[]);

/** For the `skip` option of a test: why it cannot run here, or `false`. */
export const kernelSkip: string | false = missing.length > 0 ? `kernel: ${missing.join("; ")}` : false;

/** Builds a topology that is removed when the test (or suite) ends, however it ends. */
export async function topologyFor(
  t: Pick<TestContext, "after">,
  spec: TopologySpec = defaultTopology,
): Promise<Topology> {
  const topology = await Topology.create("test", spec);
  t.after(() => topology.destroy());
  return topology;
}

/** Adds a pod that serves on these sockets; removed with the topology. */
export async function addServingPod(topology: Topology, pod: PodSpec, listen: readonly ListenSpec[]): Promise<Backend> {
  const backend = startBackend(await topology.addPod(pod), pod.name);
  await backend.listen(listen);
  return backend;
}

/** The test cgroup of some clients. */
export interface CgroupOfProbers {
  readonly cgroup?: string;
  /** Namespaces whose clients are not in it. */
  readonly except?: readonly string[];
}

/** Starts a client in each of these namespaces; removed with the topology. */
export function probersFor<Name extends string>(
  topology: Topology,
  names: readonly Name[],
  { cgroup, except = [] }: CgroupOfProbers = {},
): Record<Name, Prober> {
  const start = (name: Name) => startProber(topology.namespace(name), except.includes(name) ? undefined : cgroup);
  const entries = names.map((name) => [name, start(name)] as const);
  return Object.fromEntries(entries) as Record<Name, Prober>;
}
