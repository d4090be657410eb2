/** An API source with a server of {@link COUNT} Services, and helpers that cause faults. */
import type { TestContext } from "node:test";
import type { Clock } from "../../src/async/clock.ts";
import { node, service, serviceCidr, slice } from "./example-objects.ts";
import type { Fault } from "./faults.ts";
import { fastClock, type SourceUnderTest, type StartOptions, startSource } from "./source-under-test.ts";
import type { TestApiServer } from "./test-api-server.ts";

export const COUNT = 20;

/** A node, a ServiceCIDR, and {@link COUNT} Services with a slice each. */
export const some = (server: TestApiServer): void => {
  server.put("nodes", node("node-a"));
  server.put("servicecidrs", serviceCidr());
  for (let index = 0; index < COUNT; index++) {
    server.put("services", service(index));
    server.put("endpointslices", slice(index));
  }
};

/** Starts server and source, by default with the objects of {@link some}; both end with the test. */
export const start = async (t: TestContext, options: StartOptions = {}): Promise<SourceUnderTest> =>
  await startSource(t, { prepare: some, ...options });

/** Makes every request of a kind fail. @returns the function that stops it. */
export function failing(server: TestApiServer, plural: string, fault: Fault, verb?: string): () => void {
  server.switches.fault = (request) =>
    request.plural === plural && (verb === undefined || request.verb === verb) ? fault : undefined;
  return () => {
    server.switches.fault = () => undefined;
  };
}

/** Cuts the watch of services, so that it is requested again. */
export const cutServices = (server: TestApiServer): void => {
  for (const watch of server.watches("services")) watch.cut();
};

/** A clock that records all waits. */
export function notingClock() {
  const clock = fastClock(100);
  const waits: number[] = [];
  const sleep: Clock["sleep"] = (delayMs, signal) => {
    waits.push(delayMs);
    return clock.sleep(delayMs, signal);
  };
  return { waits, clock: { ...clock, sleep } };
}
