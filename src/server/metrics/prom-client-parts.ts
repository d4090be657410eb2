/**
 * The parts of prom-client that we use, loaded one by one: its index also loads the cluster, push-gateway and tracing code,
 * which costs the agent 2 to 8 MB of memory and is never run here. The paths are internal to prom-client, which is why
 * its version is pinned exactly.
 */
import { createRequire } from "node:module";

const load = createRequire(import.meta.url);

export const Registry: typeof import("prom-client").Registry = load("prom-client/lib/registry.js");
export const Counter: typeof import("prom-client").Counter = load("prom-client/lib/counter.js");
export const Gauge: typeof import("prom-client").Gauge = load("prom-client/lib/gauge.js");
export const Histogram: typeof import("prom-client").Histogram = load("prom-client/lib/histogram.js");
