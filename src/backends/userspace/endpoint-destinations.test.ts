import assert from "node:assert/strict";
import { test } from "node:test";
import type { Endpoint } from "../../model/endpoint.ts";
import { makeEndpoint } from "../../model/testing/records.ts";
import { destinationsOf } from "./endpoint-destinations.ts";

const unready = (more: Partial<Endpoint>) => ({ isReady: false, isServing: false, ...more });
const addressesOf = (endpoints: readonly Endpoint[]) => destinationsOf(endpoints).map(({ address }) => address);

test("ready endpoints are used wherever they are; without one, those that terminate and still serve", () => {
  const here = makeEndpoint("10.0.0.1", 80, { isLocal: true });
  const elsewhere = makeEndpoint("10.0.0.2", 80, { zoneHints: ["another"] });
  const leaving = makeEndpoint("10.0.0.3", 80, unready({ isServing: true, isTerminating: true }));
  const starting = makeEndpoint("10.0.0.4", 80, unready({}));
  const gone = makeEndpoint("10.0.0.5", 80, unready({ isTerminating: true }));
  assert.deepEqual(addressesOf([here, elsewhere, leaving, starting, gone]), ["10.0.0.1", "10.0.0.2"]);
  assert.deepEqual(addressesOf([leaving, starting, gone]), ["10.0.0.3"]);
  assert.deepEqual(addressesOf([starting, gone]), []);
});
