/**
 * What a sync of the ipvs mode costs besides the kernel: planning, comparing, and the messages that a kernel in memory gets.
 * The kernel in memory is part of the times.
 */
import { BackendRig } from "../src/dataplane/ipvs/testing/backend-rig.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { ProxyState } from "../src/model/proxy-state.ts";
import { SyncDriver } from "../testkit/dataplane/sync-driver.ts";
import { benchService, benchSlice } from "./cluster.ts";

export interface IpvsMemoryTask {
  readonly services: number;
  readonly endpointsEach: number;
  /** How often each step is done. */
  readonly rounds: number;
}

/** One kind of sync. */
export interface IpvsMemoryStep {
  readonly what: string;
  readonly ms: readonly number[];
  /** Netlink messages of the last round, by what they are for; questions included. */
  readonly messages: { readonly ipvs: number; readonly ipset: number; readonly addresses: number };
  /** Restores of the last round. */
  readonly restores: number;
}

/** A cluster, its model and a backend that has not synced yet. */
function start({ services, endpointsEach }: IpvsMemoryTask) {
  const state = new ProxyState({
    family: "IPv4",
    nodeName: "node-a",
    allowExternalIPs: true,
    now: () => 0,
    log: silentLogger,
  });
  for (let index = 0; index < services; index += 1) {
    state.onService({ kind: "add", object: benchService(index) });
    state.onEndpointSlice({ kind: "add", object: benchSlice(index, endpointsEach) });
  }
  return { state, rig: new BackendRig(new SyncDriver(state)) };
}

/** Measures every kind of sync. */
export async function measureInMemory(task: IpvsMemoryTask): Promise<IpvsMemoryStep[]> {
  const { services, endpointsEach, rounds } = task;
  const steps: IpvsMemoryStep[] = [];
  let { state, rig } = start(task);
  const step = async (what: string, times: number, change: (round: number) => unknown): Promise<void> => {
    const ms: number[] = [];
    let costs = rig.node.takeCosts();
    for (let round = 0; round < times; round += 1) {
      await change(round);
      rig.driver.touch(state.applyChanges().changedPorts);
      rig.node.takeCosts();
      const startMs = performance.now();
      const { failures } = await rig.sync();
      ms.push(performance.now() - startMs);
      if (failures.length > 0) throw new Error(`${what}: ${failures[0]?.reason}`);
      costs = rig.node.takeCosts();
    }
    const { ipvs, ipset, links, restores } = costs;
    steps.push({ what, ms, messages: { ipvs, ipset, addresses: links }, restores });
  };
  const service = (round: number) => (round * 7) % services;
  const size = `${services} × ${endpointsEach}`;
  await step(`${size}: first sync, into an empty kernel`, rounds, () => {
    ({ state, rig } = start(task));
  });
  await step(`${size}: first sync after a restart, nothing changed`, rounds, () => rig.restart());
  await step("one endpoint replaced", rounds * 20, (round) => {
    const old = benchSlice(service(round), endpointsEach, 0);
    state.onEndpointSlice({ kind: "update", old, object: benchSlice(service(round), endpointsEach, round + 1) });
  });
  await step("one endpoint more", rounds * 20, (round) => {
    const index = services - 1 - service(round);
    const old = benchSlice(index, endpointsEach);
    const [added] = benchSlice(index, endpointsEach, 1).endpoints;
    const endpoints = added === undefined ? old.endpoints : [...old.endpoints, added];
    state.onEndpointSlice({ kind: "update", old, object: { ...old, endpoints } });
  });
  await step("one service more, with its endpoints", rounds * 20, (round) => {
    state.onService({ kind: "add", object: benchService(services + round) });
    state.onEndpointSlice({ kind: "add", object: benchSlice(services + round, endpointsEach) });
  });
  await step("100 endpoints replaced at once", rounds, (round) => {
    for (let index = 0; index < Math.min(100, services); index += 1) {
      const old = benchSlice(index, endpointsEach, round);
      state.onEndpointSlice({ kind: "update", old, object: benchSlice(index, endpointsEach, round + 1000) });
    }
  });
  return steps;
}
