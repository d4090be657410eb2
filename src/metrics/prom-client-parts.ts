/**
 * The parts of prom-client that we use, loaded one by one: its index also loads the cluster, push-gateway and tracing code,
 * which costs the agent 2 to 8 MB of memory and is never run here. The paths are internal to prom-client, which is why
 * its version is pinned exactly.
 */
/// <reference path="./prom-client-lib.d.ts" />
import counter from "prom-client/lib/counter.js";
import gauge from "prom-client/lib/gauge.js";
import histogram from "prom-client/lib/histogram.js";
import registry from "prom-client/lib/registry.js";

export const Registry: typeof import("prom-client").Registry = registry;
export const Counter: typeof import("prom-client").Counter = counter;
export const Gauge: typeof import("prom-client").Gauge = gauge;
export const Histogram: typeof import("prom-client").Histogram = histogram;
