/** Pods as a test wants them. */

import { silentLogger } from "../../../logging/logger.ts";
import { PodNamespaces } from "../pod-namespaces.ts";
import { HURRIED } from "./hurried-clock.ts";

const HERE = [{ name: "veth0", index: 2 }];

/** @param cookies of their network namespaces, now. @param obstacle why none can be entered, now. */
export function testPods(
  cookies: () => readonly bigint[] = () => [],
  obstacle: () => string | undefined = () => undefined,
) {
  return new PodNamespaces({
    obstacle,
    others: async () => cookies().map((cookie) => ({ path: "", cookie, devices: [{ here: HERE, addresses: [] }] })),
    routes: async () => new Map(),
    watch: (_, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
    podCgroups: () => new Set(),
    networks: [],
    detector: { kind: "interface-prefix", prefix: "veth" },
    isForHostOnly: false,
    clock: { ...HURRIED, monotonicMs: () => 0 },
    log: silentLogger,
  });
}
