/** Fairness and affinity hold over any history of Services, endpoints, connections and time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import type { IpAddress } from "../../net/ip.ts";
import { Balancer } from "./balancer.ts";

type Step =
  | { readonly kind: "service"; readonly port: string; readonly timeoutSeconds: number | undefined }
  | { readonly kind: "no service"; readonly port: string }
  | { readonly kind: "endpoints"; readonly port: string; readonly endpoints: readonly string[] }
  | { readonly kind: "pick"; readonly port: string; readonly client: string; readonly isRetry: boolean }
  | { readonly kind: "wait"; readonly ms: number }
  | { readonly kind: "purge" };

const port = fc.constantFrom("web", "web", "dns");
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    kind: fc.constant("service" as const),
    port,
    timeoutSeconds: fc.constantFrom(undefined, 5, 10),
  }),
  fc.record({ kind: fc.constant("no service" as const), port }),
  fc.record({
    kind: fc.constant("endpoints" as const),
    port,
    endpoints: fc.shuffledSubarray(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]),
  }),
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant("pick" as const),
      port,
      client: fc.constantFrom("192.0.2.1", "192.0.2.2", "192.0.2.3"),
      isRetry: fc.constantFrom(false, false, true),
    }),
  },
  fc.record({ kind: fc.constant("wait" as const), ms: fc.integer({ min: 0, max: 6_000 }) }),
  fc.record({ kind: fc.constant("purge" as const) }),
);

/** A simple model of one service port. */
class ExpectedPort {
  timeoutMs: number | undefined;
  endpoints: readonly string[] = [];
  /** How often each endpoint was picked in turn since the endpoints changed. */
  turns = new Map<string, number>();
  clients = new Map<string, { readonly endpoint: string; readonly lastUsedMs: number }>();

  setEndpoints(endpoints: readonly string[]): void {
    const gone = this.endpoints.filter((endpoint) => !endpoints.includes(endpoint));
    if (gone.length > 0 || endpoints.length !== this.endpoints.length) this.turns.clear();
    for (const [client, { endpoint }] of this.clients) if (gone.includes(endpoint)) this.clients.delete(client);
    this.endpoints = endpoints;
  }

  /** Checks a pick and records it. */
  picked(client: string, isRetry: boolean, endpoint: string | undefined, nowMs: number): void {
    assert.equal(endpoint !== undefined, this.endpoints.length > 0);
    if (endpoint === undefined) return;
    assert.ok(this.endpoints.includes(endpoint));
    const last = this.clients.get(client);
    const isHeld =
      !isRetry && last !== undefined && this.timeoutMs !== undefined && nowMs - last.lastUsedMs < this.timeoutMs;
    if (isHeld) assert.equal(endpoint, last.endpoint, "affinity");
    else this.turns.set(endpoint, (this.turns.get(endpoint) ?? 0) + 1);
    if (this.timeoutMs !== undefined) this.clients.set(client, { endpoint, lastUsedMs: nowMs });
    const counts = this.endpoints.map((each) => this.turns.get(each) ?? 0);
    assert.ok(Math.max(...counts) - Math.min(...counts) <= 1, `unfair: ${counts}`);
  }

  purge(nowMs: number): void {
    for (const [client, { lastUsedMs }] of this.clients) {
      if (this.timeoutMs === undefined || nowMs - lastUsedMs >= this.timeoutMs) this.clients.delete(client);
    }
  }
}

test("any history of services, endpoints, connections and time is fair and keeps affinity", () => {
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 120, size: "max" }),
      fc.infiniteStream(fc.double({ min: 0, max: 0.999 })),
      run,
    ),
    { numRuns: 500 },
  );
});

function run(steps: readonly Step[], chance: Iterator<number>): void {
  let nowMs = 0;
  const balancer = new Balancer({ random: () => Number(chance.next().value), nowMs: () => nowMs });
  const expected = new Map([
    ["web", new ExpectedPort()],
    ["dns", new ExpectedPort()],
  ]);
  for (const step of steps) {
    const port = "port" in step ? expected.get(step.port) : undefined;
    if (step.kind === "wait") nowMs += step.ms;
    else if (step.kind === "purge") {
      balancer.purgeExpired();
      let clients = 0;
      for (const each of expected.values()) {
        each.purge(nowMs);
        clients += each.clients.size;
      }
      assert.equal(balancer.stickyClients, clients, "clients left after purging");
    } else if (port !== undefined) apply(balancer, port, step, nowMs);
  }
}

function apply(balancer: Balancer, port: ExpectedPort, step: Exclude<Step, { kind: "wait" | "purge" }>, nowMs: number) {
  switch (step.kind) {
    case "service":
      port.timeoutMs = step.timeoutSeconds === undefined ? undefined : step.timeoutSeconds * 1000;
      if (port.timeoutMs === undefined) port.clients.clear();
      set(balancer, step.port, port);
      break;
    case "no service":
      balancer.delete(step.port);
      port.timeoutMs = undefined;
      port.setEndpoints([]);
      break;
    case "endpoints":
      port.setEndpoints(step.endpoints);
      set(balancer, step.port, port);
      break;
    case "pick": {
      const picked = balancer.pick(step.port, { address: step.client as IpAddress, port: 1 }, step.isRetry);
      port.picked(step.client, step.isRetry, picked?.address, nowMs);
      break;
    }
  }
}

function set(balancer: Balancer, name: string, { endpoints, timeoutMs }: ExpectedPort): void {
  const destinations = endpoints.map((address) => ({ address: address as IpAddress, port: 80 }));
  balancer.set(name, destinations, timeoutMs === undefined ? undefined : { timeoutSeconds: timeoutMs / 1000 });
}
