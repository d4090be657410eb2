/** The loop that leaves out endpoints, with a real proxier and policy, and what the kernel says made up. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CONNECTIONS } from "../../contract/config/v1alpha1-document.ts";
import type { PacketEvidence } from "../../kernel/nftables/unanswered-table.ts";
import type { ProbeOutcome } from "../../model/left-endpoints.ts";
import { ProxierBench } from "../sync/testing/proxier-bench.ts";
import { RecordingLogger } from "../sync/testing/recorders.ts";
import { serviceRecord, sliceRecord } from "../sync/testing/records.ts";
import { Leaving } from "./left-endpoints.ts";

const DEAD = "10.1.0.3:8080";
const SLICE = sliceRecord("web", ["10.1.0.1", "10.1.0.2", "10.1.0.3"]);
const PORTS = (["TCP", "UDP"] as const).map((protocol) => ({ name: "p", protocol, port: 80, nodePort: 0 }));

/** A Service that asks, with three endpoints, one of which is silent on demand. */
async function watching(isAsked = true) {
  const bench = new ProxierBench({ minMs: 0 });
  bench.proxier.onService({
    kind: "add",
    object: serviceRecord("web", { ports: PORTS, ...(isAsked && { leaveUnanswered: true }) }),
  });
  const udp = { ...SLICE, name: "web-udp", ports: [{ name: "p", protocol: "UDP", port: 8080 } as const] };
  for (const object of [SLICE, udp]) bench.proxier.onEndpointSlice({ kind: "add", object });
  await bench.start();
  const kernel = {
    isSilent: false,
    problem: undefined as Error | undefined,
    watched: new Set<string>() as ReadonlySet<string>,
    isOpen: true,
  };
  const told: string[] = [];
  const log = new RecordingLogger();
  const observer = {
    async observe({ watched }: { readonly watched: ReadonlySet<string> }) {
      kernel.watched = watched;
    },
    async read(): Promise<PacketEvidence[]> {
      if (kernel.problem !== undefined) throw kernel.problem;
      const sources = kernel.isSilent ? ["0", "1", "2"] : [];
      return sources.map((source) => ({ kind: "unanswered", endpoint: DEAD, source, count: 2 }));
    },
    async close() {
      kernel.isOpen = false;
    },
  };
  const stop = new AbortController();
  const left = () => [...(bench.proxier.state.leftOut.get("ns/web:p/TCP")?.keys() ?? [])];
  const leaving = new Leaving(bench.proxier, {
    connections: CONNECTIONS.defaults,
    nodeName: "node",
    observer,
    async probe(endpoint): Promise<ProbeOutcome> {
      const outcome = kernel.isSilent && endpoint === DEAD ? "silent" : "answered";
      await bench.clock.sleep(outcome === "silent" ? 900 : 2, stop.signal);
      return outcome;
    },
    forget: async (endpoint) => void told.push(`forget ${endpoint}, left out: ${left()}`),
    tell: (service, text) => told.push(`${service}: ${text}`),
    count: (change) => told.push(change),
    clock: bench.clock,
    log,
  });
  const ended = leaving.run(stop.signal);
  await bench.clock.advance(2_000);
  return { bench, kernel, told, log, left, stop, ended };
}

describe("leaving out endpoints that do not answer", () => {
  it("leaves a silent one out, then saves those that wait for it, and tells; an answer brings it back", async () => {
    const { bench, kernel, told, log, left } = await watching();
    assert.deepEqual([...kernel.watched].sort(), ["10.1.0.1:8080", "10.1.0.2:8080", DEAD]);
    const syncs = bench.backend.calls.length;
    kernel.isSilent = true;
    await bench.clock.advance(3_000);
    assert.deepEqual(told, [
      `forget ${DEAD}, left out: ${DEAD}`,
      "left",
      `ns/web: ${DEAD} of ns/web:p does not answer: it is left out`,
    ]);
    assert.deepEqual(
      bench.backend.calls.slice(syncs).map(({ changedPorts }) => changedPorts),
      [["ns/web:p/TCP"]],
    );
    assert.match(bench.proxier.state.leftOut.get("ns/web:p/TCP")?.get(DEAD) ?? "", /^since 2026-01-01T00:00:0\dZ: /);
    kernel.isSilent = false;
    await bench.clock.advance(20_000);
    assert.deepEqual([told.at(-1), left()], ["back", []]);
    assert.match(log.lines.at(-1) ?? "", /An endpoint is back .*10\.1\.0\.3:8080/);
  });

  it("forgets all of a Service when its slices change, though the endpoints stay", async () => {
    const { bench, kernel, told, log, left } = await watching();
    kernel.isSilent = true;
    await bench.clock.advance(3_000);
    assert.deepEqual(left(), [DEAD]);
    kernel.isSilent = false;
    bench.proxier.onEndpointSlice({ kind: "update", old: SLICE, object: { ...SLICE, resourceVersion: "other" } });
    await bench.clock.advance(1_000);
    assert.deepEqual(left(), []);
    assert.ok(
      log.lines.some((line) => /An endpoint is no longer left out .*its Service or its slices changed/.test(line)),
    );
    assert.equal(told.at(-1)?.startsWith("ns/web"), true, "nothing was counted as back");
  });

  it("puts all back when it stops, and removes what it has in the kernel", async () => {
    const { bench, kernel, left, stop, ended } = await watching();
    kernel.isSilent = true;
    await bench.clock.advance(3_000);
    assert.deepEqual(left(), [DEAD]);
    stop.abort();
    await bench.clock.settle();
    await ended;
    assert.deepEqual([left(), kernel.isOpen], [[], false]);
  });

  it("watches nothing unasked, and logs a problem once while it lasts", async () => {
    const { bench, kernel, log } = await watching(false);
    assert.equal(kernel.watched.size, 0);
    const problems = () => log.lines.filter((line) => line.startsWith("E Cannot look")).length;
    kernel.problem = new Error("no netlink");
    await bench.clock.advance(3_000);
    assert.equal(problems(), 1);
    kernel.problem = undefined;
    await bench.clock.advance(1_000);
    assert.match(
      log.lines.at(-1) ?? "",
      /^I Looking .* again .*"solves":"Cannot look for endpoints that do not answer"/,
    );
    kernel.problem = new Error("no netlink");
    await bench.clock.advance(3_000);
    assert.equal(problems(), 2);
  });
});
